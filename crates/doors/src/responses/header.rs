//! The headers of items in the format of the Responses API: what the engine needs to know of an item is read here.
//!
//! A header points into the stored content, which is the item within the engine's envelope. Members that are missing or of the wrong type
//! make an item one of an unknown kind, which models get as JSON: the agents API takes objects of any shape.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use windlass_kernel::{
    content::Instruction,
    header::{Arguments, Content, ItemHeader, Media, Outcome, Output, Part, Role, Span},
};

use super::request::CUSTOM_INPUT;

/// The header of an instruction that is an item of a client. `None` if it is one of the engine's own shapes, or cannot be read.
pub(crate) fn header(instruction: &[u8]) -> Option<ItemHeader> {
    let (raw, is_earlier_call) = match serde_json::from_slice(instruction).ok()? {
        Instruction::Item(raw) => (raw, false),
        Instruction::Made { item, .. } => (item, true),
        Instruction::Text(_) | Instruction::Aside(_) | Instruction::Compaction { .. } | Instruction::Summary(_) => return None,
    };
    let item = WireItem::read(raw, ContentStart(instruction.as_ptr() as usize))?;
    Some(if is_earlier_call { item.server_call() } else { item.header() })
}

/// The address of the content that headers point into.
#[derive(Clone, Copy)]
struct ContentStart(usize);

impl ContentStart {
    /// The span of a part of the content, which `part` borrows from.
    fn span(self, part: &str) -> Option<Span> {
        let start = (part.as_ptr() as usize).checked_sub(self.0)?;
        Some(Span(u32::try_from(start).ok()?, u32::try_from(part.len()).ok()?))
    }
}

/// An object in the content. Of a member that is there twice, the last one counts, as everywhere.
struct WireItem<'a> {
    raw: &'a RawValue,
    members: BTreeMap<String, &'a RawValue>,
    start: ContentStart,
}

impl<'a> WireItem<'a> {
    fn read(raw: &'a RawValue, start: ContentStart) -> Option<Self> {
        Some(WireItem { raw, members: serde_json::from_str(raw.get()).ok()?, start })
    }

    /// The inside of a member that is a string, as it is written.
    fn written(&self, name: &str) -> Option<&'a str> {
        inside(self.members.get(name)?)
    }

    /// A member that is a text.
    fn text(&self, name: &str) -> Option<Span> {
        self.start.span(self.written(name)?)
    }

    /// A member that is a keyword.
    fn word(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.members.get(name)?.get()).ok()
    }

    /// The elements of a member that is a list.
    fn list(&self, name: &str) -> Option<Vec<&'a RawValue>> {
        list(self.members.get(name)?)
    }

    fn json(&self) -> Option<Span> {
        self.start.span(self.raw.get())
    }

    fn header(&self) -> ItemHeader {
        let kind = self.word("type");
        let known = match kind.as_deref() {
            Some("function_call" | "custom_tool_call") => self.call(),
            Some("function_call_output" | "custom_tool_call_output") => self.output(),
            // The model sees a server's call only by the name of its tool.
            Some("mcp_call") => Some(self.text("name").map_or(ItemHeader::Hidden, |_| self.server_call())),
            Some("reasoning") => Some(self.reasoning().unwrap_or(ItemHeader::Hidden)),
            Some("message") | None => self.message(),
            Some(_) => None,
        };
        known.or_else(|| self.json().map(ItemHeader::Other)).unwrap_or(ItemHeader::Hidden)
    }

    fn message(&self) -> Option<ItemHeader> {
        let role = match self.word("role")?.as_str() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => return None,
        };
        let content = match self.text("content") {
            Some(text) => Content::Text(text),
            None => Content::Parts(self.parts(&self.list("content")?, role)?),
        };
        Some(ItemHeader::Message { role, content })
    }

    fn parts(&self, parts: &[&'a RawValue], role: Role) -> Option<Vec<Part<Span, Span>>> {
        // The model's own text is recognised whatever the type of its parts is.
        let texts =
            if role == Role::Assistant { parts.iter().map(|part| self.text_or_refusal(part)).collect::<Option<Vec<Span>>>() } else { None };
        match texts {
            Some(texts) => Some(texts.into_iter().map(Part::Text).collect()),
            None => parts.iter().map(|part| self.part(part)).collect(),
        }
    }

    fn part(&self, raw: &'a RawValue) -> Option<Part<Span, Span>> {
        let json = self.start.span(raw.get())?;
        let Some(part) = WireItem::read(raw, self.start) else { return Some(Part::Attachment { media: Media::Other, json }) };
        let kind = part.word("type");
        let media = match (kind.as_deref(), part.text("text"), part.text("refusal")) {
            (Some("input_text" | "output_text" | "text"), Some(text), _) => return Some(Part::Text(text)),
            (Some("refusal"), _, Some(refusal)) => Media::Refusal(refusal),
            (Some("input_image"), ..) => Media::Image { url: part.text("image_url"), detail: part.text("detail") },
            (Some("input_file"), ..) => Media::File {
                data: part.text("file_data"),
                url: part.text("file_url"),
                id: part.text("file_id"),
                name: part.text("filename"),
            },
            (Some(_) | None, ..) => Media::Other,
        };
        Some(Part::Attachment { media, json })
    }

    /// The text of a part, or the refusal in it.
    fn text_or_refusal(&self, raw: &'a RawValue) -> Option<Span> {
        let part = WireItem::read(raw, self.start)?;
        self.start.span(inside(part.members.get("text").or_else(|| part.members.get("refusal"))?)?)
    }

    fn call(&self) -> Option<ItemHeader> {
        let arguments = self.text("arguments").map(Arguments::Json);
        let arguments = arguments.or_else(|| Some(Arguments::Text(CUSTOM_INPUT.to_owned(), self.text("input")?)));
        Some(ItemHeader::Call { id: self.text("call_id")?, tool: self.text("name")?, arguments })
    }

    fn output(&self) -> Option<ItemHeader> {
        let call = self.text("call_id")?;
        let raw = self.members.get("output")?;
        let texts = match (self.text("output"), list(raw)) {
            (Some(text), _) => Some(vec![text]),
            (None, Some(parts)) => parts.iter().map(|part| self.text_or_refusal(part)).collect(),
            (None, None) => None,
        };
        let output = match texts {
            Some(texts) => Output::Texts(texts),
            None => Output::Json(self.start.span(raw.get())?),
        };
        Some(ItemHeader::Result { call, output, item: self.json()? })
    }

    /// A call that this server made. Without its id, it belongs to no call.
    fn server_call(&self) -> ItemHeader {
        let Some(id) = self.text("id") else { return ItemHeader::Hidden };
        let outcome = self.text("error").map(Outcome::Error).or_else(|| self.text("output").map(Outcome::Output));
        ItemHeader::ServerCall {
            id,
            server: self.text("server_label"),
            tool: self.text("name"),
            arguments: self.text("arguments"),
            outcome,
        }
    }

    /// Reasoning with encrypted content, before which the provider's name stands.
    fn reasoning(&self) -> Option<ItemHeader> {
        let (provider, sealed) = self.written("encrypted_content")?.split_once(':')?;
        let parts = self.list("summary").unwrap_or_default();
        let summary = parts.iter().filter_map(|part| WireItem::read(part, self.start)?.text("text")).collect();
        Some(ItemHeader::Reasoning { provider: self.start.span(provider)?, summary, sealed: self.start.span(sealed)? })
    }
}

/// The inside of a JSON string, as it is written.
fn inside(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

fn list(raw: &RawValue) -> Option<Vec<&RawValue>> {
    if raw.get().starts_with('[') { serde_json::from_str(raw.get()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_kernel::content::encode;

    use super::*;

    fn read(item: &Value) -> ItemHeader<String, Value> {
        let raw = RawValue::from_string(item.to_string()).unwrap();
        let content = encode(&Instruction::Item(&raw));
        header(&content).unwrap().read(&content).unwrap()
    }

    fn text(text: &str) -> Part<String, Value> {
        Part::Text(text.to_owned())
    }

    #[test]
    fn messages_are_read_with_their_roles_and_parts() {
        let message = |role, parts| ItemHeader::Message { role, content: Content::Parts(parts) };
        let plain = ItemHeader::Message { role: Role::Developer, content: Content::Text("a \"b\"\n".into()) };
        assert_eq!(read(&json!({ "role": "developer", "content": "a \"b\"\n" })), plain);
        let image = json!({ "type": "input_image", "image_url": "data:x", "detail": "low", "more": 1 });
        let media = Media::Image { url: Some("data:x".into()), detail: Some("low".into()) };
        let shown = Part::Attachment { media, json: image.clone() };
        let parts = json!([{ "type": "input_text", "text": "ä" }, image, "stray"]);
        let stray = Part::Attachment { media: Media::Other, json: json!("stray") };
        assert_eq!(
            read(&json!({ "type": "message", "role": "user", "content": parts })),
            message(Role::User, vec![text("ä"), shown, stray])
        );
        let said = json!([{ "type": "output_text", "text": "a" }, { "type": "refusal", "refusal": "no" }]);
        assert_eq!(read(&json!({ "role": "assistant", "content": said })), message(Role::Assistant, vec![text("a"), text("no")]));
    }

    #[test]
    fn calls_and_outputs_are_read_with_their_ids() {
        let call = |arguments| ItemHeader::Call { id: "c".into(), tool: "f".into(), arguments };
        let function = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"x\":1}" });
        assert_eq!(read(&function), call(Some(Arguments::Json("{\"x\":1}".into()))));
        let custom = json!({ "type": "custom_tool_call", "call_id": "c", "name": "f", "input": "ls" });
        assert_eq!(read(&custom), call(Some(Arguments::Text("input".into(), "ls".into()))));
        let result = |item: &Value, output| ItemHeader::Result { call: "c".into(), output, item: item.clone() };
        for (given, output) in [
            (json!("done"), Output::Texts(vec!["done".into()])),
            (
                json!([{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }]),
                Output::Texts(vec!["a".into(), "b".into()]),
            ),
            (json!([{ "type": "input_image", "file_id": "f" }]), Output::Json(json!([{ "type": "input_image", "file_id": "f" }]))),
            (json!({ "x": 1 }), Output::Json(json!({ "x": 1 }))),
        ] {
            let item = json!({ "type": "function_call_output", "call_id": "c", "output": given });
            assert_eq!(read(&item), result(&item, output), "{item}");
        }
    }

    #[test]
    fn calls_of_servers_and_reasoning_are_read() {
        let mcp = |error: Value| json!({ "type": "mcp_call", "id": "m", "server_label": "s", "name": "f", "arguments": "{}", "output": "o", "error": error });
        let made = |outcome| ItemHeader::ServerCall {
            id: "m".into(),
            server: Some("s".into()),
            tool: Some("f".into()),
            arguments: Some("{}".into()),
            outcome: Some(outcome),
        };
        assert_eq!(read(&mcp(Value::Null)), made(Outcome::Output("o".into())));
        assert_eq!(read(&mcp(json!("broken"))), made(Outcome::Error("broken".into())));
        let summary = json!([{ "type": "summary_text", "text": "hm" }, {}]);
        let reasoning = ItemHeader::Reasoning { provider: "p".into(), summary: vec!["hm".into()], sealed: "x:y".into() };
        assert_eq!(read(&json!({ "type": "reasoning", "summary": summary, "encrypted_content": "p:x:y" })), reasoning);
        for hidden in [json!({ "type": "mcp_call", "id": "m" }), json!({ "type": "mcp_call", "name": "f" }), json!({ "type": "reasoning" })]
        {
            assert_eq!(read(&hidden), ItemHeader::Hidden, "{hidden}");
        }
    }

    #[test]
    fn items_of_unknown_kinds_are_kept_whole_and_own_shapes_have_no_header() {
        for item in [
            json!({ "role": "oracle", "content": "x" }),
            json!({ "role": "user" }),
            json!({ "type": "weather", "degrees": 7 }),
            json!({ "type": "function_call", "name": "f" }),
            json!({ "type": "function_call_output", "call_id": "c" }),
            json!({ "any": ["thing"] }),
        ] {
            assert_eq!(read(&item), ItemHeader::Other(item.clone()), "{item}");
        }
        assert_eq!(header(&encode(&Instruction::Text("hi".into()))), None);
        assert_eq!(header(b"not JSON"), None);
    }

    #[test]
    fn a_header_points_into_escaped_text_too() {
        let content = br#"{"item":{"role":"user","content":[{"type":"input_text","text":"caf\u00e9 \"x\""}]}}"#;
        let ItemHeader::Message { content: read, .. } = header(content).unwrap().read(content).unwrap() else { panic!() };
        assert_eq!(read.texts().unwrap(), ["café \"x\""]);
        // Half a surrogate pair is no text: the prompt then has the content as it is.
        let broken = br#"{"item":{"role":"user","content":"\ud800"}}"#;
        assert_eq!(header(broken).unwrap().read(broken), None);
    }
}
