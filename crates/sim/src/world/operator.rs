//! A person who looks for parked runs and calls from time to time and decides about some of them, not always before their deadlines.

use std::sync::Arc;

use windlass_engine::{EngineError, Reconcile, Verdict};
use windlass_kernel::{AgentKey, Progress, Run, RunId, TaskStatus};

use super::{
    World,
    clients::{Unanswered, any_node, ask},
    pass_ms,
};

/// Starts the person, if this world has one.
pub(super) fn begin(world: &Arc<World>) {
    if world.options.operator {
        tokio::spawn(look(world.clone()));
    }
}

async fn look(world: Arc<World>) {
    loop {
        pass_ms(world.between(1_000, 6_000)).await;
        for agent in world.agents.clone() {
            let runs = world.checks.lock().runs_of(&agent);
            for run in runs {
                let Some(state) = world.checks.lock().state_of(run) else { continue };
                if let Some(verdict) = choose_verdict(&world, &state) {
                    decide(&world, &agent, run, verdict).await;
                }
            }
        }
    }
}

fn choose_verdict(world: &World, state: &Run) -> Option<Verdict> {
    if state.has_ended() {
        return None;
    }
    let parked = state.calls().iter().find(|call| call.progress == Progress::Parked).map(|call| call.call);
    let verdict = match (state.parked, parked) {
        (Some(_), _) => Verdict::Unpark,
        (None, Some(call)) => match world.between(0, 3) {
            0 => Verdict::Record { call, status: TaskStatus::Success, result: "\"by hand\"".into() },
            1 => Verdict::Tell { call },
            _ => Verdict::Release { call },
        },
        (None, None) => return None,
    };
    (world.is_calm() || world.chance(1, 2)).then_some(verdict)
}

async fn decide(world: &Arc<World>, agent: &AgentKey, run: RunId, verdict: Verdict) {
    let (node, engine) = any_node(world).await;
    world.log("operator", format_args!("decides {verdict:?} for {run} at {}", node.name));
    let reconcile = Reconcile { agent: agent.clone(), run, verdict, source: None, key: None };
    match ask(world, &node, engine.reconcile(reconcile)).await {
        Ok(()) | Err(Unanswered::Lost | Unanswered::Refused(EngineError::NotParked)) => {}
        Err(Unanswered::Refused(error)) => world.break_promise("S11", format_args!("a decision about {run} is refused: {error}")),
    }
}
