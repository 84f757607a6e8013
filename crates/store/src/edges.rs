//! The edges of the execution graph. They are derived: every inbox row is an edge, and so is every call.
//!
//! The edge of a call precedes that of its report; calls without a report come last in their run. So a page of edges is a page of the inbox
//! with the calls added, and an inbox row is a sufficient cursor.

use windlass_kernel::{AgentKey, CallNumber, Route, RunId};
use windlass_ports::{CallStatus, Edge, Lineage, MessageId, MessageKind, Page};

use crate::rows::{CallRow, MessageRow, Reads, Result, is_report, missing_row};

pub(crate) fn edges<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, page: Page) -> Result<Vec<Edge>> {
    let before = rows.message(agent, MessageId(page.after))?.and_then(|row| row.run);
    let mut listing = Listing { rows, edges: Vec::new(), run: before, lineage: lineage(rows, before)? };
    let messages = rows.inbox(agent, page)?;
    let is_last = messages.len() < page.limit;
    for (id, row) in messages {
        if listing.run != row.run {
            listing.move_to(row.run)?;
        }
        listing.message(id, &row)?;
    }
    if is_last {
        listing.move_to(None)?;
    }
    Ok(listing.edges)
}

struct Listing<'a, R: ?Sized> {
    rows: &'a R,
    edges: Vec<Edge>,
    /// The run whose messages are being listed.
    run: Option<RunId>,
    /// The lineage of that run.
    lineage: Lineage,
}

impl<R: Reads + ?Sized> Listing<'_, R> {
    /// Moves to the run of the next message. The messages of a run are adjacent: before those of the next run, the calls without a message
    /// are listed.
    fn move_to(&mut self, next: Option<RunId>) -> Result<()> {
        if let Some(run) = self.run {
            let calls = unreported(self.rows, run)?;
            self.edges.extend(calls.iter().map(|call| call_edge(call, &self.lineage)));
        }
        self.run = next;
        self.lineage = lineage(self.rows, next)?;
        Ok(())
    }

    fn message(&mut self, id: MessageId, row: &MessageRow) -> Result<()> {
        if let (Some(run), Some(call), true) = (row.run, row.call, is_report(row.kind))
            && let Some(call) = self.rows.call(run, call)?
            && first_report(self.rows, &call)? == Some(id)
        {
            self.edges.push(call_edge(&call, &self.lineage));
        }
        let joins = match (row.run, row.call) {
            (Some(run), Some(call)) if is_report(row.kind) => self.rows.call(run, call)?.is_some_and(|call| call.route == Route::Child),
            (_, _) => false,
        };
        let names = if joins { JOINED } else { primitive_and_phase(row.kind) };
        self.edges.push(edge(Some(id), names, row.run, row.call, &self.lineage, row.created_at));
        Ok(())
    }
}

fn lineage<R: Reads + ?Sized>(rows: &R, run: Option<RunId>) -> Result<Lineage> {
    match run {
        None => Ok(Lineage::default()),
        Some(run) => rows.lineage(run)?.ok_or_else(|| missing_row("a message's run")),
    }
}

/// The calls that no message is about. Only calls that are open or were dropped with their run can be without one.
fn unreported<R: Reads + ?Sized>(rows: &R, run: RunId) -> Result<Vec<CallRow>> {
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

/// The number of calls that are read at once.
const CALLS_PAGE: usize = 256;

/// The first message about a call. A call may have a result and a timeout, and its edge precedes the earlier one.
fn first_report<R: Reads + ?Sized>(rows: &R, call: &CallRow) -> Result<Option<MessageId>> {
    let result = rows.report(call.run, call.call, MessageKind::ToolResult, 0)?;
    let timeout = rows.report(call.run, call.call, MessageKind::Timeout, 0)?;
    Ok(result.into_iter().chain(timeout).min())
}

/// The edges of a call that joins another run, and of that run's result.
const JOINS: (&str, &str) = ("join", "request");
const JOINED: (&str, &str) = ("join", "response");

fn call_edge(call: &CallRow, lineage: &Lineage) -> Edge {
    let names = if call.route == Route::Child { JOINS } else { ("tool_call", "request") };
    edge(None, names, Some(call.run), Some(call.call), lineage, call.created_at)
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

fn primitive_and_phase(kind: MessageKind) -> (&'static str, &'static str) {
    match kind {
        MessageKind::Turn | MessageKind::UiAction => ("enqueue", "request"),
        MessageKind::ToolResult | MessageKind::Timeout => ("report", "response"),
        MessageKind::Stop => ("stop", "request"),
        MessageKind::Answer => ("answer", "response"),
        MessageKind::Steer => ("steer", "request"),
    }
}
