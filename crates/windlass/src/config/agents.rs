//! `tools.external` and `agents`.

use std::{collections::BTreeMap, time::Duration};

use windlass_engine::agent_tool_name;
use windlass_kernel::{ASK_PERSON, AfterExecution, Budgets, CallRetries, EffectClass, PolicyName, SUBMIT_RESULT};
use windlass_ports::Tenants;

use super::{
    Agent, ExternalTool, Limits, Model,
    error::ConfigError,
    reader::{Field, Keys, Section},
    sections::{EFFECTS, elements},
    tenants::KnownTenants,
};

pub(super) const EXTERNAL: Keys =
    Keys { known: &["name", "description", "parameters", "effect", "after_execution", "deadline", "retry", "tenants"], later: &[] };
pub(super) const RETRY: Keys = Keys { known: &["max", "backoff"], later: &[] };
pub(super) const AGENT: Keys = Keys {
    known: &["policy", "model", "instructions", "tools", "budgets", "ask", "serial", "tenants", "max_depth", "description", "parameters"],
    later: &[],
};
pub(super) const BUDGETS: Keys =
    Keys { known: &["iterations", "calls", "tokens", "wall_time", "children", "cost_usd", "parks"], later: &[] };

pub(super) fn read_tools(external: Option<Field>, limits: &Limits, known: &KnownTenants) -> Result<Vec<ExternalTool>, ConfigError> {
    let mut tools: Vec<ExternalTool> = Vec::new();
    for field in elements(external)? {
        let mut section = field.section(&EXTERNAL)?;
        let name_field = section.require("name")?;
        let name = name_field.name()?;
        if name == SUBMIT_RESULT || name == ASK_PERSON {
            return Err(name_field.fail(format!("the name {name} is taken by Windlass itself")));
        }
        if tools.iter().any(|known| known.name == name) {
            return Err(name_field.fail(format!("a tool named {name} is given above")));
        }
        tools.push(read_tool(name, section, limits, known)?);
    }
    Ok(tools)
}

fn read_tool(name: String, mut section: Section, limits: &Limits, known: &KnownTenants) -> Result<ExternalTool, ConfigError> {
    let endings = [("suspend", AfterExecution::Suspend), ("terminate", AfterExecution::Terminate)];
    Ok(ExternalTool {
        name,
        description: section.read_or("description", String::new(), Field::text)?,
        parameters: section.read_or("parameters", serde_json::json!({"type": "object"}), Field::object)?,
        // The default is the class that is never started twice.
        effect: section.read_or("effect", EffectClass::Write, |field| field.choice("effect", &EFFECTS, &[]))?,
        after_execution: section
            .read_or("after_execution", AfterExecution::Suspend, |field| field.choice("after_execution", &endings, &[]))?,
        deadline: section.read_or("deadline", limits.call_deadline, Field::duration)?,
        retry: section.take("retry").map(read_retry).transpose()?,
        tenants: known.read_own(section.take("tenants"))?,
    })
}

/// An agent that another one may ask, as it stands in the configuration.
struct Asked {
    field: Field,
    /// The tenants of the agent that asks.
    by: Tenants,
    agent: String,
}

/// Repetitions of calls that one tool may have at most.
const RETRIES_MAX: u32 = 10;
/// The first pause, unless it is configured.
const BACKOFF: Duration = Duration::from_secs(1);

/// How often a call is repeated whose tool reports a failure, and after which pause.
pub(super) fn read_retry(field: Field) -> Result<CallRetries, ConfigError> {
    let mut section = field.section(&RETRY)?;
    let max_field = section.require("max")?;
    let max: u32 = max_field.whole(1)?;
    if max > RETRIES_MAX {
        return Err(max_field.fail(format!("at most {RETRIES_MAX} repetitions are possible")));
    }
    let backoff = section.read_or("backoff", BACKOFF, Field::duration)?;
    Ok(CallRetries { max, backoff_ms: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX) })
}

/// Reads agents and checks that the models and tools which they name exist.
pub(super) struct Reader<'a> {
    pub models: &'a [Model],
    /// Tools and tool servers, with the tenants that may use them.
    pub tools: &'a [(&'a str, &'a Tenants)],
    pub limits: &'a Limits,
    pub known: &'a KnownTenants,
}

impl Reader<'_> {
    pub fn read(&self, field: Field) -> Result<BTreeMap<String, Agent>, ConfigError> {
        let named = field.named()?;
        let names: Vec<String> = named.iter().map(|(name, _)| name.clone()).collect();
        let mut asked = Vec::new();
        let mut read = |(name, field): (String, Field)| Ok((name, self.read_agent(field.section(&AGENT)?, &names, &mut asked)?));
        let agents: BTreeMap<String, Agent> = named.into_iter().map(&mut read).collect::<Result<_, ConfigError>>()?;
        for Asked { field, by, agent } in asked {
            if agents.get(&agent).is_none_or(|found| !self.known.includes(&found.tenants, &by)) {
                return Err(field.fail(format!("a tenant of this agent may not use the agent {agent}; see `tenants` of both")));
            }
        }
        Ok(agents)
    }

    fn read_agent(&self, mut section: Section, agents: &[String], asked: &mut Vec<Asked>) -> Result<Agent, ConfigError> {
        let policies = [("respond", PolicyName::Respond)];
        let later = ["pursue", "supervise", "route"];
        let tenants = self.known.read_own(section.take("tenants"))?;
        let (budgets, cost_limit, budgets_park) = match section.take("budgets") {
            Some(field) => read_budgets(field.section(&BUDGETS)?, self.limits)?,
            None => (default_budgets(self.limits), None, false),
        };
        Ok(Agent {
            policy: section.read_or("policy", PolicyName::Respond, |field| field.choice("policy", &policies, &later))?,
            model: section.read("model", |field| self.read_model_name(field, &tenants))?,
            instructions: section.read("instructions", Field::text)?,
            tools: self.read_tool_names(section.take("tools"), &tenants, agents, asked)?,
            budgets,
            cost_limit,
            budgets_park,
            ask: section.read_or("ask", false, Field::flag)?,
            description: section.read("description", Field::text)?,
            parameters: section.read("parameters", Field::object)?,
            max_depth: section.read_or("max_depth", 1, |field| field.whole(0))?,
            serial: section.read_or("serial", false, Field::flag)?,
            tenants,
        })
    }

    /// A model that every tenant of the agent may use: one with that name, or any if there is a pass-through model.
    fn read_model_name(&self, field: &Field, tenants: &Tenants) -> Result<String, ConfigError> {
        let name = field.some_text()?;
        let mut fitting = self.models.iter().filter(|model| model.name == name || model.name == "*").peekable();
        if fitting.peek().is_none() {
            let mut valid: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
            valid.dedup();
            return Err(field.unknown("model", &valid));
        }
        match fitting.any(|model| self.known.includes(&model.tenants, tenants)) {
            true => Ok(name),
            false => Err(field.fail(format!("a tenant of this agent may not use the model {name}; see `tenants` of both"))),
        }
    }

    /// Names of tools, of servers for all their tools, and of agents as `agent/NAME`. Every tenant of the agent must be allowed to use them.
    fn read_tool_names(
        &self,
        field: Option<Field>,
        tenants: &Tenants,
        agents: &[String],
        asked: &mut Vec<Asked>,
    ) -> Result<Vec<String>, ConfigError> {
        let mut names: Vec<String> = Vec::new();
        for field in elements(field)? {
            let name = field.text()?;
            if names.contains(&name) {
                return Err(field.fail(format!("the tool {name} is given above")));
            }
            if let Some(agent) = name.strip_prefix("agent/") {
                let shown = agent_tool_name(agent);
                if !agents.iter().any(|known| known == agent) {
                    let valid: Vec<String> = agents.iter().map(|known| format!("agent/{known}")).collect();
                    return Err(field.unknown("agent", &valid.iter().map(String::as_str).collect::<Vec<_>>()));
                }
                let is_taken = |other: &String| other.strip_prefix("agent/").is_some_and(|other| agent_tool_name(other) == shown);
                if names.iter().any(is_taken) {
                    return Err(field.fail(format!("two agents of this list have the same name for models, {shown}; rename one")));
                }
                asked.push(Asked { by: tenants.clone(), agent: agent.to_owned(), field });
                names.push(name);
                continue;
            }
            if self.tools.is_empty() {
                return Err(field.expected("the name of a tool or of a tool server, but `tools` has none"));
            }
            let Some((_, of_tool)) = self.tools.iter().find(|(tool, _)| *tool == name) else {
                return Err(field.unknown("tool", &self.tools.iter().map(|(tool, _)| *tool).collect::<Vec<_>>()));
            };
            if !self.known.includes(of_tool, tenants) {
                return Err(field.fail(format!("a tenant of this agent may not use the tool {name}; see `tenants` of both")));
            }
            names.push(name);
        }
        Ok(names)
    }
}

fn above_zero(cost: u64, field: &Field) -> Result<u64, ConfigError> {
    if cost > 0 { Ok(cost) } else { Err(field.expected("a number of dollars above zero")) }
}

fn default_budgets(limits: &Limits) -> Budgets {
    Budgets { iterations: limits.max_turns, calls: None, tokens: None, wall_ms: None, children: None, cost: None }
}

/// The budgets, the limit on cost in micro-dollars, and whether a run that would exceed one waits for a person.
fn read_budgets(mut section: Section, limits: &Limits) -> Result<(Budgets, Option<u64>, bool), ConfigError> {
    let default = default_budgets(limits);
    let wall_time = section.read("wall_time", Field::duration)?;
    let parks = section.read_or("parks", false, Field::flag)?;
    let budgets = Budgets {
        iterations: section.read_or("iterations", default.iterations, |field| field.whole(1))?,
        calls: section.read("calls", |field| field.whole(1))?,
        tokens: section.read("tokens", |field| field.whole(1))?,
        wall_ms: wall_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        children: section.read("children", |field| field.whole(1))?,
        // It gets its prices when a run starts.
        cost: None,
    };
    let cost = section.take("cost_usd").map(|field| field.micros().and_then(|cost| above_zero(cost, &field))).transpose()?;
    Ok((budgets, cost, parks))
}
