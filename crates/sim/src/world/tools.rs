//! The tools of the simulation: one of each effect class in the process, and one of each in services.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use windlass_kernel::{AfterExecution, EffectClass, Route, TaskStatus, ToolName, ToolSpec};
use windlass_ports::{Executor, OfferedTool, ToolCall, ToolReport};

use super::{World, ledger, node::Node, pass_ms};

/// The deadline of every call.
pub(super) const DEADLINE_MS: u64 = 30_000;

const LOCAL: [(&str, EffectClass); 3] = [("look", EffectClass::Read), ("touch", EffectClass::Idempotent), ("write", EffectClass::Write)];

/// The tools of services.
pub(super) const SERVED: [(&str, EffectClass); 3] =
    [("lookup", EffectClass::Read), ("tap", EffectClass::Idempotent), ("charge", EffectClass::Write)];

/// All tools that a model may call.
pub(super) const NAMES: [&str; 6] = ["look", "touch", "write", "lookup", "tap", "charge"];

/// The tools of one process.
pub(super) struct SimTools {
    world: Arc<World>,
    node: Arc<Node>,
}

impl SimTools {
    pub fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        SimTools { world: world.clone(), node: node.clone() }
    }
}

#[async_trait]
impl Executor for SimTools {
    fn offers(&self) -> Vec<OfferedTool> {
        LOCAL.into_iter().map(|(name, effect)| OfferedTool::plain(name, effect)).collect()
    }

    async fn run(&self, call: ToolCall) -> ToolReport {
        if self.node.is_dead() {
            return std::future::pending().await;
        }
        ledger::started_here(&self.world, &self.node, &call, effect_of(&call.tool)).await;
        let is_bad = self.world.fault(self.world.options.services, 100);
        let ms = match (is_bad, self.world.is_calm()) {
            (true, _) if self.world.chance(1, 2) => 10 * DEADLINE_MS,
            (true, _) => self.world.between(0, 2 * DEADLINE_MS),
            (false, true) => self.world.between(0, 300),
            (false, false) => self.world.between(0, 8_000),
        };
        pass_ms(ms).await;
        self.node.wait_until_running().await;
        let status = if is_bad { TaskStatus::Failed } else { TaskStatus::Success };
        let wants_end = self.world.chance(1, 30);
        ToolReport { status, result: "\"done\"".into(), after: wants_end.then_some(AfterExecution::Terminate), failure: None }
    }
}

fn effect_of(tool: &ToolName) -> EffectClass {
    LOCAL.iter().find(|(name, _)| *name == tool.as_str()).map_or(EffectClass::Write, |(_, effect)| *effect)
}

/// The specifications of the services' tools.
pub(super) fn services() -> BTreeMap<ToolName, ToolSpec> {
    let tool = |(name, effect): (&str, EffectClass)| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: serde_json::json!({ "type": "object" }),
        route: Route::External,
        effect,
        after_execution: AfterExecution::Suspend,
        deadline_ms: DEADLINE_MS,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    SERVED.into_iter().map(tool).map(|tool| (tool.name.clone(), tool)).collect()
}
