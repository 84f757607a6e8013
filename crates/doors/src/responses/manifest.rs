//! Pins the manifest of a response's run from the request and the configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use windlass_engine::{AgentSpec, EngineError, levels};
use windlass_kernel::{
    ASK_PERSON, AfterExecution, AgentName, Budgets, Compaction, EffectClass, Manifest, Route, ServerSource, ToolChoice, ToolName,
    ToolServer, ToolSpec, ask_person_tool, parameters::Parameters,
};
use windlass_ports::{DeclaredServer, OfferedTool, ServerError};

use super::{
    approval::{self, DefaultApproval},
    create::agent_of,
    error::WireError,
    request::{Allowed, Choice, ClientName, Create, Function, Mcp, Tool, ToolFilter},
};
use crate::{
    DoorState,
    auth::{Caller, Scope},
    limits::TOOLS_MAX,
};

/// `Retry-After` of a request that was refused because too many tool servers are in use.
const BUSY_RETRY_S: u32 = 5;

/// The manifest of a request, and the agent that it is for.
pub(super) struct Pinned {
    pub manifest: Manifest,
    pub agent: Option<AgentName>,
    /// Whether the agent's responses run one after the other.
    pub serial: bool,
}

/// Pins the manifest of a request. Contacts the tool servers that it names and asks them for their tools.
pub(super) async fn pin(state: &DoorState, caller: &Caller, create: &Create) -> Result<Pinned, WireError> {
    let agent = create.model.as_deref().and_then(agent_of);
    let settings = state.engine.settings();
    let spec = match &agent {
        None => None,
        Some(name) => {
            caller.needs_agent(name)?;
            Some(state.engine.roster().agent(caller.tenant(), name).ok_or_else(|| unknown_model(create))?)
        }
    };
    let model = match (&spec, &create.model) {
        (Some(spec), _) => spec.model.clone(),
        (None, model) => model.clone(),
    };
    let model = model.or_else(|| state.engine.default_model(caller.tenant()).map(str::to_owned)).ok_or_else(no_model)?;
    if !state.engine.has_model(caller.tenant(), &model) {
        return Err(unknown_model(create));
    }
    let mut tools = Tools::new(settings.call_deadline_ms, create.client_names.clone());
    let (mut choice, mut allowed) = (ToolChoice::Auto, Vec::new());
    // A run that only makes a summary has no tools, even if the conversation had some.
    if !create.compacts {
        tools.add_all(state, caller, create, spec).await?;
        choice = tools.choice(&create.choice)?;
        allowed = tools.allowed(&create.allowed);
    }
    let base = spec.map_or(
        Budgets { iterations: settings.iterations_max, calls: None, tokens: None, wall_ms: None, children: None, cost: None },
        |spec| spec.budgets,
    );
    let turns_max = spec.map_or(settings.iterations_ceiling, |spec| spec.budgets.iterations);
    let budgets = Budgets {
        iterations: create.max_turns.map_or(base.iterations, |turns| turns.min(turns_max)),
        calls: base.calls,
        tokens: smaller(base.tokens, create.budget_tokens),
        wall_ms: smaller(base.wall_ms, create.budget_wall_ms),
        children: base.children,
        cost: state.engine.roster().cost_budget(spec.and_then(|spec| spec.cost_limit), &model).map_err(unpriced)?,
    };
    let levels = levels(spec, &mut tools.specs);
    let instructions = match (spec.and_then(|spec| spec.instructions.clone()), create.instructions.clone()) {
        (Some(agents), Some(requests)) => Some(format!("{agents}\n\n{requests}")),
        (agents, requests) => agents.or(requests),
    };
    let manifest = Manifest {
        instructions,
        tools: tools.specs,
        choice,
        allowed,
        one_call: !create.parallel_tool_calls,
        calls_max: create.max_tool_calls,
        servers: tools.servers,
        parameters: parameters(create)?,
        declared: create.echo.tools.clone(),
        announced: create.stream || create.background,
        compaction: compaction(create),
        levels,
        budgets_park: spec.is_some_and(|spec| spec.budgets_park),
        client_approves: tools.client_approves,
        ..Manifest::plain(model, budgets)
    };
    Ok(Pinned { manifest, serial: spec.is_some_and(|spec| spec.serial), agent })
}

/// Refuses server-side tools that the agent does not have and that the token may not add. This comes before any tool server is contacted.
/// Functions are not checked: the client runs them itself.
fn may_use(state: &DoorState, caller: &Caller, create: &Create, agent: Option<&AgentSpec>) -> Result<(), WireError> {
    let servers = create.tools.iter().filter_map(|tool| if let Tool::Mcp(server) = tool { Some(server) } else { None });
    let named = create.server_tools.iter().map(|name| (name, false));
    for (name, is_declared) in named.chain(servers.map(|server| (&server.label, server.url.is_some()))) {
        let tool = ToolName::from(name.as_str());
        if !is_declared && agent.is_some_and(|agent| agent.has_tool(&tool)) {
            continue;
        }
        if agent.is_some() && !caller.may(&Scope::AgentsConfigure) {
            let message = format!(
                "a request may only narrow what its agent has, and {name:?} is not a tool of the agent; leave it out, or use a token with the scope agents:configure"
            );
            return Err(WireError::forbidden(message));
        }
        match is_declared {
            true if caller.is_restricted() => {
                let message = format!("this token may use only what its scopes name, and the server {name:?} comes with the request");
                return Err(WireError::forbidden(message));
            }
            true => {}
            false => caller.needs_tool(state, &tool)?,
        }
    }
    Ok(())
}

fn compaction(create: &Create) -> Compaction {
    match create.sampling.truncation {
        _ if create.compacts => Compaction::Only,
        Some("auto") => Compaction::Auto,
        Some(_) | None => Compaction::Off,
    }
}

/// The position of a tool server in the request's `tools`. It is looked up there, because the flattened list `Create::tools` has other
/// indices.
pub(super) fn place_of(create: &Create, server: &Mcp) -> String {
    let place = create.echo.tools.iter().position(|tool| tool["server_label"] == server.label.as_str());
    place.map_or_else(|| "tools".to_owned(), |index| format!("tools[{index}]"))
}

/// The error of an agent with a cost budget whose model has no price.
fn unpriced(error: EngineError) -> WireError {
    WireError::invalid("model", error.to_string()).with_code("unpriced_model")
}

fn no_model() -> WireError {
    let message = "Missing required parameter: 'model'. The only configured model is \"*\", which passes the name of a request on to its \
        provider; name a model of that provider.";
    WireError::missing("model").with_message(message)
}

fn unknown_model(create: &Create) -> WireError {
    let name = create.model.as_deref().unwrap_or_default();
    WireError::invalid("model", format!("The model '{name}' does not exist; GET /v1/models lists those there are."))
        .with_code("model_not_found")
}

/// The parameters that the request sets for its model's answers, if it sets any.
fn parameters(create: &Create) -> Result<Option<Parameters>, WireError> {
    let sampling = &create.sampling;
    let parameters = Parameters {
        frequency_penalty: sampling.frequency_penalty,
        tokens_max: create.max_output_tokens,
        metadata: (!create.metadata.is_empty())
            .then(|| create.metadata.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()),
        presence_penalty: sampling.presence_penalty,
        prompt_cache_key: sampling.prompt_cache_key.clone(),
        reasoning: sampling.reasoning.as_ref().map(typed).transpose()?,
        safety_identifier: sampling.safety_identifier.clone(),
        service_tier: sampling.service_tier.map(str::to_owned),
        temperature: sampling.temperature,
        form: sampling.text.as_ref().map(typed).transpose()?,
        top_logprobs: sampling.top_logprobs,
        top_p: sampling.top_p,
        user: sampling.user.clone(),
        // The engine summarises a history that is too long, so no provider is asked to truncate it.
        extras: Map::new(),
    };
    Ok(Some(parameters).filter(|parameters| *parameters != Parameters::default()))
}

/// A parameter that was checked when the request was read.
fn typed<T: DeserializeOwned>(checked: &Value) -> Result<T, WireError> {
    T::deserialize(checked).map_err(|error| WireError::internal(&error))
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Collects the tools of a manifest.
struct Tools {
    specs: Vec<ToolSpec>,
    servers: Vec<ToolServer>,
    names: BTreeMap<String, ClientName>,
    /// Names that tools of servers must not have.
    reserved: BTreeSet<String>,
    /// The tools whose calls the client wants to approve.
    client_approves: Vec<ToolName>,
    deadline_ms: u64,
}

impl Tools {
    fn new(deadline_ms: u64, names: BTreeMap<String, ClientName>) -> Self {
        Tools { specs: Vec::new(), servers: Vec::new(), names, reserved: BTreeSet::new(), client_approves: Vec::new(), deadline_ms }
    }

    /// Adds the tools of the request and of its agent.
    async fn add_all(&mut self, state: &DoorState, caller: &Caller, create: &Create, agent: Option<&AgentSpec>) -> Result<(), WireError> {
        // Before any server is contacted.
        may_use(state, caller, create, agent)?;
        let named = create.server_tools.iter().map(|name| ToolName::from(name.as_str()));
        let agents = agent.map(|spec| spec.tools.as_slice()).unwrap_or_default();
        let named: Vec<ToolName> = named.chain(agents.iter().cloned()).collect();
        // Names of configured tools and of functions are reserved: a server's tool with such a name gets the server's label as a prefix.
        self.reserved.extend(named.iter().filter(|name| state.engine.tool(caller.tenant(), name).is_some()).map(ToString::to_string));
        let function_name = |tool: &Tool| if let Tool::Function(own) = tool { Some(own.model_name.clone()) } else { None };
        self.reserved.extend(create.tools.iter().filter_map(function_name));
        if agent.is_some_and(|agent| agent.ask) {
            self.reserved.insert(ASK_PERSON.to_owned());
            self.specs.push(ask_person_tool());
        }
        for name in &named {
            self.attach(state, caller, name).await?;
        }
        for tool in &create.tools {
            match tool {
                Tool::Function(function) => self.add_function(function),
                Tool::Mcp(server) => self.declare(state, caller, server).await.map_err(|error| error.within(&place_of(create, server)))?,
                Tool::Other => {}
            }
        }
        match self.specs.len() <= TOOLS_MAX {
            true => Ok(()),
            false => Err(WireError::invalid("tools", format!("there are {} tools; {TOOLS_MAX} are allowed", self.specs.len()))),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.specs.iter().any(|spec| spec.name.as_str() == name)
    }

    /// Adds a tool of the configuration, or all tools of a configured server.
    async fn attach(&mut self, state: &DoorState, caller: &Caller, name: &ToolName) -> Result<(), WireError> {
        if self.has(name.as_str()) {
            return Ok(());
        }
        if let Some(spec) = state.engine.tool(caller.tenant(), name) {
            self.specs.push(spec);
            return Ok(());
        }
        let server = state.engine.configured_server(caller.tenant(), name).ok_or_else(|| {
            let message = format!("the configuration has no tool and no tool server {:?}", name.as_str());
            WireError::invalid("windlass.tools", message).with_code("unknown_tool")
        })?;
        self.offer(state, caller, server, None).await
    }

    /// Adds a function of the client, unless the request or its agent names a server-side tool with the same name.
    fn add_function(&mut self, function: &Function) {
        let name = function.model_name.as_str();
        if self.has(name) {
            return;
        }
        self.specs.push(ToolSpec {
            name: name.into(),
            description: function.description.clone().unwrap_or_default(),
            parameters: function.parameters.clone().unwrap_or_else(|| Value::Object(Map::new())),
            route: Route::Client,
            effect: EffectClass::Write,
            after_execution: AfterExecution::Suspend,
            deadline_ms: self.deadline_ms,
            remote: None,
            retry: None,
            strict: function.strict,
            untrusted: false,
            agent: None,
        });
    }

    /// Adds the tools of a server that the request names or declares.
    async fn declare(&mut self, state: &DoorState, caller: &Caller, mcp: &Mcp) -> Result<(), WireError> {
        if self.servers.iter().any(|server| server.label == mcp.label) {
            return Err(WireError::invalid("server_label", format!("two tool servers have the label {:?}", mcp.label)));
        }
        let servers = state.engine.servers().ok_or_else(|| WireError::invalid("type", "this server has no tool servers"))?;
        let server = match &mcp.url {
            None if servers.is_configured(caller.tenant(), &mcp.label) => {
                ToolServer { label: mcp.label.clone(), source: ServerSource::Configured }
            }
            None => {
                let message = format!("there is no configured tool server {:?}; send its `server_url` too", mcp.label);
                return Err(WireError::invalid("server_url", message).with_code("missing_required_parameter"));
            }
            Some(url) => {
                let declared = DeclaredServer { label: mcp.label.clone(), url: url.clone(), headers: mcp.headers.clone() };
                servers.declare(caller.tenant(), declared).map_err(server_error)?
            }
        };
        self.offer(state, caller, server, Some(mcp)).await
    }

    /// Adds the tools of a server: all of them, or those that the request wants.
    async fn offer(&mut self, state: &DoorState, caller: &Caller, server: ToolServer, asked: Option<&Mcp>) -> Result<(), WireError> {
        let only = asked.and_then(|mcp| mcp.allowed.as_ref());
        let is_wanted = |tool: &OfferedTool| only.is_none_or(|only| fits(only, tool));
        let mut offered = state.engine.offered(caller.tenant(), &server, &mut self.reserved, is_wanted).await.map_err(server_error)?;
        // The hints of a declared server must not make a call run twice, unless the operator trusts such servers.
        if matches!(server.source, ServerSource::Declared { .. }) && state.responses.default_approval == DefaultApproval::Always {
            offered.iter_mut().for_each(|spec| spec.effect = EffectClass::Write);
        }
        let needs_approval = |spec: &&ToolSpec| asked.is_some_and(|mcp| approval::is_needed(mcp, spec, state.responses.default_approval));
        self.client_approves.extend(offered.iter().filter(needs_approval).map(|spec| spec.name.clone()));
        self.specs.extend(offered);
        self.servers.push(server);
        Ok(())
    }

    fn choice(&self, choice: &Choice) -> Result<ToolChoice, WireError> {
        Ok(match choice {
            Choice::Auto | Choice::Other => ToolChoice::Auto,
            Choice::None => ToolChoice::None,
            Choice::Required => ToolChoice::Required,
            Choice::Function(name) => ToolChoice::Tool(self.find(None, name).ok_or_else(|| not_a_tool(name))?),
            Choice::Mcp { label, name: None } => {
                if !self.servers.iter().any(|server| server.label == *label) {
                    return Err(not_a_tool(label));
                }
                ToolChoice::Required
            }
            Choice::Mcp { label, name: Some(name) } => ToolChoice::Tool(self.find(Some(label), name).ok_or_else(|| not_a_tool(name))?),
        })
    }

    /// The model's name of a tool that the client names.
    fn find(&self, label: Option<&str>, name: &str) -> Option<ToolName> {
        let is_it = |spec: &&ToolSpec| match (label, &spec.remote) {
            (Some(label), Some(remote)) => remote.server == label && remote.name == name,
            (None, _) => spec.name.as_str() == name || self.names.get(spec.name.as_str()).is_some_and(|client| client.name == name),
            (Some(_), None) => false,
        };
        self.specs.iter().find(is_it).map(|spec| spec.name.clone())
    }

    /// The model's names of the allowed tools; empty if there is no limit. If none of the names is a tool of the request, the result has
    /// one empty name, which allows nothing.
    fn allowed(&self, allowed: &[Allowed]) -> Vec<ToolName> {
        let mut names: Vec<ToolName> = Vec::new();
        for entry in allowed {
            match entry {
                Allowed::Tool(name) => names.push(self.find(None, name).unwrap_or_else(|| name.as_str().into())),
                Allowed::Mcp { label, name: Some(name) } => names.extend(self.find(Some(label), name)),
                Allowed::Mcp { label, name: None } => {
                    let is_its = |spec: &&ToolSpec| spec.remote.as_ref().is_some_and(|remote| remote.server == *label);
                    names.extend(self.specs.iter().filter(is_its).map(|spec| spec.name.clone()));
                }
                Allowed::Other => {}
            }
        }
        if names.is_empty() && !allowed.is_empty() {
            names.push("".into());
        }
        names
    }
}

fn fits(filter: &ToolFilter, tool: &OfferedTool) -> bool {
    let is_read = tool.effect == EffectClass::Read;
    filter.names.as_ref().is_none_or(|names| names.contains(&tool.name)) && filter.read_only.is_none_or(|wanted| wanted == is_read)
}

fn not_a_tool(name: &str) -> WireError {
    WireError::invalid("tool_choice", format!("Tool choice '{name}' not found in 'tools' parameter.")).with_code("unknown_tool")
}

fn server_error(error: ServerError) -> WireError {
    let message = error.to_string();
    match error {
        ServerError::Unknown(_) => WireError::invalid("server_label", message),
        ServerError::Refused(_) => WireError::invalid("server_url", message).with_code("server_url_refused"),
        ServerError::Failed { .. } => WireError::failed_dependency(message),
        ServerError::Busy(_) => WireError::too_many("tool_servers_busy", message, BUSY_RETRY_S),
    }
}
