//! The end of a world: all work has ended in bounded time, and nothing that was acknowledged is missing.

use std::sync::Arc;

use windlass_kernel::{AgentKey, ItemKind, RunId};
use windlass_ports::{MessageKind, Page, RunView, Store, Views};

use super::{CALM_MS_MAX, World, checks::waits_for_person, pass_ms};

/// Waits until only a person's decision could change anything, then makes the last checks.
pub(super) async fn await_end(world: &Arc<World>) {
    let began = world.elapsed_ms();
    loop {
        match find_unfinished(world).await {
            None => break,
            Some(open) if world.elapsed_ms() - began > CALM_MS_MAX => {
                return world.break_promise("L1", format_args!("long after the faults: {open}"));
            }
            Some(_) => pass_ms(2_000).await,
        }
    }
    for agent in &world.agents {
        if let Err((promise, text)) = check_agent(world, agent).await {
            return world.break_promise(promise, text);
        }
    }
}

/// What has not ended yet, if anything.
async fn find_unfinished(world: &World) -> Option<String> {
    let busy = world.checks.lock().busy;
    if busy > 0 {
        return Some(format!("{busy} clients have no answer"));
    }
    for agent in &world.agents {
        let Ok(Some(head)) = world.data.head(agent).await else { continue };
        let Some(run) = head.run else { continue };
        let state = world.checks.lock().state_of(run);
        let is_left = !world.options.operator && state.as_ref().is_some_and(waits_for_person);
        if !is_left {
            return Some(format!("{} is at {run}: {state:?}, {head:?}", agent.agent));
        }
    }
    let rows = world.data.outbox(1).await.unwrap_or_default();
    rows.first().map(|row| format!("{} is not published", row.run))
}

type BrokenPromise = (&'static str, String);

async fn check_agent(world: &World, agent: &AgentKey) -> Result<(), BrokenPromise> {
    let mut found = Vec::new();
    let mut ordinal = 1;
    while let Some(view) = world.data.run_from(agent, ordinal).await.map_err(|error| ("S8", error.to_string()))? {
        ordinal = view.ordinal + 1;
        found.push(view.id);
        check_run(world, agent, &view).await?;
    }
    check_requests(world, agent, &found)?;
    check_results(world, agent).await
}

/// S4: an ended run has one deliverable and one task event. S7: its journal is what every reader saw.
async fn check_run(world: &World, agent: &AgentKey, view: &RunView) -> Result<(), BrokenPromise> {
    let run = view.id;
    let journal = world.data.journal(&agent.tenant, run, 0, usize::MAX).await.map_err(|error| ("S8", error.to_string()))?;
    if journal != world.checks.lock().entries_of(run) {
        return Err(("S7", format!("the journal of {run} is not what it was")));
    }
    if !view.state.has_ended() {
        return Ok(());
    }
    let items =
        world.data.box_items(&agent.tenant, view.state.output.id, 0, usize::MAX).await.map_err(|error| ("S8", error.to_string()))?;
    let deliverables: Vec<_> = items.iter().filter(|item| item.kind == ItemKind::Deliverable).map(|item| item.id).collect();
    if deliverables.len() != 1 || view.deliverable != deliverables.first().copied() {
        return Err(("S4", format!("{run} has the deliverables {deliverables:?} and records {:?}", view.deliverable)));
    }
    if items.len() != view.state.output.length as usize {
        return Err(("S8", format!("the output of {run} has {} items, {} are folded", items.len(), view.state.output.length)));
    }
    match world.ledger.lock().endings_of(run) {
        1 => Ok(()),
        endings => Err(("S4", format!("{run} has {endings} task events"))),
    }
}

/// S4: every acknowledged request has its run, each key has one run, and every run was requested.
fn check_requests(world: &World, agent: &AgentKey, found: &[RunId]) -> Result<(), BrokenPromise> {
    let checks = world.checks.lock();
    let asked = checks.requests.iter().filter(|((whose, _), _)| whose == agent);
    let known: Vec<RunId> = asked.clone().filter_map(|(_, run)| *run).collect();
    if let Some(lost) = known.iter().find(|run| !found.contains(run)) {
        return Err(("S4", format!("{lost} was acknowledged and is not there")));
    }
    let asked = asked.count();
    if found.len() > asked {
        return Err(("S4", format!("{} has {} runs of {asked} requests", agent.agent, found.len())));
    }
    Ok(())
}

/// S5: every acknowledged result is recorded.
async fn check_results(world: &World, agent: &AgentKey) -> Result<(), BrokenPromise> {
    let page = Page { after: 0, limit: usize::MAX };
    let inbox = world.data.inbox(agent, page).await.map_err(|error| ("S8", error.to_string()))?;
    let checks = world.checks.lock();
    let of_agent = checks.acknowledged.iter().filter(|key| checks.agent_of(key.run).as_ref() == Some(agent));
    for key in of_agent {
        let is_it = |kind| kind == MessageKind::ToolResult || kind == MessageKind::Timeout;
        if !inbox.iter().any(|row| row.run == Some(key.run) && row.call == Some(key.call) && is_it(row.kind)) {
            return Err(("S5", format!("the result of {key} was acknowledged and is not there")));
        }
    }
    Ok(())
}
