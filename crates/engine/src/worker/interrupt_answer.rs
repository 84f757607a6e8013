//! Which interrupt a person's answer is about, and whether the answer fits it. The kernel checks the same; here the person gets the reason.

use windlass_kernel::{Cause, Interrupt, Run};

use crate::api::{AnswerAction, AnswerInterrupt, AnswerTarget, EngineError};

/// The open interrupt that an answer is about, if the answer fits it.
pub(super) fn find<'a>(run: &'a Run, answer: &AnswerInterrupt) -> Result<&'a Interrupt, EngineError> {
    let (found, shows) = match &answer.target {
        AnswerTarget::Interrupt { number, shows } => (run.interrupt(*number), *shows),
        AnswerTarget::Call(call) => (run.call_hold(*call), None),
        AnswerTarget::Run => (run.hold(), None),
    };
    let open = found.ok_or(EngineError::NotParked)?;
    let fits = match (&answer.action, open.cause) {
        (AnswerAction::End, _) => true,
        (AnswerAction::Approve | AnswerAction::Edit { .. }, Cause::Approval)
        | (AnswerAction::Reject { .. }, Cause::Approval | Cause::Question) => {
            // An edit of something else than the interrupt showed has no content.
            let is_empty = matches!(&answer.action, AnswerAction::Edit { call } if call.is_empty());
            if open.shows != shows || is_empty {
                return Err(EngineError::NotShown);
            }
            true
        }
        (AnswerAction::Answer { .. }, Cause::Question) => true,
        (AnswerAction::Record { .. } | AnswerAction::Release | AnswerAction::Tell, Cause::UnknownOutcome) => true,
        (AnswerAction::Raise { limit }, Cause::Budget) => {
            check_limit(open, *limit)?;
            true
        }
        (AnswerAction::Resume, Cause::OwnersLost | Cause::Panicked) => true,
        (
            AnswerAction::Approve
            | AnswerAction::Edit { .. }
            | AnswerAction::Reject { .. }
            | AnswerAction::Answer { .. }
            | AnswerAction::Record { .. }
            | AnswerAction::Release
            | AnswerAction::Tell
            | AnswerAction::Raise { .. }
            | AnswerAction::Resume,
            _,
        ) => false,
    };
    let name = answer.source.as_deref().unwrap_or_default();
    match fits {
        false => Err(EngineError::UnfitDecision),
        true if open.approvals.iter().any(|by| **by == *name) && matches!(answer.action, AnswerAction::Approve) => {
            Err(EngineError::AlreadyApproved)
        }
        true => Ok(open),
    }
}

fn check_limit(open: &Interrupt, limit: u64) -> Result<(), EngineError> {
    let passed = open.budget.ok_or(EngineError::UnfitDecision)?;
    match limit >= passed.limit_min() {
        true => Ok(()),
        false => {
            Err(EngineError::RaisedTooLittle { kind: passed.breach.kind, limit_min: passed.limit_min(), used: passed.breach.observed })
        }
    }
}
