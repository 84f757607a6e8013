//! Parts of messages in the form of this protocol: texts, images, documents.

use serde_json::{Value, json};
use windlass_kernel::header::{Content, Media, Part};

/// Converts content to blocks. Empty texts are left out, because servers refuse them.
pub(super) fn blocks(content: &Content<String, Value>) -> Vec<Value> {
    match content {
        Content::Text(text) => text_block(text).into_iter().collect(),
        Content::Parts(parts) => parts.iter().filter_map(block).collect(),
    }
}

/// A text block, or `None` for an empty text.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Converts a part. A part of a kind that the protocol lacks becomes a text that names it, so that the model at least knows of it.
fn block(part: &Part<String, Value>) -> Option<Value> {
    let (media, json) = match part {
        Part::Text(text) => return text_block(text),
        Part::Attachment { media, json } => (media, json),
    };
    let known = match media {
        Media::Image { url, .. } => url.as_deref().and_then(image),
        Media::File { data, url, name, .. } => document(data.as_deref(), url.as_deref(), name.as_deref()),
        Media::Refusal(text) => text_block(text),
        Media::Other => None,
    };
    known.or_else(|| text_block(&json.to_string()))
}

fn image(url: &str) -> Option<Value> {
    let source = match Data::read(url) {
        Some(Data { kind, base64 }) => json!({ "type": "base64", "media_type": kind, "data": base64 }),
        None => by_url(url)?,
    };
    Some(json!({ "type": "image", "source": source }))
}

fn document(data: Option<&str>, url: Option<&str>, name: Option<&str>) -> Option<Value> {
    let source = match (data.and_then(Data::read), url) {
        (Some(Data { kind, base64 }), _) => json!({ "type": "base64", "media_type": kind, "data": base64 }),
        (None, Some(url)) => by_url(url)?,
        (None, None) => return None,
    };
    let mut document = json!({ "type": "document", "source": source });
    if let Some(name) = name.filter(|name| !name.is_empty()) {
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
    use super::{Content, Media, Part, Value, blocks, json};
    use crate::testing::{file, image};

    #[test]
    fn images_and_files_are_translated() {
        let of = |json: Value| file(&json);
        let parts = vec![
            Part::Text("see".into()),
            Part::Text(" ".into()),
            image("data:image/png;base64,aGk=", None, &Value::Null),
            image("https://example.org/a.png", None, &Value::Null),
            of(json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="})),
            of(json!({"type": "input_file", "file_url": "https://example.org/a.pdf"})),
            of(json!({"type": "input_file", "file_id": "file-1"})),
            Part::Attachment { media: Media::Refusal("no".into()), json: Value::Null },
        ];
        let as_text = json!({"type": "input_file", "file_id": "file-1"}).to_string();
        let expected = json!([
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
            {"type": "text", "text": as_text},
            {"type": "text", "text": "no"},
        ]);
        assert_eq!(Value::Array(blocks(&Content::Parts(parts))), expected);
        assert_eq!(blocks(&Content::Text(String::new())), Vec::<Value>::new());
    }
}
