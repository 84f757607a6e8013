//! `ask_person`: the built-in tool with which a model asks a person. The answer is the result of the call.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::manifest::{AfterExecution, EffectClass, Route, ToolSpec};

/// The name of the tool.
pub const ASK_PERSON: &str = "ask_person";

/// What the manifest says instead of a deadline: more than any run lasts.
const NO_DEADLINE_MS: u64 = 1 << 53;

/// The arguments of a call.
#[derive(Clone, Debug, Deserialize)]
pub struct Question {
    /// What the model asks.
    pub question: String,
    /// A JSON Schema of the answer. Without one any answer is taken.
    #[serde(default)]
    pub schema: Option<Value>,
}

/// The tool as a run's manifest has it. Its calls have no deadline: a person answers when they can.
pub fn ask_person_tool() -> ToolSpec {
    ToolSpec {
        name: ASK_PERSON.into(),
        description:
            "Asks a person and waits for the answer. Use it if you need a decision or a fact that only a person has. `schema` is an \
                      optional JSON Schema that the answer must fit."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "question": { "type": "string" }, "schema": { "type": "object" } },
            "required": ["question"],
            "additionalProperties": false,
        }),
        route: Route::Person,
        effect: EffectClass::Read,
        after_execution: AfterExecution::Suspend,
        deadline_ms: NO_DEADLINE_MS,
        retry: None,
        strict: None,
        remote: None,
        untrusted: false,
        agent: None,
    }
}

/// What is wrong with the arguments of a call, for the model to correct.
pub(crate) fn mistake(arguments: &str) -> Option<String> {
    match serde_json::from_str::<Question>(arguments) {
        Ok(asked) if asked.question.trim().is_empty() => Some("`question` is empty; ask something".to_owned()),
        Ok(Question { schema: Some(schema), .. }) if !schema.is_object() => {
            Some("`schema` is not an object; leave it out, or send a JSON Schema".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(format!("the arguments are no question ({error}); call again with `question`")),
    }
}
