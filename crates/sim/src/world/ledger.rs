//! What the world outside saw of all processes: every start and every message. Unlike the store, it loses nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_kernel::{CallKey, EffectClass, ItemId, RunId};
use windlass_ports::{ClaimedCall, Published, Subject, ToolCall, Views};

use super::{World, node::Node};

#[derive(Default)]
pub(super) struct Ledger {
    starts: BTreeMap<CallKey, u32>,
    published: BTreeMap<String, Published>,
    /// Results that were recorded before their call was made.
    pub early: BTreeSet<ItemId>,
    /// Iterations whose model call was answered with 429.
    pub said_429: BTreeSet<(RunId, u32)>,
    /// The last claimed call, for the planted bug that gives a call to two services.
    pub last_claimed: Option<ClaimedCall>,
}

impl Ledger {
    /// Records a message. Returns the first message with the same id, if there was one.
    pub fn publish(&mut self, message: &Published) -> Option<Published> {
        let earlier = self.published.get(&message.id).cloned();
        if earlier.is_none() {
            self.published.insert(message.id.clone(), message.clone());
        }
        earlier
    }

    /// The number of messages that report the end of a run.
    pub fn endings_of(&self, run: RunId) -> usize {
        let id = run.to_string();
        let of_run = |message: &&Published| message.body["agent_turn_id"].as_str() == Some(id.as_str());
        self.published.values().filter(|message| matches!(message.subject, Subject::Task(_))).filter(of_run).count()
    }
}

/// A process starts a call of its own. S2: the process has the lease, and a committed row has the call.
pub(super) async fn started_here(world: &Arc<World>, node: &Node, call: &ToolCall, effect: EffectClass) {
    world.log(&node.name, format_args!("starts {} as {}", call.tool, call.key));
    if !world.slots.lock().holds_lease(node.id) {
        world.break_promise("S2", format_args!("{} starts {} ({}) without a lease", node.name, call.tool, call.key));
    }
    let rows = world.data.calls(&call.tenant, call.key.run, call.key.call, 1).await.unwrap_or_default();
    if rows.first().is_none_or(|row| row.call != call.key.call) {
        world.break_promise("S2", format_args!("{} is started, but no committed row has it", call.key));
    }
    started(world, call.key, effect);
}

/// A process or a service starts a call. S6: a write starts once, and once more for each release by a person.
pub(super) fn started(world: &World, key: CallKey, effect: EffectClass) {
    let (starts, calls) = {
        let mut ledger = world.ledger.lock();
        let starts = ledger.starts.entry(key).or_default();
        *starts += 1;
        (*starts, ledger.starts.keys().filter(|started| started.run == key.run).count())
    };
    let budget = world.checks.lock().calls_allowed(key.run);
    if budget.is_some_and(|budget| calls > budget as usize) {
        world.break_promise("S10", format_args!("{key} is the {calls}th call that starts, {budget:?} allowed"));
    }
    let allowed = 1 + world.checks.lock().releases_of(key);
    if effect == EffectClass::Write && starts > allowed {
        world.break_promise("S6", format_args!("the write {key} is started for the {starts}th time, {allowed} allowed"));
    }
}
