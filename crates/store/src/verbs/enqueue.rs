//! Records a request as a run. If its agent is idle, the run is leased or entered as well.

use windlass_kernel::{AgentIdentity, BoxRange, Epoch, Seq};
use windlass_ports::{Commit, Enqueued, MessageId, MessageKind, MessageStatus, NewRun, OpenRequest, RunStatus, codec};

use super::{
    boxes::{fill, known_range, make_box, share},
    children::has_parent,
    commit::{Plan, add_to_outbox, finish, journal_row, plan, run_change, write},
    conversations,
    erase::erase_ms,
    heads::lease,
};
use crate::{
    StoreOptions,
    rows::{BoxRow, HeadRow, MessageRow, Reads, Result, Rows, RunBrief, RunChange, RunRow, existing_row},
};

/// How a run begins.
enum Start<'a> {
    Queued,
    Dispatched(Epoch),
    Entered(&'a Commit, Box<Plan>),
}

/// Records a run. A repeated key, a repeated run id and a refusal change nothing.
pub(crate) fn enqueue<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, new: &NewRun) -> Result<Enqueued> {
    if let Some(first) = recorded_already(rows, new)? {
        return Ok(duplicate(first));
    }
    if let Some(parent) = &new.state.parent
        && !has_parent(rows, &new.agent.tenant, parent)?
    {
        return Ok(Enqueued::ParentGone);
    }
    if let Some(asked) = new.conversation
        && let Some(refusal) = conversations::refusal(rows, new, asked)?
    {
        return Ok(refusal);
    }
    if let Some(left) = new.takes
        && let Some(taker) = rows.inheriting_run(&new.agent.tenant, left)?
    {
        return Ok(Enqueued::AlreadyInherited { by: taker.run });
    }
    let parent = match new.context.parent {
        None => None,
        Some(range) => match known_range(rows, &new.agent.tenant, range)? {
            Some(row) => Some((range, row)),
            None => return Ok(Enqueued::UnknownBox),
        },
    };
    let head = rows.head(&new.agent)?;
    if let Some(refusal) = refusal(rows, new, head.as_ref())? {
        return Ok(refusal);
    }
    let is_new = head.is_none();
    let before = match head {
        Some(head) => head,
        None => unused(rows, new)?,
    };
    let (after, start) = begin(rows, new, &before)?;
    let is_last = matches!(&start, Start::Entered(_, plan) if plan.is_last);
    let is_ours = match (is_new, is_last) {
        (true, true) => true,
        (true, false) => rows.insert_head(&new.agent, &after).map(|()| true)?,
        (false, true) => rows.delete_head(&new.agent, &before)?,
        (false, false) => rows.update_head(&new.agent, &before, &after)?,
    };
    if !is_ours {
        return Err(existing_row("another writer's head"));
    }
    let message = record(rows, new, parent.as_ref(), after.runs, &start)?;
    follow_up(rows, options, new, &start)?;
    Ok(match start {
        Start::Queued => Enqueued::Queued { message },
        Start::Dispatched(epoch) => Enqueued::Dispatched { message, epoch },
        Start::Entered(_, plan) => Enqueued::Entered { message, epoch: plan.epoch, seq: after.seq },
    })
}

/// The head of an agent that has none. If the name is that of an earlier run whose head was deleted, its ordinals and epochs continue.
fn unused<R: Reads + ?Sized>(rows: &R, new: &NewRun) -> Result<HeadRow> {
    let mut head = HeadRow::unused();
    let may_have_been = matches!(new.agent.agent.identity(), AgentIdentity::Run(run) if run != new.run);
    while may_have_been && let Some(earlier) = rows.run_from(&new.agent, head.runs + 1)? {
        head.runs = earlier.brief.ordinal;
        head.epoch = head.epoch.max(earlier.brief.epoch.unwrap_or_default());
    }
    Ok(head)
}

/// The run's own id counts like a key: a request whose answer was lost is sent again with the same id.
fn recorded_already<R: Reads + ?Sized>(rows: &R, new: &NewRun) -> Result<Option<RunBrief>> {
    if let Some(key) = &new.dedupe
        && let Some(first) = rows.run_by_dedupe(&new.agent.tenant, &codec::key_hash(&new.agent.tenant, key))?
    {
        return Ok(Some(first));
    }
    match rows.run_brief(new.run)? {
        Some(first) if first.agent.tenant == new.agent.tenant => Ok(Some(first)),
        Some(_) => Err(existing_row("the run")),
        None => Ok(None),
    }
}

fn duplicate(first: RunBrief) -> Enqueued {
    let queued = first.status == RunStatus::Queued;
    Enqueued::Duplicate { run: first.run, agent: first.agent, message: first.message, epoch: first.epoch, queued }
}

/// Why a request is refused. A quarantined head has a run, so it counts as busy.
fn refusal<R: Reads + ?Sized>(rows: &R, new: &NewRun, head: Option<&HeadRow>) -> Result<Option<Enqueued>> {
    if let Some(busy) = head.filter(|head| head.run.is_some()) {
        if new.kind == MessageKind::UiAction {
            return Ok(Some(Enqueued::Busy));
        }
        if busy.queued >= new.admission.queued_per_agent_max {
            return Ok(Some(Enqueued::AgentFull));
        }
    }
    let is_full = rows.open_runs(&new.agent.tenant)? >= new.admission.open_per_tenant_max;
    Ok(is_full.then_some(Enqueued::TenantFull))
}

/// Decides how the run begins and what the head becomes. Only reads.
fn begin<'a, R: Reads + ?Sized>(rows: &R, new: &'a NewRun, before: &HeadRow) -> Result<(HeadRow, Start<'a>)> {
    let mut head = HeadRow { runs: before.runs + 1, ..before.clone() };
    if before.run.is_some() {
        head.queued += 1;
        return Ok((head, Start::Queued));
    }
    // Messages that belong to no run stay pending, whichever run is active.
    let pending = head.pending;
    lease(&mut head, new.run, new.now);
    head.pending = pending;
    head.owner = Some(new.node);
    let Some(enter) = &new.enter else {
        head.seq = Seq(before.seq.0 + 1);
        let epoch = head.epoch;
        return Ok((head, Start::Dispatched(epoch)));
    };
    // Lease and entry are one commit, so the sequence number rises by one.
    let plan = plan(rows, &new.agent, &head, enter)?;
    Ok((plan.head.clone(), Start::Entered(enter, Box::new(plan))))
}

/// Stores the run with its boxes, its message and its first event.
fn record<R: Rows + ?Sized>(
    rows: &mut R,
    new: &NewRun,
    parent: Option<&(BoxRange, BoxRow)>,
    ordinal: u64,
    start: &Start<'_>,
) -> Result<MessageId> {
    let tenant = &new.agent.tenant;
    parent.map_or(Ok(()), |(_, row)| share(rows, row))?;
    let context = make_box(rows, tenant, new.context.id, parent.map(|(range, row)| (*range, row)))?;
    fill(rows, tenant, new.context.id, 0, &new.context.items)?;
    let whole = BoxRange { id: context.id, length: new.context.items.len() as u32 };
    make_box(rows, tenant, new.output, Some((whole, &context)))?;
    let message = rows.insert_message(&new.agent, &turn(new, start))?.ok_or_else(|| existing_row("the turn"))?;
    rows.keep_manifest(tenant, &new.manifest)?;
    let change = match start {
        Start::Queued => unentered(new, RunStatus::Queued, None),
        Start::Dispatched(epoch) => unentered(new, RunStatus::Active, Some(*epoch)),
        Start::Entered(enter, plan) => run_change(enter, RunStatus::Active, Some(plan.epoch)),
    };
    let epoch = change.epoch;
    rows.insert_run(&run_row(new, message, ordinal, change))?;
    rows.append_journal(new.run, &[journal_row(0, epoch, new.now, &new.accepted)])?;
    rows.add_open_runs(tenant, 1)?;
    if let Some(hash) = new.request {
        rows.insert_request(&OpenRequest { tenant: tenant.clone(), hash, run: new.run, node: new.node, left_at: None })?;
    }
    Ok(message)
}

/// Writes what entering the run changes, and leaves an outbox row.
fn follow_up<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, new: &NewRun, start: &Start<'_>) -> Result<()> {
    let Start::Entered(enter, plan) = start else {
        return if options.publish { rows.insert_outbox(&new.agent, new.run, 0, 1) } else { Ok(()) };
    };
    write(rows, &new.agent, enter, Some(plan.epoch))?;
    // `finish` would leave an outbox row for the entry alone; the first event belongs to the same row.
    finish(rows, StoreOptions { publish: false, ..options }, &new.agent, enter, plan)?;
    add_to_outbox(rows, options, &new.agent, enter, 1)
}

fn turn(new: &NewRun, start: &Start<'_>) -> MessageRow {
    let (status, epoch) = match start {
        Start::Queued => (MessageStatus::Queued, None),
        Start::Dispatched(epoch) => (MessageStatus::Pending, Some(*epoch)),
        Start::Entered(_, plan) => (MessageStatus::Consumed, Some(plan.epoch)),
    };
    MessageRow {
        kind: new.kind,
        status,
        run: Some(new.run),
        epoch,
        call: None,
        retry: 0,
        item: new.context.items.first().map(|item| item.id),
        outcome: None,
        after: None,
        source: new.lineage.source.clone(),
        reason: None,
        below: None,
        created_at: new.now,
        processed_at: (status == MessageStatus::Consumed).then_some(new.now),
    }
}

fn unentered(new: &NewRun, status: RunStatus, epoch: Option<Epoch>) -> RunChange {
    RunChange {
        run: new.run,
        status,
        epoch,
        state: codec::encode_run(&new.state).into(),
        iteration: new.state.iteration,
        deliverable: None,
        ended_at: None,
        held_ms: 0,
    }
}

fn run_row(new: &NewRun, message: MessageId, ordinal: u64, change: RunChange) -> RunRow {
    RunRow {
        brief: RunBrief {
            run: new.run,
            agent: new.agent.clone(),
            agent_name: new.agent_name.clone(),
            ordinal,
            status: change.status,
            epoch: change.epoch,
            message,
        },
        kind: new.kind,
        dedupe: new.dedupe.as_deref().map(|key| codec::key_hash(&new.agent.tenant, key)),
        manifest: new.manifest.hash,
        note: new.note.clone(),
        erase_ms: erase_ms(new.erase_ms),
        unlisted: new.erase_ms.is_some(),
        held_ms: change.held_ms,
        takes: new.takes,
        follows: new.follows,
        parent: new.state.parent.clone(),
        context: new.context.id,
        output: new.output,
        state_version: codec::VERSION,
        state: change.state,
        iteration: change.iteration,
        lineage: new.lineage.clone(),
        deliverable: change.deliverable,
        created_at: new.now,
        ended_at: change.ended_at,
    }
}
