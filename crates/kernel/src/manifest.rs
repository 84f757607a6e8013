//! The manifest: what a run may do. It is recorded when the run is accepted, and resuming the run never widens it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::Budgets,
    ids::{AgentName, ToolName},
    interrupt::Gate,
    parameters::Parameters,
    run::is_false,
};

/// What a run may do, and what its model is given. Stored once per distinct content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this record's shape. Later versions read earlier ones.
    pub version: u16,
    /// The policy that decides what an iteration does.
    pub policy: PolicyName,
    /// The model's configured name.
    pub model: String,
    /// The instructions that the model reads before everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools that the model may call. A call of any other name is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The limits on what the run may use.
    pub budgets: Budgets,
    /// What the deliverable must contain, if the request asked for fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub result_fields: Vec<ResultField>,
    /// Whether the model may call tools, must, or must not.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub choice: ToolChoice,
    /// The only tools whose calls are made; the model still sees the others. Empty if there is no such limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<ToolName>,
    /// Whether an iteration makes at most one call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_call: bool,
    /// The highest number of calls that the engine makes or hands to tool services. Further calls get an error result, and the run
    /// continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u32>,
    /// Tool servers whose tools the run may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ToolServer>,
    /// Sampling and format parameters for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Parameters>,
    /// The tools as the request declared them, so that an answer can repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<Value>,
    /// Whether the model's text is streamed to readers while it arrives.
    #[serde(default, skip_serializing_if = "is_false")]
    pub announced: bool,
    /// Whether a prompt that is too long is replaced by a summary.
    #[serde(default, skip_serializing_if = "Compaction::is_off")]
    pub compaction: Compaction,
    /// Whether a run that would exceed a budget waits for a person instead of ending.
    #[serde(default, skip_serializing_if = "is_false")]
    pub budgets_park: bool,
    /// The rules by which calls wait for a person's approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// The tools whose calls the client wants to approve. Such a call ends the run, and the next run makes it if the client approved it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_approves: Vec<ToolName>,
    /// How many levels of child runs there may be below the run. A run without any has no agents among its tools.
    #[serde(default, skip_serializing_if = "is_leaf")]
    pub levels: u32,
}

fn is_leaf(levels: &u32) -> bool {
    *levels == 0
}

impl Manifest {
    /// The version that this code writes.
    pub const VERSION: u16 = 1;

    /// A manifest without tools and other settings: the model answers within `budgets`.
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
            budgets_park: false,
            gates: Vec::new(),
            client_approves: Vec::new(),
            levels: 0,
        }
    }

    /// Removes what a child of `parent` must not do more than its parent may: calls outside the parent's allow-list, and calls that a rule
    /// of the parent holds. The rules of the parent come first, so that none of the child's own is applied instead.
    pub fn narrow(&mut self, parent: &Manifest) {
        let own = std::mem::take(&mut self.gates);
        self.gates = parent.gates.clone();
        self.gates.extend(own.into_iter().filter(|gate| !parent.gates.contains(gate)));
        self.levels = self.levels.min(parent.levels.saturating_sub(1));
        // The client of the parent is not there to be asked by a child.
        let asked: Vec<ToolName> =
            self.tools.iter().filter(|tool| self.is_asked_by(parent, &tool.name)).map(|tool| tool.name.clone()).collect();
        self.tools.retain(|tool| !asked.contains(&tool.name));
        let is_allowed = |name: &ToolName| parent.allowed.is_empty() || parent.allowed.contains(name);
        self.tools.retain(|tool| is_allowed(&tool.name));
        if self.levels == 0 {
            self.tools.retain(|tool| tool.route != Route::Child);
        }
        if !parent.allowed.is_empty() {
            let listed = |name: &ToolName| self.allowed.is_empty() || self.allowed.contains(name);
            self.allowed = parent.allowed.iter().filter(|name| listed(name)).cloned().collect();
            // An empty list would allow everything.
            if self.allowed.is_empty() {
                self.tools.clear();
            }
        }
    }

    /// Whether the engine makes any of the calls itself or hands them to tool services.
    pub fn runs_tools(&self) -> bool {
        self.choice != ToolChoice::None && self.tools.iter().any(|tool| tool.route != Route::Client)
    }

    /// Whether the client wants to approve the calls of this tool.
    pub fn needs_client_approval(&self, name: &str) -> bool {
        self.client_approves.iter().any(|tool| tool.as_str() == name)
    }

    /// Whether the client of another run wants to approve calls of this tool, under whatever name that run has it.
    fn is_asked_by(&self, other: &Manifest, name: &ToolName) -> bool {
        let address = self.address(name.as_str());
        other.client_approves.iter().any(|asked| asked == name || (address.is_some() && other.address(asked.as_str()) == address))
    }

    /// Where calls of the tool go; `None` if no tool server has the tool.
    pub fn address(&self, name: &str) -> Option<ToolAddress> {
        let remote = self.tool(name)?.remote.as_ref()?;
        let server = self.servers.iter().find(|server| server.label == remote.server);
        let url = server.and_then(|server| match &server.source {
            ServerSource::Declared { url, .. } => Some(url.clone()),
            ServerSource::Configured => None,
        });
        Some(ToolAddress { remote: remote.clone(), url })
    }

    /// The tool of that name, if the run may call it.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }
}

/// The policies that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Asks the model, makes its calls, gives it the results, and repeats that until the model answers.
    Respond,
}

/// A tool as the run sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name by which the model calls it.
    pub name: ToolName,
    /// The description that the model reads.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Who executes the calls.
    pub route: Route,
    /// What repeating a call would do.
    pub effect: EffectClass,
    /// What follows a result, unless the result itself asks for something else.
    pub after_execution: AfterExecution,
    /// How long a call may wait for its result, in milliseconds.
    pub deadline_ms: u64,
    /// Whether a call is repeated whose tool reports a failure. `None` if it never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<CallRetries>,
    /// Whether the provider should hold the model to the schema. `None` if the request does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// The tool server that has the tool, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Whether results of the tool may carry instructions of third parties to the model, so that they taint the run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub untrusted: bool,
    /// The agent whose run a call starts, if it starts one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// How often a call is repeated whose tool reports a failure, and after which pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRetries {
    /// The number of repetitions after the first try.
    pub max: u32,
    /// The pause before the first repetition, in milliseconds. It doubles with each one.
    pub backoff_ms: u64,
}

/// The longest pause before a repetition of a call.
const BACKOFF_MS_MAX: u64 = 3_600_000;

impl CallRetries {
    /// The pause before the repetition with this number, from 1.
    pub fn pause_ms(&self, retry: u32) -> u64 {
        self.backoff_ms.saturating_mul(1 << retry.saturating_sub(1).min(30)).min(BACKOFF_MS_MAX)
    }
}

/// The address of a tool on a tool server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The label of the server.
    pub server: String,
    /// The name of the tool on that server.
    pub name: String,
}

/// Where calls of a tool go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAddress {
    /// The server and the name of the tool there.
    #[serde(flatten)]
    pub remote: Remote,
    /// The address of the server without its query, if it comes from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A server that offers tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServer {
    /// The label of the server in this run.
    pub label: String,
    /// Where the server's address and credentials come from.
    pub source: ServerSource,
}

/// Where the address and the credentials of a tool server come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSource {
    /// From the configuration, under the label.
    Configured,
    /// From the request.
    Declared {
        /// The address without its query, because a query may be a credential.
        url: String,
        /// Headers, credentials, and the whole address if it has a query, sealed for the tenant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<String>,
    },
}

/// Whether a run replaces the beginning of what its model reads by a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Never: a prompt that is too long ends the run.
    #[default]
    Off,
    /// When a prompt is too long for the model. The run continues from the summary.
    Auto,
    /// At once. The summary is the run's deliverable.
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
    /// The model decides.
    #[default]
    Auto,
    /// It must not. Calls that it requests all the same are not made.
    None,
    /// It must call at least one tool.
    Required,
    /// It must call this tool.
    Tool(ToolName),
}

impl ToolChoice {
    pub(crate) fn is_auto(&self) -> bool {
        *self == ToolChoice::Auto
    }
}

/// Who executes the calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// An executor in the server process.
    InProcess,
    /// A tool service of the operator, which claims the call and reports the result.
    External,
    /// The client. Such a call ends the run.
    Client,
    /// A person. The call is a question, and its answer is the result.
    Person,
    /// A run of another agent, whose deliverable is the result.
    Child,
}

/// What a second start of the same call would do. It decides what happens to a call whose owner crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing outside. A call that a crash interrupted starts again.
    Read,
    /// A repetition with the same key has no further effect. A call that a crash interrupted starts again with its key.
    Idempotent,
    /// It may act twice. A call that a crash interrupted is parked until a person decides.
    Write,
}

/// What follows the result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterExecution {
    /// The result goes back to the model.
    #[default]
    Suspend,
    /// The result ends the run.
    Terminate,
}

impl AfterExecution {
    /// Whether it is the default, which stored records leave out.
    pub(crate) fn is_suspend(&self) -> bool {
        *self == AfterExecution::Suspend
    }
}

/// A field that the deliverable should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultField {
    /// The name of the field.
    pub name: String,
    /// The description that the model reads.
    #[serde(default)]
    pub description: String,
    /// Whether a deliverable without this field is refused.
    #[serde(default)]
    pub required: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, server: Option<&str>) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: Value::Null,
            route: Route::InProcess,
            effect: EffectClass::Write,
            after_execution: AfterExecution::Suspend,
            deadline_ms: 1,
            strict: None,
            remote: server.map(|server| Remote { server: server.into(), name: "pay".into() }),
            untrusted: false,
            agent: None,
            retry: None,
        }
    }

    #[test]
    fn a_child_has_no_tool_whose_calls_the_client_of_its_parent_approves() {
        let plain =
            || Manifest::plain("m", Budgets { iterations: 1, calls: None, tokens: None, wall_ms: None, children: None, cost: None });
        let parent = Manifest { tools: vec![tool("pay", Some("bank"))], client_approves: vec!["pay".into()], ..plain() };
        let tools = vec![tool("pay", None), tool("bank__pay", Some("bank")), tool("look", None), tool("other__pay", Some("other"))];
        let mut child = Manifest { tools, ..plain() };
        child.narrow(&parent);
        assert_eq!(child.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["look", "other__pay"]);
    }
}
