//! The configured agents and tools, and the manifest that each request pins from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use windlass_kernel::{
    ASK_PERSON, AgentKey, AgentName, Budgets, Compaction, CostBudget, EffectClass, Gate, Manifest, PolicyName, ResultField, Route, Tenant,
    ToolName, ToolServer, ToolSpec, ask_person_tool,
};
use windlass_ports::{Executor, Models, OfferedTool, PinnedManifest, Tenants, codec};

use crate::{api::EngineError, prices::PriceTable, settings::Settings};

/// The names of tools that are agents begin with this.
const AGENT_TOOL: &str = "agent/";

/// Manifests that are cached, one per agent. Beyond it a manifest is made for every request.
const READY_MAX: usize = 1024;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// The policy that decides its iterations.
    pub policy: PolicyName,
    /// Its model. `None` means the default model.
    pub model: Option<String>,
    /// The instructions that its model reads first.
    pub instructions: Option<String>,
    /// The tools it may use.
    pub tools: Vec<ToolName>,
    /// The budgets of each of its runs.
    pub budgets: Budgets,
    /// What the tokens of each of its runs may cost, in micro-dollars.
    pub cost_limit: Option<u64>,
    /// Whether a run that would exceed a budget waits for a person instead of ending.
    pub budgets_park: bool,
    /// Whether its model has the tool `ask_person`.
    pub ask: bool,
    /// Whether its responses run one after the other, under its own head.
    pub serial: bool,
    /// What models read about the agent if they may ask it.
    pub description: Option<String>,
    /// JSON Schema of the arguments with which models ask it. `None` for a text.
    pub parameters: Option<Value>,
    /// How many levels of child runs there may be below its runs.
    pub levels: u32,
    /// The tenants that may use it.
    pub tenants: Tenants,
}

impl AgentSpec {
    /// Whether the agent has the tool, which may be a built-in one.
    pub fn has_tool(&self, name: &ToolName) -> bool {
        self.tools.contains(name) || (self.ask && name.as_str() == ASK_PERSON)
    }
}

/// The agents and tools of the configuration. Unless the catalog is closed, a request may also name an agent that is not in it; such an
/// agent has the defaults. An agent or tool that a tenant may not use does not exist for that tenant.
#[derive(Default)]
pub struct AgentCatalog {
    agents: BTreeMap<AgentName, AgentSpec>,
    /// External tools by name.
    tools: BTreeMap<ToolName, ToolSpec>,
    /// The tenants that may use a tool. A tool without an entry is available to all.
    tool_tenants: BTreeMap<ToolName, Tenants>,
    /// Executors of the tools that run in this process.
    /// The tools of the executors of this process. Of two tools with one name, the first one counts.
    offered: BTreeMap<ToolName, (OfferedTool, Arc<dyn Executor>)>,
    /// The rules by which calls wait for a person's approval.
    gates: Vec<Gate>,
    prices: PriceTable,
    /// Whether requests may name only the agents above.
    is_closed: bool,
    ready: Mutex<BTreeMap<AgentKey, Arc<PinnedManifest>>>,
}

/// A property of a request that exceeds what the configuration gives its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Another model.
    Model,
    /// Other instructions.
    Instructions,
    /// A tool, or a tool server, that the agent does not have.
    Tool(ToolName),
}

/// The choices that a request makes for its manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunOptions {
    pub model: Option<String>,
    pub instructions: Option<String>,
    pub tools: Option<Vec<ToolName>>,
    /// The tools that the servers among `tools` offer.
    pub offers: Vec<(ToolServer, Vec<ToolSpec>)>,
    pub result_fields: Vec<ResultField>,
}

impl AgentCatalog {
    /// A catalog of these agents, tools and executors.
    pub fn new(agents: BTreeMap<AgentName, AgentSpec>, tools: BTreeMap<ToolName, ToolSpec>, executors: Vec<Arc<dyn Executor>>) -> Self {
        let mut offered = BTreeMap::new();
        for executor in executors {
            for tool in executor.offers() {
                offered.entry(tool.name.as_str().into()).or_insert_with(|| (tool, executor.clone()));
            }
        }
        AgentCatalog {
            agents,
            tools,
            tool_tenants: BTreeMap::new(),
            offered,
            gates: Vec::new(),
            prices: PriceTable::default(),
            is_closed: false,
            ready: Mutex::default(),
        }
    }

    /// The same catalog, with these tenants for its external tools.
    pub fn with_tool_tenants(self, tool_tenants: BTreeMap<ToolName, Tenants>) -> Self {
        AgentCatalog { tool_tenants, ..self }
    }

    /// The same catalog, with these rules for approvals. Every run pins them when it starts.
    pub fn with_gates(self, gates: Vec<Gate>) -> Self {
        AgentCatalog { gates, ..self }
    }

    /// The same catalog, with these prices of models.
    pub fn with_prices(self, prices: PriceTable) -> Self {
        AgentCatalog { prices, ..self }
    }

    /// The cost budget of a run with this model, with the prices of today.
    pub fn cost_budget(&self, limit: Option<u64>, model: &str) -> Result<Option<CostBudget>, EngineError> {
        let Some(limit) = limit else { return Ok(None) };
        let prices = self.prices.of(model).ok_or_else(|| EngineError::UnpricedModel(model.to_owned()))?;
        Ok(Some(CostBudget { limit, prices }))
    }

    /// The rules for approvals.
    pub fn gates(&self) -> &[Gate] {
        &self.gates
    }

    /// The same catalog, closed: requests may name only its agents.
    pub fn closed(self) -> Self {
        AgentCatalog { is_closed: true, ..self }
    }

    /// The configured agent of that name, if the tenant may use it.
    pub fn agent(&self, tenant: &Tenant, name: &AgentName) -> Option<&AgentSpec> {
        self.agents.get(name).filter(|spec| spec.tenants.admit(tenant))
    }

    /// The configured agents that the tenant may use.
    pub fn agents(&self, tenant: &Tenant) -> impl Iterator<Item = &AgentName> {
        self.agents.iter().filter(|(_, spec)| spec.tenants.admit(tenant)).map(|(name, _)| name)
    }

    /// The external tool of that name, if the tenant may use it.
    pub fn external_tool(&self, tenant: &Tenant, name: &ToolName) -> Option<&ToolSpec> {
        self.tools.get(name).filter(|_| self.tool_tenants.get(name).is_none_or(|tenants| tenants.admit(tenant)))
    }

    /// The external tools that the tenant may use.
    pub fn external_tools(&self, tenant: &Tenant) -> impl Iterator<Item = &ToolSpec> {
        self.tools.keys().filter_map(|name| self.external_tool(tenant, name))
    }

    /// The first of the model, instructions and tools of a request that exceeds what its configured agent has. An agent that is not
    /// configured has nothing that could be exceeded.
    pub fn widening(
        &self,
        agent: &AgentKey,
        model: Option<&str>,
        instructions: Option<&str>,
        tools: Option<&[ToolName]>,
    ) -> Option<Excess> {
        let spec = self.agent(&agent.tenant, &agent.agent)?;
        if model.is_some_and(|model| spec.model.as_deref() != Some(model)) {
            return Some(Excess::Model);
        }
        if instructions.is_some_and(|instructions| spec.instructions.as_deref() != Some(instructions)) {
            return Some(Excess::Instructions);
        }
        tools.unwrap_or_default().iter().find(|tool| !spec.has_tool(tool)).map(|tool| Excess::Tool(tool.clone()))
    }

    /// Refuses an agent that requests may not name.
    pub(crate) fn check_agent(&self, key: &AgentKey) -> Result<(), EngineError> {
        let (tenant, agent) = (&key.tenant, &key.agent);
        // Where agents need not be configured, a tenant may use the name of another tenant's agent: the two have nothing in common.
        if !self.is_closed || self.agent(tenant, agent).is_some() {
            return Ok(());
        }
        // The time of a comparison grows with the product of both lengths.
        const SUGGESTED_CHARS_MAX: usize = 64;
        if agent.as_str().chars().nth(SUGGESTED_CHARS_MAX).is_some() {
            return Err(EngineError::UnknownAgent { agent: agent.clone(), nearest: None });
        }
        // Beyond a third of the letters a suggestion is a guess, and a wrong guess misleads.
        let distance_max = (agent.as_str().chars().count() / 3).max(1);
        let near = self.agents(tenant).map(|known| (strsim::damerau_levenshtein(agent.as_str(), known.as_str()), known));
        let nearest = near.filter(|(distance, _)| *distance <= distance_max).min_by_key(|(distance, _)| *distance);
        Err(EngineError::UnknownAgent { agent: agent.clone(), nearest: nearest.map(|(_, known)| known.clone()) })
    }

    /// The names of the tools an agent may use.
    pub(crate) fn tool_names(&self, agent: &AgentKey) -> &[ToolName] {
        self.agent(&agent.tenant, &agent.agent).map_or(&[], |spec| &spec.tools)
    }

    /// The manifest that a request to this agent pins. A tool or model that does not exist is refused here, before anything is stored.
    pub(crate) fn pin(
        &self,
        agent: &AgentKey,
        options: RunOptions,
        models: &dyn Models,
        settings: &Settings,
    ) -> Result<Arc<PinnedManifest>, EngineError> {
        let is_plain = options.model.is_none()
            && options.instructions.is_none()
            && options.tools.is_none()
            && options.offers.is_empty()
            && options.result_fields.is_empty();
        if is_plain && let Some(ready) = self.lock().get(agent) {
            return Ok(ready.clone());
        }
        let manifest = Arc::new(codec::pin_manifest(self.manifest(agent, options, models, settings)?));
        let mut ready = self.lock();
        if is_plain && ready.len() < READY_MAX {
            ready.insert(agent.clone(), manifest.clone());
        }
        Ok(manifest)
    }

    /// The tool that starts a run of the agent with this name (`agent/NAME`), if the tenant may use that agent.
    fn agent_tool(&self, tenant: &Tenant, name: &str) -> Option<ToolSpec> {
        let agent = AgentName::from(name);
        let spec = self.agent(tenant, &agent)?;
        let text = || format!("Asks the agent {name}, which works on its own and gives its result back.");
        let input = || {
            serde_json::json!({
                "type": "object", "properties": { "input": { "type": "string", "description": "what the agent is to do, with all that it has to know" } },
                "required": ["input"], "additionalProperties": false
            })
        };
        Some(ToolSpec {
            name: agent_tool_name(name),
            description: spec.description.clone().unwrap_or_else(text),
            parameters: spec.parameters.clone().unwrap_or_else(input),
            route: Route::Child,
            // Starting it again finds the run that the first start made.
            effect: EffectClass::Idempotent,
            after_execution: windlass_kernel::AfterExecution::Suspend,
            // The run waits as long as the child takes.
            deadline_ms: u64::MAX,
            remote: None,
            retry: None,
            strict: None,
            untrusted: false,
            agent: Some(agent),
        })
    }

    /// The tool of that name, in process or external, or the agent, if the tenant may use it.
    pub(crate) fn tool(&self, tenant: &Tenant, name: &ToolName, settings: &Settings) -> Option<ToolSpec> {
        if let Some(agent) = name.as_str().strip_prefix(AGENT_TOOL) {
            return self.agent_tool(tenant, agent);
        }
        if self.tools.contains_key(name) {
            return self.external_tool(tenant, name).cloned();
        }
        let (offered, _) = self.offered.get(name)?;
        Some(ToolSpec {
            name: name.clone(),
            description: offered.description.clone(),
            parameters: offered.parameters.clone(),
            route: Route::InProcess,
            effect: offered.effect,
            after_execution: windlass_kernel::AfterExecution::Suspend,
            deadline_ms: settings.call_deadline_ms,
            remote: None,
            retry: offered.retry,
            strict: None,
            untrusted: false,
            agent: None,
        })
    }

    /// The executor that runs a tool in this process.
    pub(crate) fn executor(&self, name: &ToolName) -> Option<&Arc<dyn Executor>> {
        self.offered.get(name).map(|(_, executor)| executor)
    }

    fn manifest(&self, agent: &AgentKey, options: RunOptions, models: &dyn Models, settings: &Settings) -> Result<Manifest, EngineError> {
        let tenant = &agent.tenant;
        let spec = self.agent(tenant, &agent.agent);
        let named = options.model.or_else(|| spec.and_then(|spec| spec.model.clone()));
        let model = named.or_else(|| models.default_name(tenant).map(str::to_owned)).ok_or(EngineError::NoDefaultModel)?;
        if models.resolve(tenant, &model).is_none() {
            return Err(EngineError::UnknownModel(model));
        }
        let names_given = options.tools.is_some();
        let names = options.tools.or_else(|| spec.map(|spec| spec.tools.clone())).unwrap_or_default();
        let asks = spec.is_some_and(|spec| spec.ask) && (!names_given || names.iter().any(|name| name.as_str() == ASK_PERSON));
        let names: Vec<ToolName> = names.into_iter().filter(|name| !asks || name.as_str() != ASK_PERSON).collect();
        let find = |name: &ToolName| self.tool(tenant, name, settings).ok_or_else(|| EngineError::UnknownTool(name.clone()));
        let is_server = |name: &&ToolName| options.offers.iter().any(|(server, _)| server.label == name.as_str());
        let once: BTreeSet<&ToolName> = names.iter().filter(|name| !is_server(name)).collect();
        let mut tools: Vec<ToolSpec> = once.into_iter().map(find).collect::<Result<_, _>>()?;
        let mut servers = Vec::with_capacity(options.offers.len());
        tools.extend(asks.then(ask_person_tool));
        for (server, offered) in options.offers {
            // A built-in tool keeps its name.
            tools.extend(offered.into_iter().filter(|tool| !asks || tool.name.as_str() != ASK_PERSON));
            servers.push(server);
        }
        let default_budgets =
            Budgets { iterations: settings.iterations_max, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
        let levels = levels(spec, &mut tools);
        // An agent has no setting for compaction. It is on where the operator has configured the context size of the model.
        let compaction = if models.context(tenant, &model).is_some() { Compaction::Auto } else { Compaction::Off };
        let cost = self.cost_budget(spec.and_then(|spec| spec.cost_limit), &model)?;
        let budgets = Budgets { cost, ..spec.map_or(default_budgets, |spec| spec.budgets) };
        Ok(Manifest {
            policy: spec.map_or(PolicyName::Respond, |spec| spec.policy),
            instructions: options.instructions.or_else(|| spec.and_then(|spec| spec.instructions.clone())),
            tools,
            servers,
            result_fields: options.result_fields,
            compaction,
            budgets_park: spec.is_some_and(|spec| spec.budgets_park),
            levels,
            gates: self.gates.clone(),
            ..Manifest::plain(model, budgets)
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AgentKey, Arc<PinnedManifest>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name by which models call the agent. Providers take letters, digits, `_` and `-` only.
pub fn agent_tool_name(agent: &str) -> ToolName {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    ToolName::from(format!("agent__{}", agent.chars().map(plain).collect::<String>()).as_str())
}

/// The levels of child runs that a run may have. A run that may have none has no agents among its tools, and a run without such tools needs
/// no levels.
pub fn levels(spec: Option<&AgentSpec>, tools: &mut Vec<ToolSpec>) -> u32 {
    let allowed = spec.map_or(1, |spec| spec.levels);
    if allowed == 0 {
        tools.retain(|tool| tool.route != Route::Child);
    }
    if tools.iter().any(|tool| tool.route == Route::Child) { allowed } else { 0 }
}
