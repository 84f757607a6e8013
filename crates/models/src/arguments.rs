//! Arguments of calls that a model made, in a form that a server can read when they are sent back to it.
//!
//! Some servers parse them again, and would refuse the conversation for good over one slip of the model, so that a text which
//! is not JSON goes into an object.

use serde_json::{Value, json, value::RawValue};

/// Arguments as a text that is JSON.
pub(crate) fn as_text(arguments: &str) -> String {
    match serde_json::from_str::<&RawValue>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => json!({ "not_json": arguments }).to_string(),
    }
}

/// Arguments as an object.
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
