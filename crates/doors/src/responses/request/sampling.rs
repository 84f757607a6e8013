//! Parses the sampling parameters and the metadata of a request.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    limits::{KEY_CHARS_MAX, LOGPROBS_MAX, METADATA_KEY_CHARS_MAX, METADATA_MAX, METADATA_VALUE_CHARS_MAX, TOOL_NAME_CHARS_MAX},
    object::{At, Object, Shape, check_length, text_of},
    tools::complete,
};
use crate::responses::error::WireError;

const TRUNCATIONS: [&str; 2] = ["auto", "disabled"];
const TIERS: [&str; 5] = ["auto", "default", "flex", "priority", "scale"];
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const SUMMARIES: [&str; 3] = ["auto", "concise", "detailed"];
const VERBOSITIES: [&str; 3] = ["low", "medium", "high"];
const FORMATS: [&str; 3] = ["text", "json_object", "json_schema"];

/// The sampling parameters. They serialise under the protocol's names, without those that are not set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// As the client sent it, an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
    /// As the client sent it, an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safety_identifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Sampling {
    pub(super) fn read(body: &Object<'_, '_>) -> Result<Self, WireError> {
        Ok(Sampling {
            temperature: body.decimal("temperature", 0.0..=2.0)?,
            top_p: body.decimal("top_p", 0.0..=1.0)?,
            top_logprobs: body.whole("top_logprobs", 0..=LOGPROBS_MAX)?,
            presence_penalty: body.decimal("presence_penalty", -2.0..=2.0)?,
            frequency_penalty: body.decimal("frequency_penalty", -2.0..=2.0)?,
            reasoning: body.given("reasoning").map(|value| reasoning_of(value, &body.at("reasoning"))).transpose()?,
            text: body.given("text").map(|value| answer_text_of(value, &body.at("text"))).transpose()?,
            truncation: body.word("truncation", &TRUNCATIONS)?,
            service_tier: body.word("service_tier", &TIERS)?,
            prompt_cache_key: key_of(body, "prompt_cache_key")?,
            safety_identifier: key_of(body, "safety_identifier")?,
            user: body.text("user")?,
        })
    }

    /// `reasoning` of the response object: null, or an object with both of its keys.
    pub(super) fn reasoning_echo(&self) -> Value {
        let Some(reasoning) = &self.reasoning else { return Value::Null };
        let mut echo = reasoning.clone();
        complete(&mut echo, ["effort", "summary"]);
        echo
    }

    /// `text` of the response object: always with a format, and without nulls where the contract allows none.
    pub(super) fn text_echo(&self) -> Value {
        let mut echo = self.text.clone().unwrap_or_else(|| json!({}));
        if let Value::Object(members) = &mut echo {
            members.retain(|_, value| !value.is_null());
        }
        let format = &mut echo["format"];
        if format.is_null() {
            *format = json!({ "type": "text" });
        }
        if format["type"] == "json_schema" {
            complete(format, ["description", "strict"]);
            if format["strict"].is_null() {
                format["strict"] = json!(false);
            }
        }
        echo
    }
}

/// Reads the client's `metadata`, which the response repeats.
pub(super) fn metadata_of(body: &Object<'_, '_>) -> Result<BTreeMap<String, String>, WireError> {
    let Some(value) = body.given("metadata") else { return Ok(BTreeMap::new()) };
    let at = body.at("metadata");
    let metadata = Object::of(value, &at)?;
    if metadata.members().len() > METADATA_MAX {
        return Err(at.above_max("object_above_max_properties", format_args!("at most {METADATA_MAX} pairs")));
    }
    let pairs = metadata.members().map(|(key, value)| {
        let at = metadata.at(key);
        check_length(key, &at, METADATA_KEY_CHARS_MAX)?;
        let value = text_of(value, &at)?;
        check_length(&value, &at, METADATA_VALUE_CHARS_MAX)?;
        Ok((key.to_owned(), value))
    });
    pairs.collect()
}

/// Reads a cache key or an identifier. It may be empty: some clients send unset settings so.
fn key_of(body: &Object<'_, '_>, name: &str) -> Result<Option<String>, WireError> {
    let key = body.text(name)?;
    if let Some(key) = &key {
        check_length(key, &body.at(name), KEY_CHARS_MAX)?;
    }
    Ok(key)
}

fn reasoning_of(value: &RawValue, at: &At<'_>) -> Result<Value, WireError> {
    let reasoning = Object::of(value, at)?;
    reasoning.word("effort", &EFFORTS)?;
    reasoning.word("summary", &SUMMARIES)?;
    whole(value, at)
}

fn answer_text_of(value: &RawValue, at: &At<'_>) -> Result<Value, WireError> {
    let text = Object::of(value, at)?;
    text.word("verbosity", &VERBOSITIES)?;
    if let Some(format) = text.given("format") {
        check_format(&Object::of(format, &text.at("format"))?)?;
    }
    whole(value, at)
}

fn check_format(format: &Object<'_, '_>) -> Result<(), WireError> {
    format.required("type")?;
    if format.word("type", &FORMATS)? != Some("json_schema") {
        return Ok(());
    }
    format.required_name("name", TOOL_NAME_CHARS_MAX)?;
    format.check_text("description")?;
    format.flag("strict")?;
    let schema = format.required("schema")?;
    match Shape::of(schema) == Shape::Object {
        true => Ok(()),
        false => Err(format.at("schema").wrong_type("an object", schema)),
    }
}

fn whole(value: &RawValue, at: &At<'_>) -> Result<Value, WireError> {
    serde_json::from_str(value.get()).map_err(|_| at.wrong_type("an object", value))
}
