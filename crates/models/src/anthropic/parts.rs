//! Parts of messages in the form of this protocol: texts, images, documents.

use serde_json::{Value, json};

use crate::item::part_text;

/// Converts content to blocks. Empty texts are left out, because servers refuse them.
pub(super) fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => text_block(text).into_iter().collect(),
        Value::Array(parts) => parts.iter().filter_map(block).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// A text block, or `None` for an empty text.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Converts a part. A part of a kind that the protocol lacks becomes a text that names it, so that the model at least knows of it.
fn block(part: &Value) -> Option<Value> {
    if let Some(text) = part_text(part) {
        return text_block(text);
    }
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let known = match text("type") {
        Some("input_image") => text("image_url").and_then(image),
        Some("input_file") => document(part),
        Some("refusal") => text("refusal").and_then(text_block),
        Some(_) | None => None,
    };
    known.or_else(|| text_block(&part.to_string()))
}

fn image(url: &str) -> Option<Value> {
    let source = match Data::read(url) {
        Some(Data { kind, base64 }) => json!({ "type": "base64", "media_type": kind, "data": base64 }),
        None => by_url(url)?,
    };
    Some(json!({ "type": "image", "source": source }))
}

fn document(part: &Value) -> Option<Value> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let source = match (text("file_data").and_then(Data::read), text("file_url")) {
        (Some(Data { kind, base64 }), _) => json!({ "type": "base64", "media_type": kind, "data": base64 }),
        (None, Some(url)) => by_url(url)?,
        (None, None) => return None,
    };
    let mut document = json!({ "type": "document", "source": source });
    if let Some(name) = text("filename").filter(|name| !name.is_empty()) {
        document["title"] = name.into();
    }
    Some(document)
}

fn by_url(url: &str) -> Option<Value> {
    let is_web = url.starts_with("http://") || url.starts_with("https://");
    is_web.then(|| json!({ "type": "url", "url": url }))
}

/// The content of a data URL.
struct Data<'a> {
    kind: &'a str,
    base64: &'a str,
}

impl<'a> Data<'a> {
    fn read(url: &'a str) -> Option<Self> {
        let (head, base64) = url.strip_prefix("data:")?.split_once(',')?;
        let kind = head.strip_suffix(";base64")?;
        Some(Data { kind: kind.split(';').next().unwrap_or(kind), base64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_files_are_translated() {
        let parts = json!([
            {"type": "input_text", "text": "see"},
            {"type": "input_text", "text": " "},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            {"type": "input_image", "image_url": "https://example.org/a.png"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
            {"type": "input_file", "file_url": "https://example.org/a.pdf"},
            {"type": "input_file", "file_id": "file-1"},
        ]);
        let as_text = json!({"type": "input_file", "file_id": "file-1"}).to_string();
        let expected = json!([
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
            {"type": "text", "text": as_text},
        ]);
        assert_eq!(Value::Array(blocks(&parts)), expected);
        assert_eq!(blocks(&json!("")), Vec::<Value>::new());
    }
}
