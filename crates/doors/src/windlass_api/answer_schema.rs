//! Whether an answer fits the JSON Schema of its question.

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::{error::ApiError, spelling::shortened};

/// Refuses an answer that does not fit the schema, with the place in the answer. A model wrote the schema: one that is invalid, or that
/// refers to another document, demands nothing.
pub(super) fn check(schema: &Value, answer: &[u8]) -> Result<(), ApiError> {
    // Patterns without backtracking: their time is linear in the answer.
    let Ok(validator) = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema) else { return Ok(()) };
    let answer: Value = serde_json::from_slice(answer).map_err(|_| ApiError::bad("bad_field", "`answer` is not valid JSON text"))?;
    let Err(mistake) = validator.validate(&answer) else { return Ok(()) };
    let place = match mistake.instance_path().to_string() {
        path if path.is_empty() => "the answer".to_owned(),
        path => format!("the answer at {}", shortened(&path)),
    };
    let message = format!("{place} does not fit the schema of the question: {}", shortened(&mistake.to_string()));
    let hint = "the interrupt shows the schema in its `arguments`".to_owned();
    Err(ApiError::bad("answer_does_not_fit", message).hint(Some(hint)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_must_fit_the_schema_and_the_error_names_the_place() {
        let schema = json!({ "type": "object", "properties": { "sum": { "type": "integer", "maximum": 9 } }, "required": ["sum"] });
        assert!(check(&schema, br#"{"sum": 5}"#).is_ok());
        for (answer, place) in [(r#"{"sum": 10}"#, "the answer at /sum"), ("{}", "the answer does"), ("5", "the answer does")] {
            let error = check(&schema, answer.as_bytes()).unwrap_err();
            assert!(error.message().starts_with(place), "{answer}: {}", error.message());
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_demands_nothing() {
        for schema in [json!({ "type": "nothing" }), json!({ "$ref": "https://example.com/x" }), json!({ "pattern": "(" })] {
            assert!(check(&schema, b"5").is_ok(), "{schema}");
        }
    }
}
