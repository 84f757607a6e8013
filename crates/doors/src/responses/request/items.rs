//! Parses the input items of a request.
//!
//! Items are checked and then kept byte for byte, except for secrets of tool servers in them. Clients send output items of earlier
//! responses again, with their ids, and get them back unchanged. Items of unknown types are kept too.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::{
    limits::{ITEMS_MAX, NAME_CHARS_MAX, PARTS_MAX, TEXT_BYTES_MAX},
    mcp,
    object::{At, Object, Shape, check_text_of, list_of},
};
use crate::responses::error::WireError;

const ROLES: [&str; 4] = ["user", "system", "developer", "assistant"];
const TRIGGER: &str = "compaction_trigger";
const DETAILS: [&str; 4] = ["low", "high", "auto", "original"];

/// The items of an input, which is a text or a list.
pub(super) fn items_of(value: &RawValue, at: &At<'_>) -> Result<Vec<Box<RawValue>>, WireError> {
    match Shape::of(value) {
        Shape::Text => Ok(vec![user_message(value, at)?]),
        Shape::List => {
            let items = list_of(value, at, ITEMS_MAX)?;
            let last = items.len().saturating_sub(1);
            let checked = items.into_iter().enumerate().map(|(index, item)| {
                let at = At::Element(at, index);
                if index < last && is_trigger(item) {
                    return Err(at.invalid("the last item of the input if it is a 'compaction_trigger'"));
                }
                check_item(item, &at)?;
                kept(item)
            });
            checked.collect()
        }
        Shape::Null | Shape::Flag | Shape::Number | Shape::Object => Err(at.wrong_type("a string or an array", value)),
    }
}

/// The item as it is kept: unchanged, or without the secrets of tool servers that it contains.
fn kept(item: &RawValue) -> Result<Box<RawValue>, WireError> {
    // A cheap check first: most items do not contain these words, and need not be parsed.
    if !["authorization", "headers", "server_url"].iter().any(|word| item.get().contains(word)) {
        return Ok(item.to_owned());
    }
    let internal = |error: serde_json::Error| WireError::internal(&error);
    let came: Value = serde_json::from_str(item.get()).map_err(internal)?;
    let mut redacted = came.clone();
    mcp::redact(&mut redacted);
    if redacted == came { Ok(item.to_owned()) } else { to_raw_value(&redacted).map_err(internal) }
}

/// Whether an item asks for a summary of everything before it.
pub(super) fn is_trigger(item: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    // A cheap check first: most items do not contain the word, and they may be long.
    item.get().contains(TRIGGER) && serde_json::from_str::<Typed<'_>>(item.get()).is_ok_and(|item| item.kind == TRIGGER)
}

/// The user message that a plain text input is a shorthand for.
fn user_message(text: &RawValue, at: &At<'_>) -> Result<Box<RawValue>, WireError> {
    #[derive(Serialize)]
    struct Message<'a> {
        r#type: &'static str,
        role: &'static str,
        content: [Part<'a>; 1],
    }
    #[derive(Serialize)]
    struct Part<'a> {
        r#type: &'static str,
        text: &'a RawValue,
    }
    check_text_of(text, at, TEXT_BYTES_MAX)?;
    let content = [Part { r#type: "input_text", text }];
    to_raw_value(&Message { r#type: "message", role: "user", content }).map_err(|error| WireError::internal(&error))
}

fn check_item(value: &RawValue, at: &At<'_>) -> Result<(), WireError> {
    let item = Object::of(value, at)?;
    let kind = match item.text("type")? {
        Some(kind) => kind,
        // Many clients leave out the type of a message, and a reference may have nothing but an id.
        None if item.given("role").is_some() => "message".to_owned(),
        None if item.given("id").is_some() => "item_reference".to_owned(),
        None => return Err(WireError::missing(item.at("type").to_string())),
    };
    match kind.as_str() {
        "message" => check_message(&item),
        "function_call" => check_call(&item, "arguments"),
        "custom_tool_call" => check_call(&item, "input"),
        "function_call_output" | "custom_tool_call_output" => check_output(&item),
        "item_reference" => item.required_name("id", NAME_CHARS_MAX).map(drop),
        "reasoning" => check_reasoning(&item),
        "compaction" => item.check_required_text("encrypted_content"),
        "mcp_approval_response" => check_approval(&item),
        _ => return Ok(()),
    }?;
    item.check_text("id")?;
    item.check_text("status")
}

fn check_message(item: &Object<'_, '_>) -> Result<(), WireError> {
    item.required("role")?;
    item.word("role", &ROLES)?;
    item.check_text("phase")?;
    check_content(item.required("content")?, &item.at("content"))
}

fn check_call(item: &Object<'_, '_>, arguments: &str) -> Result<(), WireError> {
    item.required_name("call_id", NAME_CHARS_MAX)?;
    item.required_name("name", NAME_CHARS_MAX)?;
    item.name("namespace", NAME_CHARS_MAX)?;
    item.check_required_text(arguments)
}

fn check_output(item: &Object<'_, '_>) -> Result<(), WireError> {
    item.required_name("call_id", NAME_CHARS_MAX)?;
    check_content(item.required("output")?, &item.at("output"))
}

fn check_reasoning(item: &Object<'_, '_>) -> Result<(), WireError> {
    item.check_text("encrypted_content")?;
    for name in ["summary", "content"] {
        if let Some(parts) = item.given(name) {
            check_parts(parts, &item.at(name))?;
        }
    }
    Ok(())
}

fn check_approval(item: &Object<'_, '_>) -> Result<(), WireError> {
    item.required_name("approval_request_id", NAME_CHARS_MAX)?;
    item.required("approve")?;
    item.flag("approve")?;
    item.check_text("reason")
}

/// Checks content, which is a text or a list of parts.
fn check_content(value: &RawValue, at: &At<'_>) -> Result<(), WireError> {
    match Shape::of(value) {
        Shape::Text => check_text_of(value, at, TEXT_BYTES_MAX),
        Shape::List => check_parts(value, at),
        Shape::Null | Shape::Flag | Shape::Number | Shape::Object => Err(at.wrong_type("a string or an array", value)),
    }
}

fn check_parts(value: &RawValue, at: &At<'_>) -> Result<(), WireError> {
    let parts = list_of(value, at, PARTS_MAX)?;
    parts.into_iter().enumerate().try_for_each(|(index, part)| check_part(part, &At::Element(at, index)))
}

fn check_part(value: &RawValue, at: &At<'_>) -> Result<(), WireError> {
    let part = Object::of(value, at)?;
    let Some(kind) = part.text("type")? else { return Err(WireError::missing(part.at("type").to_string())) };
    match kind.as_str() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => part.check_required_text("text"),
        "refusal" => part.check_required_text("refusal"),
        "input_image" => {
            part.word("detail", &DETAILS)?;
            check_one_of(&part, &["image_url", "file_id"])
        }
        "input_file" => {
            part.check_text("filename")?;
            check_one_of(&part, &["file_data", "file_url", "file_id"])
        }
        "input_video" => part.check_required_text("video_url"),
        "input_audio" => {
            let at = part.at("input_audio");
            let audio = Object::of(part.required("input_audio")?, &at)?;
            audio.check_required_text("data")?;
            audio.check_required_text("format")
        }
        _ => Ok(()),
    }
}

/// Checks that at least one of several alternative fields is given, and that each one given is a text.
fn check_one_of(part: &Object<'_, '_>, ways: &[&str]) -> Result<(), WireError> {
    ways.iter().try_for_each(|way| part.check_text(way))?;
    match ways.iter().any(|way| part.given(way).is_some()) {
        true => Ok(()),
        false => Err(WireError::missing(part.at(ways[0]).to_string())),
    }
}
