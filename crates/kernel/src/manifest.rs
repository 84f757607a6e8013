//! What a run may do, pinned when it is accepted: resuming never widens rights.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{budget::Budgets, ids::ToolName};

/// Everything a run is allowed and told, stored once per distinct content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The shape of this record, read upward by later versions.
    pub version: u16,
    /// Which policy decides the iterations.
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
    /// Whether the model may call tools, must, or must not.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub choice: ToolChoice,
    /// The only tools that are run; the model still sees the others. Empty is no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<ToolName>,
    /// Whether an iteration makes one call at the most.
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_call: bool,
    /// Calls of ours beyond so many are refused, and the model is told; the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u32>,
    /// Servers whose tools the run may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ToolServer>,
    /// How the model should answer: an object in the words of the Responses protocol, which a provider puts into its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// The tools as the request declared them, for whoever has to repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<Value>,
    /// Whether the model's words are announced while they come.
    #[serde(default, skip_serializing_if = "is_false")]
    pub announced: bool,
    /// Whether what the model reads is summed up.
    #[serde(default, skip_serializing_if = "Compaction::is_off")]
    pub compaction: Compaction,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Manifest {
    /// The version this code writes.
    pub const VERSION: u16 = 1;

    /// A manifest that allows nothing but to ask a model, for so many iterations.
    pub fn plain(model: impl Into<String>, budgets: Budgets) -> Self {
        Manifest {
            version: Manifest::VERSION,
            policy: PolicyName::Respond,
            model: model.into(),
            instructions: None,
            tools: Vec::new(),
            budgets,
            result_fields: Vec::new(),
            choice: ToolChoice::Auto,
            allowed: Vec::new(),
            one_call: false,
            calls_max: None,
            servers: Vec::new(),
            parameters: None,
            declared: Vec::new(),
            announced: false,
            compaction: Compaction::Off,
        }
    }

    /// Whether the engine itself gets any of the calls done.
    pub fn runs_tools(&self) -> bool {
        self.choice != ToolChoice::None && self.tools.iter().any(|tool| tool.route != Route::Client)
    }

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
    /// Whether the model's provider should hold it to its schema, if the request says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Where it is found, if a server offers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// A tool of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The server's label.
    pub server: String,
    /// What the server calls the tool.
    pub name: String,
}

/// A server that offers tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServer {
    /// What the run calls it.
    pub label: String,
    /// Where it comes from.
    pub source: ServerSource,
}

/// Where a tool server comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSource {
    /// The configuration has it, under its label.
    Configured,
    /// The request brought it along.
    Declared {
        /// Its address without a query, which may be a credential.
        url: String,
        /// What it is shown, sealed: headers, credentials, and the whole address if it has a query.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
    },
}

/// Whether a run sums up what its model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// No: too much to read ends it.
    #[default]
    Off,
    /// When it is too much for the model: then the run goes on from the summary.
    Auto,
    /// At once: the summary is what the run is for.
    Only,
}

impl Compaction {
    pub(crate) fn is_off(&self) -> bool {
        *self == Compaction::Off
    }
}

/// Whether the model may call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must not; if it does all the same, nothing is run.
    None,
    /// It must call some tool.
    Required,
    /// It must call this one.
    Tool(ToolName),
}

impl ToolChoice {
    pub(crate) fn is_auto(&self) -> bool {
        *self == ToolChoice::Auto
    }
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
