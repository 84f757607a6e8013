//! What a run may do, pinned when it is accepted: resuming never widens rights.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{budget::Budgets, ids::ToolName};

/// Everything a run is allowed and told, stored once per distinct content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The shape of this record, read upward by later versions.
    pub version: u16,
    /// Which policy decides the laps.
    pub policy: PolicyName,
    /// The model's configured name.
    pub model: String,
    /// What the model is told before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools the model may call. A name that is not here is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// What the run may use up.
    pub budgets: Budgets,
    /// What the deliverable must contain, if the request asked for fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub result_fields: Vec<ResultField>,
}

impl Manifest {
    /// The version this code writes.
    pub const VERSION: u16 = 1;

    /// The tool of that name, if the run may call it.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }
}

/// The policies that ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Infer, run the calls, feed the results back, until the model answers.
    Respond,
}

/// One tool as the run sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: ToolName,
    /// What the model reads about it.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Who runs it.
    pub route: Route,
    /// What a repeated start would do.
    pub effect: EffectClass,
    /// What the run does once the result is there, unless the result says otherwise.
    pub after_execution: AfterExecution,
    /// How long a result may take.
    pub deadline_ms: u64,
}

/// Who runs a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// An executor of this process.
    InProcess,
    /// A service of the user's, which claims the call and reports the result.
    External,
    /// The client: the call ends the run.
    Client,
}

/// What a second start of the same call would do; decides what a crash in the middle means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Nothing changes outside: cut by a crash it simply starts again.
    Read,
    /// The same key has the same effect once: it starts again with its key.
    Idempotent,
    /// It must not start twice: cut by a crash it waits for a person.
    Write,
}

/// What the run does after a call's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterExecution {
    /// The result goes back to the model.
    #[default]
    Suspend,
    /// The result is the run's end.
    Terminate,
}

impl AfterExecution {
    /// Whether it is the usual way, which records leave out.
    pub(crate) fn is_suspend(&self) -> bool {
        *self == AfterExecution::Suspend
    }
}

/// One field the deliverable should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultField {
    /// Its name.
    pub name: String,
    /// What the model reads about it.
    #[serde(default)]
    pub description: String,
    /// Whether the deliverable is refused without it.
    #[serde(default)]
    pub required: bool,
}
