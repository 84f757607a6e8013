//! What a head shows, and the two verbs that touch a head without a transition.

use windlass_kernel::{AgentKey, HeadStatus, Run, RunId, Seq, Timestamp, outstanding};
use windlass_ports::{CallChange, Commit, MessageId};

use crate::rows::{HeadRow, MessageRow, Outcome, Reads, Rows, begins_run};

/// Lets a head show a run that goes on.
pub(super) fn show(head: &mut HeadRow, state: &Run, leases: &[Timestamp], now: Timestamp) {
    head.status = state.head_status();
    head.waiting = state.waiting_count() as u32;
    head.deadline = state.resume_deadline();
    head.local = outstanding(state).len() as u32;
    head.wake_at = match head.status {
        HeadStatus::Idle => None,
        // Nobody has entered: whoever looks first does.
        HeadStatus::Dispatched => Some(now),
        // The owner learns of messages by its commits; waking it for them would only spin.
        HeadStatus::Running => state.wake_at(),
        HeadStatus::Suspended => wake_suspended(head, leases, now),
    };
}

/// When somebody has to look at a suspended head: at its deadline, at the end of a lease, at once if a message waits. The
/// last matters when the owner is lost right after its commit: nothing else would point at the message.
fn wake_suspended(head: &HeadRow, leases: &[Timestamp], now: Timestamp) -> Option<Timestamp> {
    let at_once = (head.pending > 0).then_some(now);
    head.deadline.into_iter().chain(at_once).chain(leases.iter().copied()).min()
}

/// Whether a head is there for one run only: nobody named an agent, so the run itself gave the name.
pub(crate) fn is_own_head(agent: &AgentKey, run: RunId) -> bool {
    agent.agent.as_str() == run.to_string()
}

/// Lets a head show that no run is active.
pub(super) fn show_idle(head: &mut HeadRow) {
    head.status = HeadStatus::Idle;
    head.run = None;
    head.waiting = 0;
    head.deadline = None;
    head.wake_at = None;
    head.pending = 0;
    head.local = 0;
}

/// Leases a head to a run: a new epoch, and somebody has to enter.
pub(super) fn lease(head: &mut HeadRow, run: RunId, now: Timestamp) {
    show_idle(head);
    head.status = HeadStatus::Dispatched;
    head.epoch.0 += 1;
    head.run = Some(run);
    head.wake_at = Some(now);
}

/// Whether a service may hold a call that the run still waits for after a commit. One that is only just made is nobody's.
pub(crate) fn may_be_held(commit: &Commit) -> bool {
    let is_made = |call| commit.calls.iter().any(|(made, change)| *made == call && matches!(change, CallChange::Made(_)));
    commit.state.calls().iter().any(|call| !call.is_received() && !is_made(call.call))
}

/// The ends of the leases on a run's calls, as they will be after a commit.
pub(super) fn leases_after<R: Reads + ?Sized>(rows: &R, commit: &Commit) -> Outcome<Vec<Timestamp>> {
    if !may_be_held(commit) {
        return Ok(Vec::new());
    }
    // Whatever a commit does to a call ends the hold on it.
    let keeps_hold = |call| commit.calls.iter().all(|(changed, _)| *changed != call);
    let claims = rows.claims(commit.run)?;
    Ok(claims.into_iter().filter(|(call, _)| keeps_hold(*call)).map(|(_, until)| until).collect())
}

/// Sets anew when a suspended head is to be looked at, after leases or messages changed without a transition.
pub(super) fn rearm<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, before: &HeadRow, mut after: HeadRow, now: Timestamp) -> Outcome<()> {
    if let (HeadStatus::Suspended, Some(run), None) = (after.status, after.run, &after.quarantined) {
        let leases: Vec<Timestamp> = rows.claims(run)?.into_iter().map(|(_, until)| until).collect();
        after.wake_at = wake_suspended(&after, &leases, now);
    }
    if after != *before {
        rows.update_head(agent, before, &after)?;
    }
    Ok(())
}

/// Whether a pending message is one that `HeadRow::pending` counts.
pub(super) fn is_counted(head: &HeadRow, message: &MessageRow) -> bool {
    !begins_run(message.kind) && (message.run.is_none() || message.run == head.run)
}

/// Takes an agent out of the way. One that has gone on from the run is in nobody's way and stays as it is.
pub(crate) fn quarantine<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, run: RunId, reason: &str) -> Outcome<()> {
    let Some(before) = rows.head(agent)?.filter(|head| head.run == Some(run)) else {
        return Ok(());
    };
    let after = HeadRow {
        status: HeadStatus::Suspended,
        // Whoever worked on it must not go on: what it knows may be as unreadable as what is stored.
        seq: Seq(before.seq.0 + 1),
        wake_at: None,
        quarantined: Some(reason.to_owned()),
        ..before.clone()
    };
    rows.update_head(agent, &before, &after)?;
    Ok(())
}

/// Makes a pending message an error.
pub(crate) fn refuse<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, message: MessageId, reason: &str) -> Outcome<()> {
    let is_pending = |row: &MessageRow| row.status == windlass_ports::MessageStatus::Pending;
    let Some(refused) = rows.message(agent, message)?.filter(is_pending) else {
        return Ok(());
    };
    rows.refuse_message(agent, message, reason)?;
    let Some(before) = rows.head(agent)?.filter(|head| is_counted(head, &refused)) else {
        return Ok(());
    };
    let after = HeadRow { pending: before.pending.saturating_sub(1), ..before.clone() };
    // A head that has more to read stays due from when its messages came.
    let now = before.wake_at.unwrap_or(refused.created_at);
    rearm(rows, agent, &before, after, now)
}
