//! Compares a request with earlier requests of the same turn.
//!
//! A client that lost its socket does not repeat its request unchanged. Where the request continued a response that only the socket
//! remembered, the client sends the whole conversation instead. So requests are compared by their whole conversation, whichever part of it
//! is in the request itself.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::items::place_of;

/// The hash of a conversation up to some item.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HistoryHash([u8; 32]);

impl HistoryHash {
    /// The hash of the conversation with one more item.
    fn with_item(self, item: &Value) -> Self {
        let hash = Sha256::new().chain_update(self.0).chain_update(compared_part(item).to_string()).finalize();
        HistoryHash(hash.into())
    }

    /// The hash of the conversation with the output of a response, as clients like Codex keep it: without the calls that the server made.
    pub fn with_output(self, output: &[Value]) -> Self {
        let is_kept = |item: &&Value| !item["type"].as_str().is_some_and(|kind| kind.starts_with("mcp_"));
        output.iter().filter(is_kept).fold(self, HistoryHash::with_item)
    }
}

/// The part of an item that is compared. A client may leave out fields of the server's items that it does not know.
fn compared_part(item: &Value) -> Value {
    if item["id"].as_str().and_then(place_of).is_none() {
        return item.clone();
    }
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&Value> = parts.iter().map(|part| &part["text"]).collect();
    json!([item["type"], item["id"], item["call_id"], item["name"], item["namespace"], item["arguments"], item["input"], texts])
}

/// The parts of a request that identify it.
pub(super) struct RequestIdentity {
    /// The request without its input, as JSON with sorted keys.
    fields: String,
    /// The hash of the conversation before the request's input.
    before: HistoryHash,
    input: Vec<Value>,
}

impl RequestIdentity {
    /// Reads a request. `before` is the hash of the conversation that it continues, if the socket remembers it.
    pub fn read(mut fields: Map<String, Value>, before: Option<HistoryHash>) -> Self {
        // These fields do not change what is asked for, and the metadata may have a timestamp.
        for aside in ["client_metadata", "type", "generate"] {
            fields.remove(aside);
        }
        if before.is_some() {
            fields.remove("previous_response_id");
        }
        let input = match fields.remove("input") {
            Some(Value::Array(items)) => items,
            Some(other) => vec![other],
            None => Vec::new(),
        };
        // `serde_json`'s maps keep their keys sorted, so the order of keys in the request makes no difference.
        RequestIdentity { fields: Value::Object(fields).to_string(), before: before.unwrap_or_default(), input }
    }

    /// The hash of the conversation up to the end of the input, without its last `without_last` items. `None` if the input has fewer.
    pub fn history(&self, without_last: usize) -> Option<HistoryHash> {
        let count = self.input.len().checked_sub(without_last)?;
        Some(self.input[..count].iter().fold(self.before, HistoryHash::with_item))
    }

    /// The hash that identifies the request among all requests of all turns, without the last `without_last` items of its input.
    pub fn fingerprint(&self, turn: &str, without_last: usize) -> Option<String> {
        let hash = Sha256::new().chain_update(turn).chain_update(b"\0").chain_update(&self.fields).chain_update(b"\0");
        let hash = hash.chain_update(self.history(without_last)?.0).finalize();
        Some(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(body: &Value, before: Option<HistoryHash>) -> RequestIdentity {
        RequestIdentity::read(body.as_object().expect("an object").clone(), before)
    }

    fn hash(turn: &str, body: &str) -> Option<String> {
        identity(&serde_json::from_str(body).expect("JSON"), None).fingerprint(turn, 0)
    }

    #[test]
    fn the_order_of_keys_makes_no_difference_and_every_value_does() {
        let same = hash("t", r#"{ "a": 1, "input": [{ "c": 2, "d": 3 }] }"#);
        assert_eq!(hash("t", r#"{"input":[{"d":3,"c":2}],"a":1}"#), same);
        assert_eq!(hash("t", r#"{"input":[{"d":3,"c":2}],"a":1,"client_metadata":{"now":7}}"#), same);
        for (turn, body) in [
            ("u", r#"{"input":[{"d":3,"c":2}],"a":1}"#),
            ("t", r#"{"input":[{"d":3,"c":2}],"a":2}"#),
            ("t", r#"{"input":[{"d":3,"c":3}],"a":1}"#),
            ("t", r#"{"input":[{"d":3,"c":2},{}],"a":1}"#),
            ("t", r#"{"input":[{"d":3,"c":2}],"a":1,"previous_response_id":"x"}"#),
        ] {
            assert_ne!(hash(turn, body), same, "{turn} {body}");
        }
    }

    #[test]
    fn a_conversation_has_the_same_hash_in_parts_and_as_a_whole() {
        let run = "01a1e3ee4fa7756d959695805b7be7e4";
        let (hi, more) = (json!({ "role": "user", "content": "hi" }), json!({ "role": "user", "content": "more" }));
        let sent = json!({ "type": "message", "id": format!("msg_{run}_1"), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "ho", "annotations": [] }] });
        let repeated = json!({ "type": "message", "id": format!("msg_{run}_1"), "role": "assistant",
            "content": [{ "type": "output_text", "text": "ho" }] });
        let call = json!({ "type": "mcp_call", "id": format!("mcp_{run}_0"), "name": "f", "arguments": "{}" });
        let first = identity(&json!({ "input": [hi] }), None);
        let before = first.history(0).expect("it has no item too many").with_output(&[call, sent]);
        let next = identity(&json!({ "input": [more], "previous_response_id": "x" }), Some(before));
        let whole = identity(&json!({ "input": [hi, repeated, more] }), None);
        assert_eq!(next.fingerprint("t", 0), whole.fingerprint("t", 0));
        assert_eq!(whole.fingerprint("t", 2), first.fingerprint("t", 0), "without what came later it is the first");
        assert_eq!(whole.fingerprint("t", 4), None);
        let mut altered = repeated.clone();
        altered["content"][0]["text"] = "no".into();
        assert_ne!(identity(&json!({ "input": [hi, altered, more] }), None).fingerprint("t", 0), whole.fingerprint("t", 0));
    }
}
