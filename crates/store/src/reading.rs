//! Reads that are the same for all databases: the owner's `load`, and the views.

use std::sync::Arc;

use windlass_kernel::{AgentKey, BoxId, Budgets, CallNumber, Event, ItemId, Manifest, Phase, Run, RunId, StreamedText, Tenant, apply};
use windlass_ports::{
    BoxView, CallView, Head, HeadView, InboxView, Item, JournalEntry, JournalRecord, KeptAnswer, Lineage, Loaded, LoadedRun, Message,
    MessageId, Page, RunView, StoreError, codec,
};

use crate::{
    journal_batch::{JournalBatch, unpack},
    rows::{CallRow, HeadRow, ItemRow, JournalRow, MessageRow, NO_MANIFEST, Reads, Result, RunRow, missing_row},
    verbs::{is_erased, join_deltas},
};

/// The number of events that are read at once when a state is brought up to date.
const EVENTS_PAGE: usize = 64;

/// An agent's head, its active run, and the pending messages of that run or of none.
pub(crate) fn load<R: Reads + ?Sized>(rows: &R, agent: &AgentKey) -> Result<Option<Loaded>> {
    let Some(head) = rows.head(agent)? else {
        return Ok(None);
    };
    let run = match head.run {
        None => None,
        Some(run) => Some(loaded_run(rows, run)?),
    };
    // A count of zero is the common case and saves the read.
    let pending = if head.pending == 0 { Vec::new() } else { rows.pending(agent)? };
    let turn = run.as_ref().and_then(|run| run.turn);
    let is_for_owner = |id, row: &MessageRow| Some(id) != turn && (row.run.is_none() || row.run == head.run);
    let pending = pending.into_iter().filter(|(id, row)| is_for_owner(*id, row)).map(message).collect();
    Ok(Some(Loaded { head: head_brief(rows, &head)?, run, pending }))
}

fn head_brief<R: Reads + ?Sized>(rows: &R, head: &HeadRow) -> Result<Head> {
    let owner_lives = head.owner.map_or(Ok(false), |owner| rows.lives(owner))?;
    Ok(Head { status: head.status, epoch: head.epoch, seq: head.seq, owner: head.owner, owner_lives, queued: head.queued })
}

fn loaded_run<R: Reads + ?Sized>(rows: &R, id: RunId) -> Result<LoadedRun> {
    let row = rows.run(id)?.ok_or_else(|| missing_row("a head's run"))?;
    let state = state_of(rows, &row)?;
    let manifest = rows.manifest(&row.brief.agent.tenant, &row.manifest)?.ok_or_else(|| missing_row("a run's manifest"))?;
    let turn = matches!(state.phase, Phase::Accepted).then_some(row.brief.message);
    let claims = if state.calls().is_empty() { Vec::new() } else { rows.claims(id)? };
    Ok(LoadedRun { id, state, manifest, agent_name: row.brief.agent_name, follows: row.follows, turn, claims })
}

/// The state of a run: the stored state, with the later events of its journal applied.
pub(crate) fn state_of<R: Reads + ?Sized>(rows: &R, row: &RunRow) -> Result<Run> {
    let mut state = codec::decode_run(row.state_version, &row.state)?;
    loop {
        let next = state.as_ref().map_or(0, |run| run.next_number);
        let since = rows.journal(row.brief.run, next, EVENTS_PAGE)?;
        let is_last = since.len() < EVENTS_PAGE;
        state = fold(state, since)?;
        if is_last {
            return state.ok_or_else(|| missing_row("a run's state"));
        }
    }
}

/// Applies the next events to a state.
fn fold(mut state: Option<Run>, events: impl IntoIterator<Item = JournalRow>) -> Result<Option<Run>> {
    for entry in events {
        let event = codec::decode_event(&entry.kind, entry.version, &entry.body)?;
        state = Some(apply(state, &event).ok_or_else(|| missing_row("a run's state"))?);
    }
    Ok(state)
}

/// The state of a run, of a stored state and the later batches of its journal. The first batch may begin with events of the stored state.
pub(crate) fn state_after(stored: Option<Run>, batches: &[(JournalBatch, String)]) -> Result<Run> {
    let next = stored.as_ref().map_or(0, |run| run.next_number);
    let mut state = stored;
    for (batch, list) in batches {
        state = fold(state, unpack(batch, list)?.into_iter().filter(|row| row.number >= next))?;
    }
    state.ok_or_else(|| missing_row("a run's state"))
}

fn message((id, row): (MessageId, MessageRow)) -> Message {
    Message {
        id,
        kind: row.kind,
        run: row.run,
        call: row.call,
        retry: row.retry,
        item: row.item,
        outcome: row.outcome,
        after: row.after,
        reason: row.reason,
        below: row.below,
    }
}

pub(crate) fn head<R: Reads + ?Sized>(rows: &R, agent: &AgentKey) -> Result<Option<HeadView>> {
    Ok(rows.head(agent)?.map(|head| HeadView {
        status: head.status,
        epoch: head.epoch,
        run: head.run,
        waiting: head.waiting,
        deadline: head.deadline,
        queued: head.queued,
        pending: head.pending,
        runs: head.runs,
        quarantined: head.quarantined,
    }))
}

pub(crate) fn run<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId) -> Result<Option<RunView>> {
    rows.run(run)?.filter(|row| row.brief.agent.tenant == *tenant).map(|row| run_view(rows, row)).transpose()
}

pub(crate) fn agent_of<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId) -> Result<Option<AgentKey>> {
    Ok(rows.run_brief(run)?.map(|run| run.agent).filter(|agent| agent.tenant == *tenant))
}

pub(crate) fn run_from<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, ordinal: u64) -> Result<Option<RunView>> {
    rows.run_from(agent, ordinal)?.map(|row| run_view(rows, row)).transpose()
}

fn run_view<R: Reads + ?Sized>(rows: &R, row: RunRow) -> Result<RunView> {
    let state = state_of(rows, &row)?;
    view_of(rows, row, state)
}

/// The view of a run whose state is known.
pub(crate) fn view_of<R: Reads + ?Sized>(rows: &R, row: RunRow, state: Run) -> Result<RunView> {
    let manifest = manifest_of(rows, &row)?;
    Ok(RunView {
        id: row.brief.run,
        agent: row.brief.agent,
        agent_name: row.brief.agent_name,
        message: row.brief.message,
        ordinal: row.brief.ordinal,
        status: row.brief.status,
        epoch: row.brief.epoch,
        lineage: Lineage { caller: state.caller, ..row.lineage },
        state,
        manifest: (*manifest).clone(),
        note: row.note,
        deliverable: row.deliverable,
        kind: row.kind,
        created_at: row.created_at,
        ended_at: row.ended_at,
        unlisted: row.unlisted,
        erase_ms: row.erase_ms,
    })
}

/// The manifest of a run. An erased run has an empty one, because what it may do does not matter any more.
pub(crate) fn manifest_of<R: Reads + ?Sized>(rows: &R, row: &RunRow) -> Result<Arc<Manifest>> {
    if row.manifest != NO_MANIFEST
        && let Some(found) = rows.manifest(&row.brief.agent.tenant, &row.manifest)?
    {
        return Ok(found);
    }
    // The run may have been erased after its row was read.
    if !is_erased(rows, row.brief.run)? {
        return Err(missing_row("a run's manifest"));
    }
    Ok(Arc::new(Manifest::plain("", Budgets { iterations: 0, calls: None, tokens: None, wall_ms: None, children: None, cost: None })))
}

/// Whether the run belongs to the tenant. Another tenant's run looks like an unknown one.
fn is_run_of<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId) -> Result<bool> {
    Ok(rows.run_brief(run)?.is_some_and(|run| run.agent.tenant == *tenant))
}

pub(crate) fn run_by_key<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, key: &str) -> Result<Option<RunId>> {
    Ok(rows.run_by_dedupe(tenant, &codec::key_hash(tenant, key))?.map(|brief| brief.run))
}

pub(crate) fn answered<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, key: &str) -> Result<Option<KeptAnswer>> {
    let recorded = rows.answer(tenant, &codec::key_hash(tenant, key))?;
    Ok(recorded.map(|row| KeptAnswer { asked: row.asked, message: row.message, lost: row.lost }))
}

pub(crate) fn inheriting_run<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId) -> Result<Option<RunId>> {
    Ok(rows.inheriting_run(tenant, run)?.map(|taker| taker.run))
}

pub(crate) fn streamed_text<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId) -> Result<StreamedText> {
    if !is_run_of(rows, tenant, run)? {
        return Ok(StreamedText::default());
    }
    Ok(join_deltas(rows.deltas(run)?))
}

pub(crate) fn journal<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalEntry>> {
    if !is_run_of(rows, tenant, run)? {
        return Ok(Vec::new());
    }
    let decoded = rows.journal(run, from, limit)?.into_iter().map(|row| {
        let event = codec::decode_event(&row.kind, row.version, &row.body)?;
        Ok(JournalEntry { number: row.number, epoch: row.epoch, at: row.at, event })
    });
    decoded.collect()
}

pub(crate) fn journal_records<R: Reads + ?Sized>(
    rows: &R,
    tenant: &Tenant,
    run: RunId,
    so_far: Option<Run>,
    limit: usize,
) -> Result<Vec<JournalRecord>> {
    let (from, taken) = so_far.as_ref().map_or((0, 0), |run| (run.next_number, run.output.length));
    let entries = journal(rows, tenant, run, from, limit)?;
    let mut state = so_far;
    let mut lengths = Vec::with_capacity(entries.len());
    for entry in &entries {
        state = apply(state.take(), &entry.event);
        lengths.push(state.as_ref().map_or(0, |run| run.output.length));
    }
    let mut items = match state.map(|run| run.output).filter(|output| output.length > taken) {
        Some(output) => rows.box_items(output.id, taken.into(), output.length.into(), (output.length - taken) as usize)?,
        None => Vec::new(),
    }
    .into_iter();
    let mut before = taken;
    let mut journal_records = Vec::with_capacity(entries.len());
    for (entry, after) in entries.into_iter().zip(lengths) {
        let count = after.saturating_sub(before) as usize;
        let appended = items.by_ref().take(count).map(|(_, row)| verified(row)).collect::<Result<Vec<_>>>()?;
        if appended.len() != count {
            return Err(missing_row("an item of an output box"));
        }
        let mut result = None;
        if let Event::Reported { item: reported, .. } = &entry.event {
            result = item(rows, tenant, *reported)?;
        }
        before = after;
        journal_records.push(JournalRecord { entry, appended, result });
    }
    Ok(journal_records)
}

pub(crate) fn calls<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallView>> {
    let found = rows.calls(run, from, limit)?;
    Ok(found.into_iter().filter(|call| call.agent.tenant == *tenant).map(call_view).collect())
}

fn call_view(row: CallRow) -> CallView {
    CallView {
        call: row.call,
        iteration: row.iteration,
        tool: row.tool,
        route: row.route,
        effect: row.effect,
        status: row.status,
        deadline: row.deadline,
        item: row.item,
        result: row.result,
        worker: row.worker,
        lease_until: row.lease_until,
        created_at: row.created_at,
        retry: row.retry,
        attempt: row.attempt,
    }
}

pub(crate) fn item<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: ItemId) -> Result<Option<Item>> {
    rows.item(tenant, id)?.map(verified).transpose()
}

/// The item, if its content still has the hash that was stored with it.
pub(crate) fn verified(row: ItemRow) -> Result<Item> {
    if codec::content_hash(&row.content) != row.hash {
        return Err(StoreError::Corrupt(format!("the content of {} is not what was written", row.id).into()));
    }
    let header = row.header.and_then(|header| codec::decode_header(&header));
    Ok(Item { id: row.id, kind: row.kind, content: row.content, header })
}

pub(crate) fn open_box<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: BoxId) -> Result<Option<BoxView>> {
    let Some(found) = rows.find_box(id)?.filter(|found| found.tenant == *tenant) else {
        return Ok(None);
    };
    Ok(Some(BoxView { length: rows.box_length(id)?, parent: found.parent }))
}

pub(crate) fn box_items<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: BoxId, from: u32, limit: usize) -> Result<Vec<Item>> {
    if open_box(rows, tenant, id)?.is_none() {
        return Ok(Vec::new());
    }
    rows.box_items(id, from.into(), i64::MAX, limit)?.into_iter().map(|(_, row)| verified(row)).collect()
}

pub(crate) fn inbox<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, page: Page) -> Result<Vec<InboxView>> {
    Ok(rows.inbox(agent, page)?.into_iter().map(inbox_view).collect())
}

fn inbox_view((id, row): (MessageId, MessageRow)) -> InboxView {
    InboxView {
        id,
        kind: row.kind,
        status: row.status,
        run: row.run,
        epoch: row.epoch,
        call: row.call,
        item: row.item,
        outcome: row.outcome,
        after: row.after,
        source: row.source,
        reason: row.reason,
        created_at: row.created_at,
        processed_at: row.processed_at,
    }
}
