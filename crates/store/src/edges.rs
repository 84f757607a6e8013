//! The edges of the execution graph, derived: every inbox row is one, and so is every call.
//!
//! A call's request stands right before its report; calls that nobody has reported on come last of their run. So a page of edges is
//! a page of the inbox with its calls, and an inbox row is all the cursor there has to be.

use windlass_kernel::{AgentKey, CallNumber, RunId};
use windlass_ports::{CallStatus, Edge, Lineage, MessageId, MessageKind, Page};

use crate::rows::{CallRow, MessageRow, Outcome, Reads, is_missing, is_report};

pub(crate) fn edges<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, page: Page) -> Outcome<Vec<Edge>> {
    let before = rows.message(agent, MessageId(page.after))?.and_then(|row| row.run);
    let mut listing = Listing { rows, edges: Vec::new(), run: before, lineage: lineage(rows, before)? };
    let messages = rows.inbox(agent, page)?;
    let is_last = messages.len() < page.limit;
    for (id, row) in messages {
        if listing.run != row.run {
            listing.go_on_to(row.run)?;
        }
        listing.message(id, &row)?;
    }
    if is_last {
        listing.go_on_to(None)?;
    }
    Ok(listing.edges)
}

struct Listing<'a, R: ?Sized> {
    rows: &'a R,
    edges: Vec<Edge>,
    /// Whose messages are being listed.
    run: Option<RunId>,
    /// Where that run comes from.
    lineage: Lineage,
}

impl<R: Reads + ?Sized> Listing<'_, R> {
    /// Messages of one run stand together: before those of another, the calls that have no message.
    fn go_on_to(&mut self, next: Option<RunId>) -> Outcome<()> {
        if let Some(run) = self.run {
            let calls = unreported(self.rows, run)?;
            self.edges.extend(calls.iter().map(|call| call_edge(call, &self.lineage)));
        }
        self.run = next;
        self.lineage = lineage(self.rows, next)?;
        Ok(())
    }

    fn message(&mut self, id: MessageId, row: &MessageRow) -> Outcome<()> {
        if let (Some(run), Some(call), true) = (row.run, row.call, is_report(row.kind))
            && let Some(call) = self.rows.call(run, call)?
            && first_report(self.rows, &call)? == Some(id)
        {
            self.edges.push(call_edge(&call, &self.lineage));
        }
        self.edges.push(edge(Some(id), words(row.kind), row.run, row.call, &self.lineage, row.created_at));
        Ok(())
    }
}

fn lineage<R: Reads + ?Sized>(rows: &R, run: Option<RunId>) -> Outcome<Lineage> {
    match run {
        None => Ok(Lineage::default()),
        Some(run) => rows.lineage(run)?.ok_or_else(|| is_missing("a message's run")),
    }
}

/// Calls that no message is about. Only such can be missing one as are open, or were given up with their run.
fn unreported<R: Reads + ?Sized>(rows: &R, run: RunId) -> Outcome<Vec<CallRow>> {
    let mut found = Vec::new();
    let mut from = CallNumber(0);
    loop {
        let page = rows.calls(run, from, CALLS_PAGE)?;
        let Some(last) = page.last() else { return Ok(found) };
        from = CallNumber(last.call.0 + 1);
        let is_last = page.len() < CALLS_PAGE;
        for call in page {
            let may_lack = !matches!(call.status, CallStatus::Applied | CallStatus::Received | CallStatus::Expired);
            if may_lack && first_report(rows, &call)?.is_none() {
                found.push(call);
            }
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// Calls read at once.
const CALLS_PAGE: usize = 256;

/// A call may have a result and a timeout: its request stands before whichever came first.
fn first_report<R: Reads + ?Sized>(rows: &R, call: &CallRow) -> Outcome<Option<MessageId>> {
    let result = rows.report(call.run, call.call, MessageKind::ToolResult)?;
    let timeout = rows.report(call.run, call.call, MessageKind::Timeout)?;
    Ok(result.into_iter().chain(timeout).min())
}

fn call_edge(call: &CallRow, lineage: &Lineage) -> Edge {
    edge(None, ("tool_call", "request"), Some(call.run), Some(call.call), lineage, call.created_at)
}

fn edge(
    message: Option<MessageId>,
    (primitive, phase): (&'static str, &'static str),
    run: Option<RunId>,
    call: Option<CallNumber>,
    lineage: &Lineage,
    at: windlass_kernel::Timestamp,
) -> Edge {
    Edge { message, primitive, phase, run, call, trace: lineage.trace, parent_step: lineage.parent_step.clone(), depth: lineage.depth, at }
}

fn words(kind: MessageKind) -> (&'static str, &'static str) {
    match kind {
        MessageKind::Turn | MessageKind::UiAction => ("enqueue", "request"),
        MessageKind::ToolResult | MessageKind::Timeout => ("report", "response"),
        MessageKind::Stop => ("stop", "request"),
        MessageKind::Answer => ("answer", "response"),
    }
}
