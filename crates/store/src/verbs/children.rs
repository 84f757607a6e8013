//! The parts of verbs that concern another run of the same tree: the result for a parent, and the stops for children.
//!
//! The guard of the verb is that of its own head. Of the other heads only the count of messages and the wake-up time change: their status,
//! epoch and sequence number stay, so that no owner is fenced.

use windlass_kernel::{AgentKey, ChildReport, HeadStatus, ParentCall, RunId, Tenant, Timestamp};
use windlass_ports::{CallStatus, Commit, MessageKind, MessageStatus, child_head, parent_head};

use super::{erase::is_erased, heads::replace_head};
use crate::rows::{HeadRow, MessageRow, Reads, Result, Rows, existing_row};

/// Why a child run is stopped.
const PARENT_ENDED: &str = "the run that asked for this one does not wait for it any more";

/// Whether the call that a new child run answers is still open: its run is active, and the call has no result.
pub(super) fn has_parent<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, parent: &ParentCall) -> Result<bool> {
    let is_active = rows.head(&parent_head(tenant, parent))?.is_some_and(|head| head.run == Some(parent.run) && head.quarantined.is_none());
    let waits = |status| matches!(status, CallStatus::Started | CallStatus::Begun | CallStatus::Parked);
    Ok(is_active && rows.call(parent.run, parent.call)?.is_some_and(|call| waits(call.status)))
}

/// Tells the other runs of the tree what a transition means for them: the parent gets its result, and children that nothing waits for are
/// stopped.
pub(super) fn tell_tree<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, commit: &Commit) -> Result<()> {
    if let Some(report) = &commit.report {
        report_to_parent(rows, &agent.tenant, report, commit.now)?;
    }
    commit.stops.iter().try_for_each(|child| stop_child(rows, &agent.tenant, *child, commit.now))
}

/// Puts the result of a child run into the inbox of its parent. A parent that has ended gets it too late.
fn report_to_parent<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, report: &ChildReport, now: Timestamp) -> Result<()> {
    let agent = parent_head(tenant, &report.parent);
    let parent = report.parent.run;
    let head = rows.head(&agent)?.filter(|head| head.run == Some(parent));
    let mut row = message(MessageKind::ToolResult, parent, now);
    row.call = Some(report.parent.call);
    row.outcome = Some(report.status);
    row.item = Some(report.item);
    row.below = Some(report.below).filter(|below| !below.is_empty());
    if head.is_none() {
        (row.status, row.processed_at) = (MessageStatus::Skipped, Some(now));
        if is_erased(rows, parent)? {
            row.item = None;
        }
    }
    // A call has one result: that of its deadline, or an earlier one, stands.
    if rows.report(parent, report.parent.call, MessageKind::ToolResult, 0)?.is_some() {
        return Ok(());
    }
    rows.insert_message(&agent, &row)?.ok_or_else(|| existing_row("the report of a child run"))?;
    head.map_or(Ok(()), |before| count(rows, &agent, &before, Wakes::Suspended, now))
}

/// Asks a child run to stop. One that has ended, or was never recorded, needs none: it can't be recorded any more.
fn stop_child<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, child: RunId, now: Timestamp) -> Result<()> {
    let agent = child_head(tenant, child);
    let Some(before) = rows.head(&agent)?.filter(|head| head.run == Some(child)) else {
        return Ok(());
    };
    let mut row = message(MessageKind::Stop, child, now);
    row.reason = Some(PARENT_ENDED.to_owned());
    rows.insert_message(&agent, &row)?.ok_or_else(|| existing_row("the stop of a child run"))?;
    count(rows, &agent, &before, Wakes::Running, now)
}

/// Which heads a message makes due at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Only a suspended one. A running owner gets the count with its next commit.
    Suspended,
    /// A running one too: its owner must not go on until its next commit.
    Running,
}

fn count<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, before: &HeadRow, wakes: Wakes, now: Timestamp) -> Result<()> {
    let mut after = HeadRow { pending: before.pending + 1, ..before.clone() };
    let is_due = before.status == HeadStatus::Suspended || wakes == Wakes::Running;
    // A quarantined head stays without a wake-up time.
    if is_due && before.quarantined.is_none() {
        after.wake_at = Some(before.wake_at.map_or(now, |at| at.min(now)));
    }
    replace_head(rows, agent, before, &after)
}

fn message(kind: MessageKind, run: RunId, now: Timestamp) -> MessageRow {
    MessageRow {
        kind,
        status: MessageStatus::Pending,
        run: Some(run),
        epoch: None,
        call: None,
        retry: 0,
        item: None,
        outcome: None,
        after: None,
        source: None,
        reason: None,
        below: None,
        created_at: now,
        processed_at: None,
    }
}
