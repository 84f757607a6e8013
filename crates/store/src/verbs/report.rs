//! Results and instructions from outside the owner: recorded once, and applied by the owner later.

use windlass_kernel::{HeadStatus, RunId};
use windlass_ports::{MessageKind, MessageStatus, NewReport, RunStatus, StoreError, Taken};

use super::{commit::answer_row, erase::is_erased, heads::replace_head};
use crate::rows::{HeadRow, MessageRow, Result, Rows, RunBrief, existing_row, is_report};

/// Records a report. The owner decides whether the run needs it; this only recognises reports that can't have an effect.
pub(crate) fn report<R: Rows + ?Sized>(rows: &mut R, report: &NewReport) -> Result<Taken> {
    let Some(run) = rows.run_brief(report.run)?.filter(|run| run.agent == report.agent) else {
        return Ok(Taken::UnknownRun);
    };
    if let Some(request) = &report.message.key
        && let Some(recorded) = rows.answer_to(&report.agent.tenant, request)?
    {
        // Another request with the same key can only have been made at the same time: a repetition finds it.
        let first = recorded.message.filter(|_| recorded.asked == request.asked);
        return first.map(Taken::Recorded).ok_or(StoreError::Fenced);
    }
    if let Some(call) = report.message.call.filter(|_| is_report(report.message.kind))
        && let Some(first) = rows.report(report.run, call, report.message.kind, report.message.retry)?
    {
        return Ok(Taken::Duplicate(first));
    }
    if report.message.kind == MessageKind::Steer && run.status != RunStatus::Active {
        return Ok(Taken::NotActive);
    }
    let is_late = run.status == RunStatus::Ended;
    let mut row = message(report, &run, if is_late { MessageStatus::Skipped } else { MessageStatus::Pending });
    if is_late && is_erased(rows, run.run)? {
        // The report is recorded without its content, because nothing would ever erase the content.
        (row.item, row.reason) = (None, None);
    } else {
        rows.insert_item(&report.agent.tenant, &report.content)?;
    }
    let id = rows.insert_message(&report.agent, &row)?.ok_or_else(|| existing_row("the report"))?;
    if let Some(request) = &report.message.key {
        rows.insert_answer(&answer_row(&report.agent, run.run, request, id))?;
    }
    if is_late {
        return Ok(Taken::Late(id));
    }
    count(rows, report, run.run)?;
    Ok(Taken::Recorded(id))
}

/// Counts the report on the head. A report for a queued run is counted when that run is leased.
fn count<R: Rows + ?Sized>(rows: &mut R, report: &NewReport, run: RunId) -> Result<()> {
    let Some(before) = rows.head(&report.agent)?.filter(|head| head.run == Some(run)) else {
        return Ok(());
    };
    let mut after = HeadRow { pending: before.pending + 1, ..before.clone() };
    // A running owner gets the count with its next commit; a wake-up time would only make the sweep load the head. A quarantined head is
    // left as it is.
    if before.status == HeadStatus::Suspended && before.quarantined.is_none() {
        after.wake_at = Some(before.wake_at.map_or(report.now, |at| at.min(report.now)));
    }
    replace_head(rows, &report.agent, &before, &after)
}

fn message(report: &NewReport, run: &RunBrief, status: MessageStatus) -> MessageRow {
    let message = &report.message;
    MessageRow {
        kind: message.kind,
        status,
        run: Some(run.run),
        epoch: None,
        call: message.call,
        retry: message.retry,
        item: message.item,
        outcome: message.outcome,
        after: message.after,
        source: message.source.clone(),
        reason: message.reason.clone(),
        below: None,
        created_at: report.now,
        processed_at: (status == MessageStatus::Skipped).then_some(report.now),
    }
}
