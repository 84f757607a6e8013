//! The effects a run is still owed: a function of its state, so that recovery is not coded twice.

use crate::{
    ids::{CallNumber, Timestamp},
    manifest::Route,
    run::{ModelCallId, Phase, Progress, Run},
};

/// Something that the owner of a run must do outside the store. It is done only after the commit that made it outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Call the model.
    CallModel {
        /// The identity of the call.
        id: ModelCallId,
        /// The earliest start, after a failed attempt.
        not_before: Option<Timestamp>,
    },
    /// Hand a call to an executor of this process.
    StartTool {
        /// The call to start.
        call: CallNumber,
    },
    /// Record the child run that a call starts.
    StartChild {
        /// The call.
        call: CallNumber,
    },
}

/// All effects that the run is owed in its present state. After a crash the new owner issues exactly these.
///
/// An external call is not among them: its row waits for a tool service to claim it. A child run that is on record has an owner of its own.
/// A call is not among them during the pause before its repetition.
pub fn outstanding(run: &Run) -> Vec<Effect> {
    if run.is_held() {
        return Vec::new();
    }
    match &run.phase {
        Phase::Accepted | Phase::Ended { .. } => Vec::new(),
        Phase::Thinking { not_before, .. } => {
            run.model_call().map(|id| Effect::CallModel { id, not_before: *not_before }).into_iter().collect()
        }
        Phase::Waiting { calls } => calls
            .iter()
            .filter(|call| run.is_free(call) && call.progress == Progress::Open && call.not_before.is_none())
            .filter_map(|call| match call.route {
                Route::InProcess => Some(Effect::StartTool { call: call.call }),
                Route::Child => Some(Effect::StartChild { call: call.call }),
                Route::External | Route::Client | Route::Person => None,
            })
            .collect(),
    }
}

/// The effects that are outstanding after a transition and were not before.
pub fn newly_outstanding(before: &Run, after: &Run) -> Vec<Effect> {
    let old = outstanding(before);
    outstanding(after).into_iter().filter(|effect| !old.contains(effect)).collect()
}
