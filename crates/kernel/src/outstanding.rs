//! The effects a run is still owed: a function of its state, so that recovery is not coded twice.

use crate::{
    ids::{CallNumber, Timestamp},
    manifest::Route,
    run::{Phase, Progress, Run},
};

/// Something this process must do for a run. It is done only after the commit that made it owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Ask the model.
    CallModel {
        /// For which lap.
        iteration: u32,
        /// Which try.
        attempt: u32,
        /// Not before this moment.
        not_before: Option<Timestamp>,
    },
    /// Hand a call to an executor of this process.
    StartTool {
        /// Which call.
        call: CallNumber,
    },
}

/// Everything the run is owed now. After a crash the new owner issues exactly these.
///
/// An external call is not among them: its row waits for a claim, which is the service's move.
pub fn outstanding(run: &Run) -> Vec<Effect> {
    if run.parked.is_some() {
        return Vec::new();
    }
    match &run.phase {
        Phase::Accepted | Phase::Ended { .. } => Vec::new(),
        Phase::Thinking { attempt, not_before } => {
            vec![Effect::CallModel { iteration: run.iteration, attempt: *attempt, not_before: *not_before }]
        }
        Phase::Waiting { calls } => calls
            .iter()
            .filter(|call| call.route == Route::InProcess && call.progress == Progress::Open)
            .map(|call| Effect::StartTool { call: call.call })
            .collect(),
    }
}

/// What a transition made owed that was not owed before.
pub fn newly_owed(before: &Run, after: &Run) -> Vec<Effect> {
    let old = outstanding(before);
    outstanding(after).into_iter().filter(|effect| !old.contains(effect)).collect()
}
