//! `tools.external` and `agents`.

use std::collections::BTreeMap;

use windlass_kernel::{ASK_PERSON, AfterExecution, Budgets, EffectClass, PolicyName, SUBMIT_RESULT};
use windlass_ports::Tenants;

use super::{
    Agent, ExternalTool, Limits, Model,
    error::ConfigError,
    reader::{Field, Keys, Section},
    sections::{EFFECTS, elements},
    tenants::KnownTenants,
};

pub(super) const EXTERNAL: Keys =
    Keys { known: &["name", "description", "parameters", "effect", "after_execution", "deadline", "tenants"], later: &[] };
pub(super) const AGENT: Keys =
    Keys { known: &["policy", "model", "instructions", "tools", "budgets", "ask", "serial", "tenants"], later: &[] };
pub(super) const BUDGETS: Keys = Keys { known: &["iterations", "calls", "tokens", "wall_time", "parks"], later: &[] };

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
        tenants: known.read_own(section.take("tenants"))?,
    })
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
        let read = |(name, field): (String, Field)| Ok((name, self.read_agent(field.section(&AGENT)?)?));
        field.named()?.into_iter().map(read).collect()
    }

    fn read_agent(&self, mut section: Section) -> Result<Agent, ConfigError> {
        let policies = [("respond", PolicyName::Respond)];
        let later = ["pursue", "supervise", "route"];
        let tenants = self.known.read_own(section.take("tenants"))?;
        let (budgets, budgets_park) = match section.take("budgets") {
            Some(field) => read_budgets(field.section(&BUDGETS)?, self.limits)?,
            None => (default_budgets(self.limits), false),
        };
        Ok(Agent {
            policy: section.read_or("policy", PolicyName::Respond, |field| field.choice("policy", &policies, &later))?,
            model: section.read("model", |field| self.read_model_name(field, &tenants))?,
            instructions: section.read("instructions", Field::text)?,
            tools: self.read_tool_names(section.take("tools"), &tenants)?,
            budgets,
            budgets_park,
            ask: section.read_or("ask", false, Field::flag)?,
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

    /// Names of tools, or of servers for all their tools. Every tenant of the agent must be allowed to use them.
    fn read_tool_names(&self, field: Option<Field>, tenants: &Tenants) -> Result<Vec<String>, ConfigError> {
        let mut names: Vec<String> = Vec::new();
        for field in elements(field)? {
            let name = field.text()?;
            if self.tools.is_empty() {
                return Err(field.expected("the name of a tool or of a tool server, but `tools` has none"));
            }
            let Some((_, of_tool)) = self.tools.iter().find(|(tool, _)| *tool == name) else {
                return Err(field.unknown("tool", &self.tools.iter().map(|(tool, _)| *tool).collect::<Vec<_>>()));
            };
            if !self.known.includes(of_tool, tenants) {
                return Err(field.fail(format!("a tenant of this agent may not use the tool {name}; see `tenants` of both")));
            }
            if names.contains(&name) {
                return Err(field.fail(format!("the tool {name} is given above")));
            }
            names.push(name);
        }
        Ok(names)
    }
}

fn default_budgets(limits: &Limits) -> Budgets {
    Budgets { iterations: limits.max_turns, calls: None, tokens: None, wall_ms: None }
}

/// The budgets, and whether a run that would exceed one waits for a person.
fn read_budgets(mut section: Section, limits: &Limits) -> Result<(Budgets, bool), ConfigError> {
    let default = default_budgets(limits);
    let wall_time = section.read("wall_time", Field::duration)?;
    let parks = section.read_or("parks", false, Field::flag)?;
    let budgets = Budgets {
        iterations: section.read_or("iterations", default.iterations, |field| field.whole(1))?,
        calls: section.read("calls", |field| field.whole(1))?,
        tokens: section.read("tokens", |field| field.whole(1))?,
        wall_ms: wall_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    };
    Ok((budgets, parks))
}
