//! What a head shows of its run, and the two verbs that change a head without a transition.

use windlass_kernel::{AgentIdentity, AgentKey, HeadStatus, Run, RunId, Seq, Timestamp, outstanding};
use windlass_ports::{CallChange, Commit, MessageId, StoreError};

use crate::rows::{HeadRow, MessageRow, Reads, Result, Rows, begins_run};

/// Makes a head show the state of a run that has not ended.
pub(super) fn show(head: &mut HeadRow, state: &Run, leases: &[Timestamp], now: Timestamp) {
    head.status = state.head_status();
    head.waiting = state.waiting_count() as u32;
    head.deadline = state.resume_deadline();
    head.local = outstanding(state).len() as u32;
    head.held = state.is_held();
    head.wake_at = match head.status {
        HeadStatus::Idle => None,
        // No worker has entered: the first one that looks does.
        HeadStatus::Dispatched => Some(now),
        // The owner gets the count of messages with every commit. A wake-up time for them would only make the sweep load the head.
        HeadStatus::Running => state.wake_at(),
        HeadStatus::Suspended => wake_suspended(head, leases, now),
    };
}

/// When a suspended head must be looked at: at its deadline, at the end of a lease, and at once if a message is pending. The last case
/// matters if the owner is lost right after its commit: nothing else points at the message.
fn wake_suspended(head: &HeadRow, leases: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let at_once = (head.pending > 0).then_some(now);
    head.deadline.into_iter().chain(at_once).chain(leases.iter().copied()).min()
}

/// Whether a head was made for one run only: the request named no agent, so the run gave the head its name.
pub(crate) fn is_own_head(agent: &AgentKey, run: RunId) -> bool {
    agent.agent.identity() == AgentIdentity::Run(run)
}

/// Makes a head show that no run is active.
pub(super) fn show_idle(head: &mut HeadRow) {
    head.status = HeadStatus::Idle;
    head.run = None;
    head.waiting = 0;
    head.deadline = None;
    head.wake_at = None;
    head.pending = 0;
    head.local = 0;
    head.held = false;
}

/// Leases a head to a run: the epoch rises, and a worker has to enter.
pub(super) fn lease(head: &mut HeadRow, run: RunId, now: Timestamp) {
    show_idle(head);
    head.status = HeadStatus::Dispatched;
    head.epoch.0 += 1;
    head.run = Some(run);
    head.wake_at = Some(now);
}

/// Whether a service may hold a call that the run still waits for after a commit. No service holds a call that this commit makes.
pub(crate) fn may_be_claimed(commit: &Commit) -> bool {
    let is_made = |call| commit.calls.iter().any(|(made, change)| *made == call && matches!(change, CallChange::Made(_)));
    commit.state.calls().iter().any(|call| !call.is_received() && !is_made(call.call))
}

/// The ends of the leases on a run's calls, as they will be after a commit.
pub(super) fn leases_after<R: Reads + ?Sized>(rows: &R, commit: &Commit) -> Result<Vec<Timestamp>> {
    if !may_be_claimed(commit) {
        return Ok(Vec::new());
    }
    // Every change of a call by a commit ends the lease on it.
    let keeps_hold = |call| commit.calls.iter().all(|(changed, _)| *changed != call);
    let claims = rows.claims(commit.run)?;
    Ok(claims.into_iter().filter(|(call, _)| keeps_hold(*call)).map(|(_, until)| until).collect())
}

/// Computes again when a suspended head must be looked at, after leases or messages changed without a transition.
pub(super) fn rearm<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, before: &HeadRow, mut after: HeadRow, now: Timestamp) -> Result<()> {
    if let (HeadStatus::Suspended, Some(run), None) = (after.status, after.run, &after.quarantined) {
        let leases: Vec<Timestamp> = rows.claims(run)?.into_iter().map(|(_, until)| until).collect();
        after.wake_at = wake_suspended(&after, &leases, now);
    }
    if after == *before { Ok(()) } else { replace_head(rows, agent, before, &after) }
}

/// Whether `HeadRow::pending` counts a pending message.
pub(super) fn is_counted(head: &HeadRow, message: &MessageRow) -> bool {
    !begins_run(message.kind) && (message.run.is_none() || message.run == head.run)
}

/// Quarantines an agent. An agent that has another active run by now is left as it is.
pub(crate) fn quarantine<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, run: RunId, reason: &str) -> Result<()> {
    let Some(before) = rows.head(agent)?.filter(|head| head.run == Some(run)) else {
        return Ok(());
    };
    let after = HeadRow {
        status: HeadStatus::Suspended,
        // A worker that has the run in memory must be fenced: its state may be as unreadable as the stored one.
        seq: Seq(before.seq.0 + 1),
        wake_at: None,
        quarantined: Some(reason.to_owned()),
        ..before.clone()
    };
    replace_head(rows, agent, &before, &after)
}

/// Replaces a head that the verb has read in the same transaction. A head that is not as it was read is an error, and not a refusal: the
/// verb may have written something already, which has to be rolled back.
pub(super) fn replace_head<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Result<()> {
    if rows.update_head(agent, before, after)? { Ok(()) } else { Err(changed_head()) }
}

/// The error of a head that changed in the transaction of a verb that had read it.
pub(super) fn changed_head() -> StoreError {
    StoreError::Corrupt("a head changed while a verb was applied to it".into())
}

/// Sets the status of a pending message to `error`.
pub(crate) fn refuse<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, message: MessageId, reason: &str) -> Result<()> {
    let is_pending = |row: &MessageRow| row.status == windlass_ports::MessageStatus::Pending;
    let Some(refused) = rows.message(agent, message)?.filter(is_pending) else {
        return Ok(());
    };
    rows.refuse_message(agent, message, reason)?;
    let Some(before) = rows.head(agent)?.filter(|head| is_counted(head, &refused)) else {
        return Ok(());
    };
    let after = HeadRow { pending: before.pending.saturating_sub(1), ..before.clone() };
    // A head with more pending messages stays due since its messages arrived.
    let now = before.wake_at.unwrap_or(refused.created_at);
    rearm(rows, agent, &before, after, now)
}
