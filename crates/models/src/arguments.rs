//! Arguments of calls, in a form that servers can parse when the conversation is sent back to them.
//!
//! Some servers parse the arguments and would refuse the conversation for good if a model once wrote invalid JSON. Text that is not JSON is
//! therefore wrapped in an object.

use serde_json::{Value, json, value::RawValue};

/// The arguments as text that is valid JSON.
pub(crate) fn as_text(arguments: &str) -> String {
    match serde_json::from_str::<&RawValue>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => json!({ "not_json": arguments }).to_string(),
    }
}

/// The arguments as a JSON object.
pub(crate) fn as_object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        Ok(other) => json!({ "value": other }),
        Err(_) if arguments.trim().is_empty() => json!({}),
        Err(_) => json!({ "not_json": arguments }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_model_wrote_can_be_sent_back() {
        assert_eq!(as_text(r#"{"x": 1}"#), r#"{"x": 1}"#);
        assert_eq!(as_text("{broken"), r#"{"not_json":"{broken"}"#);
        assert_eq!(as_object(r#"{"x": 1}"#), json!({"x": 1}));
        assert_eq!(as_object("[1]"), json!({"value": [1]}));
        assert_eq!(as_object(" "), json!({}));
        assert_eq!(as_object("{broken"), json!({"not_json": "{broken"}));
    }
}
