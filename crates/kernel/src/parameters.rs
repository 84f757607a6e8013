//! What a request asks of its model's answers besides their content. Providers translate it to their own protocols.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Sampling and format parameters. The fields are stored in the order of their names, as the versions before this type did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Makes tokens less likely that are frequent in the text so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// The highest number of tokens of the answer, with those of its reasoning.
    #[serde(rename = "max_output_tokens", default, skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
    /// Pairs that the client wants to find again with its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Makes tokens less likely that are in the text so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Requests with the same key are likely to have the same beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    /// Whether and how much the model thinks before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Thinking>,
    /// Identifies the client's user to the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_identifier: Option<String>,
    /// The provider's class of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// How much chance there is in the choice of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The form of the answer's text.
    #[serde(rename = "text", default, skip_serializing_if = "Option::is_none")]
    pub form: Option<AnswerForm>,
    /// The number of likely tokens that are reported beside each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u64>,
    /// The share of likely tokens among which one is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The older name of `safety_identifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Parameters that only some providers know.
    #[serde(flatten)]
    pub extras: Map<String, Value>,
}

/// Whether and how much a model thinks before it answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thinking {
    /// The effort, such as `low`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// How much of a summary is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What only some providers know.
    #[serde(flatten)]
    pub extras: Map<String, Value>,
}

/// The form of an answer's text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnswerForm {
    /// Whether it is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AnswerFormat>,
    /// How detailed it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// What only some providers know.
    #[serde(flatten)]
    pub extras: Map<String, Value>,
}

/// Whether an answer's text is JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerFormat {
    /// Which JSON is allowed.
    #[serde(rename = "type")]
    pub kind: FormatKind,
    /// The description of the format: for a schema its name, the schema itself, and whether it is enforced.
    #[serde(flatten)]
    pub description: Map<String, Value>,
}

/// Which JSON an answer's text may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatKind {
    /// Any text.
    Text,
    /// Any object.
    JsonObject,
    /// What a JSON Schema allows.
    JsonSchema,
}

impl Parameters {
    /// The format of the answer, if the request names one.
    pub fn format(&self) -> Option<&AnswerFormat> {
        self.form.as_ref()?.format.as_ref()
    }

    /// Whether the answer must be JSON. Half of it is then of no use.
    pub fn wants_json(&self) -> bool {
        self.format().is_some_and(|format| matches!(format.kind, FormatKind::JsonObject | FormatKind::JsonSchema))
    }

    /// The parameters without those for the form of the answer, for another answer of the same run.
    pub fn without_form(&self) -> Self {
        Parameters { form: None, tokens_max: None, top_logprobs: None, ..self.clone() }
    }
}

impl AnswerFormat {
    /// The JSON Schema, if the format has one.
    pub fn schema(&self) -> Option<&Value> {
        self.description.get("schema").filter(|schema| schema.is_object())
    }

    /// Whether the provider should hold the model to the schema.
    pub fn is_strict(&self) -> bool {
        self.description.get("strict") == Some(&Value::Bool(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As earlier versions stored them.
    const STORED: &str = r#"{"frequency_penalty":0.5,"max_output_tokens":99,"metadata":{"a":"b"},"presence_penalty":-1.0,"prompt_cache_key":"k","reasoning":{"effort":"low","summary":"auto","more":1},"safety_identifier":"s","service_tier":"flex","temperature":1.0,"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"},"strict":true},"verbosity":"low"},"top_logprobs":2,"top_p":0.9,"user":"u","later":[1]}"#;

    #[test]
    fn stored_parameters_are_read_and_written_as_they_were() {
        let parameters: Parameters = serde_json::from_str(STORED).unwrap();
        assert_eq!(serde_json::to_string(&parameters).unwrap(), STORED);
        assert_eq!((parameters.tokens_max, parameters.temperature, parameters.extras.len()), (Some(99), Some(1.0), 1));
        let format = parameters.format().unwrap();
        assert!(parameters.wants_json() && format.is_strict() && format.schema().is_some());
        let nulls: Parameters = serde_json::from_str(r#"{"reasoning":{"effort":null},"text":{"format":null,"verbosity":null}}"#).unwrap();
        assert_eq!((nulls.wants_json(), nulls.reasoning.unwrap().effort), (false, None));
    }

    #[test]
    fn another_answer_has_another_form() {
        let parameters: Parameters = serde_json::from_str(STORED).unwrap();
        let other = parameters.without_form();
        assert_eq!((other.format(), other.tokens_max, other.top_logprobs, other.temperature), (None, None, None, Some(1.0)));
    }
}
