//! The configured agents and tools, and the manifest each request pins from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use windlass_kernel::{AgentName, Budgets, Compaction, Manifest, PolicyName, ResultField, Route, ToolName, ToolServer, ToolSpec};
use windlass_ports::{Executor, Models, PinnedManifest, codec};

use crate::{api::EngineError, settings::Settings};

/// Manifests kept ready, one per agent; beyond it they are made anew.
const READY_MAX: usize = 1024;

/// What the configuration says about an agent.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// Which policy decides its laps.
    pub policy: PolicyName,
    /// Its model; the default one if none is named.
    pub model: Option<String>,
    /// What its model is told first.
    pub instructions: Option<String>,
    /// The tools it may use.
    pub tools: Vec<ToolName>,
    /// What a run of it may use up.
    pub budgets: Budgets,
    /// Whether its responses run one after the other, under its own head.
    pub serial: bool,
}

/// The agents and tools of the configuration. Unless it is closed, an agent that is not in it can be enqueued to: it has the defaults.
#[derive(Default)]
pub struct Roster {
    /// Agents by name.
    pub agents: BTreeMap<AgentName, AgentSpec>,
    /// External tools by name.
    pub tools: BTreeMap<ToolName, ToolSpec>,
    /// Tools that run in this process.
    pub executors: Vec<Arc<dyn Executor>>,
    /// Whether only the agents above can be enqueued to.
    is_closed: bool,
    ready: Mutex<BTreeMap<AgentName, Arc<PinnedManifest>>>,
}

/// What a request says about its manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub model: Option<String>,
    pub instructions: Option<String>,
    pub tools: Option<Vec<ToolName>>,
    /// What the servers among the tools offer.
    pub offers: Vec<(ToolServer, Vec<ToolSpec>)>,
    pub result_fields: Vec<ResultField>,
}

impl Roster {
    /// A roster of these agents, tools and executors.
    pub fn new(agents: BTreeMap<AgentName, AgentSpec>, tools: BTreeMap<ToolName, ToolSpec>, executors: Vec<Arc<dyn Executor>>) -> Self {
        Roster { agents, tools, executors, is_closed: false, ready: Mutex::default() }
    }

    /// The same roster, for its own agents alone.
    pub fn closed(self) -> Self {
        Roster { is_closed: true, ..self }
    }

    /// Refuses an agent that cannot be enqueued to.
    pub(crate) fn check_agent(&self, agent: &AgentName) -> Result<(), EngineError> {
        if !self.is_closed || self.agents.contains_key(agent) {
            return Ok(());
        }
        // Beyond a third of the letters a suggestion is a guess, and a wrong guess misleads.
        let distance_max = (agent.as_str().chars().count() / 3).max(1);
        let near = self.agents.keys().map(|known| (strsim::damerau_levenshtein(agent.as_str(), known.as_str()), known));
        let nearest = near.filter(|(distance, _)| *distance <= distance_max).min_by_key(|(distance, _)| *distance);
        Err(EngineError::UnknownAgent { agent: agent.clone(), nearest: nearest.map(|(_, known)| known.clone()) })
    }

    /// The names of the tools an agent may use.
    pub(crate) fn tool_names(&self, agent: &AgentName) -> &[ToolName] {
        self.agents.get(agent).map_or(&[], |spec| &spec.tools)
    }

    /// The manifest a request to this agent pins. A tool or model that does not exist is refused here, before anything is stored.
    pub(crate) fn pin(
        &self,
        agent: &AgentName,
        wishes: Wishes,
        models: &dyn Models,
        settings: &Settings,
    ) -> Result<Arc<PinnedManifest>, EngineError> {
        let is_plain = wishes.model.is_none()
            && wishes.instructions.is_none()
            && wishes.tools.is_none()
            && wishes.offers.is_empty()
            && wishes.result_fields.is_empty();
        if is_plain && let Some(ready) = self.lock().get(agent) {
            return Ok(ready.clone());
        }
        let manifest = Arc::new(codec::pin_manifest(self.manifest(agent, wishes, models, settings)?));
        let mut ready = self.lock();
        if is_plain && ready.len() < READY_MAX {
            ready.insert(agent.clone(), manifest.clone());
        }
        Ok(manifest)
    }

    /// The tool of that name, whoever runs it.
    pub(crate) fn tool(&self, name: &ToolName, settings: &Settings) -> Option<ToolSpec> {
        if let Some(tool) = self.tools.get(name) {
            return Some(tool.clone());
        }
        let executor = self.executor(name)?;
        Some(ToolSpec {
            name: name.clone(),
            description: String::new(),
            parameters: serde_json::json!({ "type": "object" }),
            route: Route::InProcess,
            effect: executor.effect(name),
            after_execution: windlass_kernel::AfterExecution::Suspend,
            deadline_ms: settings.call_deadline_ms,
            remote: None,
            strict: None,
        })
    }

    /// Who runs a tool in this process.
    pub(crate) fn executor(&self, name: &ToolName) -> Option<&Arc<dyn Executor>> {
        self.executors.iter().find(|executor| executor.accepts(name))
    }

    fn manifest(&self, agent: &AgentName, wishes: Wishes, models: &dyn Models, settings: &Settings) -> Result<Manifest, EngineError> {
        let spec = self.agents.get(agent);
        let named = wishes.model.or_else(|| spec.and_then(|spec| spec.model.clone()));
        let model = named.or_else(|| models.default_name().map(str::to_owned)).ok_or(EngineError::NoDefaultModel)?;
        if models.resolve(&model).is_none() {
            return Err(EngineError::UnknownModel(model));
        }
        let names = wishes.tools.or_else(|| spec.map(|spec| spec.tools.clone())).unwrap_or_default();
        let find = |name: &ToolName| self.tool(name, settings).ok_or_else(|| EngineError::UnknownTool(name.clone()));
        let is_server = |name: &&ToolName| wishes.offers.iter().any(|(server, _)| server.label == name.as_str());
        let once: BTreeSet<&ToolName> = names.iter().filter(|name| !is_server(name)).collect();
        let mut tools: Vec<ToolSpec> = once.into_iter().map(find).collect::<Result<_, _>>()?;
        let mut servers = Vec::with_capacity(wishes.offers.len());
        for (server, offered) in wishes.offers {
            tools.extend(offered);
            servers.push(server);
        }
        let default_budgets = Budgets { iterations: settings.iterations_max, calls: None, tokens: None, wall_ms: None };
        // An agent has no wish about it: where the operator says what fits, it goes on from a summary.
        let compaction = if models.context(&model).is_some() { Compaction::Auto } else { Compaction::Off };
        Ok(Manifest {
            policy: spec.map_or(PolicyName::Respond, |spec| spec.policy),
            instructions: wishes.instructions.or_else(|| spec.and_then(|spec| spec.instructions.clone())),
            tools,
            servers,
            result_fields: wishes.result_fields,
            compaction,
            ..Manifest::plain(model, spec.map_or(default_budgets, |spec| spec.budgets))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<AgentName, Arc<PinnedManifest>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
