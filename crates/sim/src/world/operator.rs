//! A person who looks for parked runs and calls from time to time and decides about some of them, not always before their deadlines.

use std::sync::Arc;

use windlass_engine::{AnswerAction, AnswerInterrupt, AnswerTarget, EngineError};
use windlass_kernel::{AgentKey, Cause, Run, RunId, TaskStatus};

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
                if let Some((target, action)) = choose_answer(&world, &state) {
                    decide(&world, &agent, run, target, action).await;
                }
            }
        }
    }
}

fn choose_answer(world: &World, state: &Run) -> Option<(AnswerTarget, AnswerAction)> {
    if state.has_ended() {
        return None;
    }
    // The person answers the newest interrupt first, so that a run which is held as a whole does not wait for its calls.
    let open = state.hold().or_else(|| state.interrupts.first())?;
    let action = match open.cause {
        Cause::OwnersLost | Cause::Panicked => AnswerAction::Resume,
        Cause::UnknownOutcome => match world.between(0, 3) {
            0 => AnswerAction::Record { status: TaskStatus::Success, result: "\"by hand\"".into() },
            1 => AnswerAction::Tell,
            _ => AnswerAction::Release,
        },
        Cause::Budget => AnswerAction::Raise { limit: open.budget.map_or(1, |passed| passed.limit_min().saturating_mul(2)) },
        Cause::Question => AnswerAction::Answer { answer: "\"as you like\"".into() },
        Cause::Approval => match world.between(0, 4) {
            0 => AnswerAction::Reject { comment: "not now".into() },
            _ => AnswerAction::Approve,
        },
    };
    let target = AnswerTarget::Interrupt { number: open.number, shows: open.shows };
    (world.is_calm() || world.chance(1, 2)).then_some((target, action))
}

async fn decide(world: &Arc<World>, agent: &AgentKey, run: RunId, target: AnswerTarget, action: AnswerAction) {
    let (node, engine) = any_node(world).await;
    world.log("operator", format_args!("decides {action:?} for {target:?} of {run} at {}", node.name));
    let answer = AnswerInterrupt { agent: agent.clone(), run, target, action, source: None, key: None };
    match ask(world, &node, engine.answer_interrupt(answer)).await {
        Ok(_) | Err(Unanswered::Lost | Unanswered::Refused(EngineError::NotParked)) => {}
        Err(Unanswered::Refused(error)) => world.break_promise("S11", format_args!("a decision about {run} is refused: {error}")),
    }
}
