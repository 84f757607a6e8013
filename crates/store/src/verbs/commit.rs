//! Transitions of a run: applied whole, or not at all.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_kernel::{AgentKey, CallNumber, Epoch, Event, HeadStatus, RunId, Seq, Timestamp};
use windlass_ports::{
    CallChange, CallStatus, Commit, Committed, Guard, MessageId, MessageStatus, NewCall, NewMessage, RequestKey, RunStatus, StateWrite,
    StoreError, Withdrawn, codec,
};

use super::children::tell_tree;
use super::conversations;
use super::erase::held_ms;
use super::heads::{is_counted, is_own_head, lease, leases_after, may_be_claimed, replace_head, show, show_idle};
use super::interrupts::write_interrupts;
use crate::{
    StoreOptions,
    rows::{AnswerRow, CallMove, CallRow, HeadRow, JournalRow, MessageRow, Reads, Result, Rows, RunBrief, RunChange, RunRow, missing_row},
};

/// What a transition makes of a head. It is decided before anything is written.
pub(super) struct Plan {
    /// The head after the transition.
    pub head: HeadRow,
    /// The epoch under which the transition is written.
    pub epoch: Epoch,
    /// The queued run that the agent is leased to, if this one ends.
    pub next: Option<RunBrief>,
    /// The rows that the run may leave behind if it ends.
    pub leftovers: Leftovers,
    /// Whether the head is deleted: it was made for this run, and no other run is queued.
    pub is_last: bool,
}

/// The kinds of rows that an ending run may leave behind, as its head shows. Most runs leave none, and then none are searched for.
#[derive(Clone, Copy)]
pub(super) struct Leftovers {
    calls: bool,
    messages: bool,
}

impl Leftovers {
    pub(super) const EVERYTHING: Leftovers = Leftovers { calls: true, messages: true };
}

/// Applies a transition if its guard holds. A transition that is applied already succeeds again.
pub(crate) fn commit<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, guard: &Guard, commit: &Commit) -> Result<Committed> {
    let agent = &guard.agent;
    if has_answered(rows, agent, commit)? {
        // Either this commit is sent again, or its effect was committed before for the same request.
        return match rows.head(agent)? {
            None => ended_already(rows, guard, commit),
            Some(head) => applied_already(rows, &head, guard, commit),
        };
    }
    if let Some(committed_fast) = commit_fast_path(rows, options, guard, commit)? {
        return Ok(committed_fast);
    }
    let Some(before) = rows.head(agent)? else {
        return ended_already(rows, guard, commit);
    };
    if !holds(&before, guard) {
        return applied_already(rows, &before, guard, commit);
    }
    let plan = plan(rows, agent, &before, commit)?;
    let is_ours = if plan.is_last { rows.delete_head(agent, &before)? } else { rows.update_head(agent, &before, &plan.head)? };
    if !is_ours {
        return Err(StoreError::Fenced);
    }
    let messages = write(rows, agent, commit, Some(plan.epoch))?;
    rows.update_run(&run_change(commit, RunStatus::Active, Some(plan.epoch)))?;
    finish(rows, options, agent, commit, &plan)?;
    Ok(committed(&plan.head, commit, messages))
}

/// The usual case with one statement less: the run continues under the same owner, and no messages are pending. `None` in any other case.
fn commit_fast_path<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, guard: &Guard, commit: &Commit) -> Result<Option<Committed>> {
    let is_usual = !commit.state.has_ended()
        && !commit.raise_epoch
        && commit.consumed.is_empty()
        && commit.stops.is_empty()
        && !may_be_claimed(commit);
    if !is_usual {
        return Ok(None);
    }
    let mut shown = HeadRow::unused();
    show(&mut shown, &commit.state, &[], commit.now);
    if !rows.update_head_fast(guard, commit.node, &shown)? {
        return Ok(None);
    }
    let agent = &guard.agent;
    let messages = write(rows, agent, commit, Some(guard.epoch))?;
    if commit.state_write == StateWrite::Always {
        rows.update_run(&run_change(commit, RunStatus::Active, Some(guard.epoch)))?;
    }
    add_to_outbox(rows, options, agent, commit, 0)?;
    Ok(Some(Committed { seq: Seq(guard.seq.0 + 1), epoch: guard.epoch, pending: 0, next_leased: false, messages }))
}

/// Ends a queued run. The head does not change, because it only shows the active run.
pub(crate) fn withdraw<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, agent: &AgentKey, commit: &Commit) -> Result<Withdrawn> {
    let is_queued = |run: &RunRow| run.brief.agent == *agent && run.brief.status == RunStatus::Queued;
    let Some(run) = rows.run(commit.run)?.filter(is_queued) else {
        return Ok(Withdrawn::NotQueued);
    };
    if has_answered(rows, agent, commit)? {
        return Err(StoreError::Fenced);
    }
    let before = rows.head(agent)?.ok_or_else(|| missing_row("the head of a queued run"))?;
    let after = HeadRow { queued: before.queued.saturating_sub(1), ..before.clone() };
    replace_head(rows, agent, &before, &after)?;
    write(rows, agent, commit, None)?;
    rows.update_run(&run_change(commit, RunStatus::Queued, None))?;
    rows.skip_message(agent, run.brief.message, commit.now)?;
    release_leftovers(rows, options, agent, commit.run, Leftovers::EVERYTHING, commit.now)?;
    release_followed(rows, agent, run.follows, commit.now)?;
    tell_tree(rows, agent, commit)?;
    add_to_outbox(rows, options, agent, commit, 0)?;
    Ok(Withdrawn::Done)
}

/// Whether a request that the commit answers was answered before. It is read before anything is written.
fn has_answered<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, commit: &Commit) -> Result<bool> {
    for request in commit.messages.iter().filter_map(|message| message.key.as_ref()) {
        if rows.answer_to(&agent.tenant, request)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds(head: &HeadRow, guard: &Guard) -> bool {
    head.status == guard.status && head.epoch == guard.epoch && head.run == Some(guard.run) && head.seq == guard.seq
}

/// A commit whose answer was lost is sent again. It is recognised by its events, which are at the end of the journal.
fn applied_already<R: Reads + ?Sized>(rows: &R, head: &HeadRow, guard: &Guard, commit: &Commit) -> Result<Committed> {
    let is_next = head.seq.0 == guard.seq.0 + 1 && head.owner == Some(commit.node) && guard.run == commit.run;
    if !is_next || stored_epoch(rows, commit)?.is_none() {
        return Err(StoreError::Fenced);
    }
    Ok(committed(head, commit, stored_messages(rows, &guard.agent, commit)?))
}

/// The same for a commit that ended the run and deleted its head. The owner is not recorded any more, and two owners that end a run write
/// the same events: the item of the deliverable shows which of them did.
fn ended_already<R: Reads + ?Sized>(rows: &R, guard: &Guard, commit: &Commit) -> Result<Committed> {
    let may_be = commit.state.has_ended() && guard.run == commit.run && is_own_head(&guard.agent, commit.run);
    let is_same = |run: &RunRow| run.brief.agent == guard.agent && run.deliverable == commit.appended.last().copied();
    if !may_be || !rows.run(commit.run)?.as_ref().is_some_and(is_same) {
        return Err(StoreError::Fenced);
    }
    let epoch = stored_epoch(rows, commit)?.filter(|epoch| *epoch == guard.epoch || epoch.0 == guard.epoch.0 + 1);
    let epoch = epoch.ok_or(StoreError::Fenced)?;
    let messages = stored_messages(rows, &guard.agent, commit)?;
    Ok(Committed { seq: Seq(guard.seq.0 + 1), epoch, pending: 0, next_leased: false, messages })
}

/// The epoch of the commit's events, if they are at the end of the journal.
fn stored_epoch<R: Reads + ?Sized>(rows: &R, commit: &Commit) -> Result<Option<Epoch>> {
    if commit.events.is_empty() {
        return Ok(None);
    }
    let found = rows.journal(commit.run, first_number(commit), commit.events.len() + 1)?;
    let is_same = found.len() == commit.events.len()
        && found.iter().zip(&commit.events).all(|(row, event)| {
            let (kind, body) = codec::encode_event(event);
            row.kind == kind && row.body == body
        });
    Ok(found.last().filter(|_| is_same).and_then(|row| row.epoch))
}

fn committed(head: &HeadRow, commit: &Commit, messages: Vec<MessageId>) -> Committed {
    let next_leased = head.run.is_some_and(|run| run != commit.run);
    Committed { seq: head.seq, epoch: head.epoch, pending: head.pending, next_leased, messages }
}

fn stored_messages<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, commit: &Commit) -> Result<Vec<MessageId>> {
    commit.messages.iter().map(|message| stored_message(rows, agent, commit, message)).collect()
}

fn stored_message<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, commit: &Commit, message: &NewMessage) -> Result<MessageId> {
    let found = rows.last_message(agent, commit.run, message.kind, message.call)?;
    found.ok_or_else(|| missing_row("a message that was committed"))
}

/// Decides what the head becomes. Only reads.
pub(super) fn plan<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, before: &HeadRow, commit: &Commit) -> Result<Plan> {
    let is_raised = commit.raise_epoch || before.owner != Some(commit.node);
    let epoch = Epoch(before.epoch.0 + u64::from(is_raised));
    let mut head = HeadRow {
        epoch,
        seq: Seq(before.seq.0 + 1),
        owner: Some(commit.node),
        quarantined: None,
        pending: before.pending.saturating_sub(counted(rows, agent, before, commit)?),
        ..before.clone()
    };
    if !commit.state.has_ended() {
        let leases = leases_after(rows, commit)?;
        show(&mut head, &commit.state, &leases, commit.now);
        return Ok(Plan { head, epoch, next: None, leftovers: Leftovers::EVERYTHING, is_last: false });
    }
    let made_calls = commit.calls.iter().any(|(_, change)| matches!(change, CallChange::Made(_)));
    // A run that no worker entered leaves the message of its own turn, which `pending` does not count.
    let turn_waits = before.status == HeadStatus::Dispatched;
    let leftovers = Leftovers { calls: before.waiting > 0 || made_calls, messages: before.pending > 0 || turn_waits };
    let left = head.pending;
    let next = match head.queued {
        0 => None,
        _ => next_run(rows, agent, commit)?,
    };
    match &next {
        None => show_idle(&mut head),
        Some(next) => {
            lease(&mut head, next.run, commit.now);
            head.queued -= 1;
        }
    }
    if left > 0 || next.is_some() {
        head.pending = pending_for(rows, agent, &head, commit)?;
    }
    let is_last = next.is_none() && head.pending == 0 && is_own_head(agent, commit.run);
    Ok(Plan { head, epoch, next, leftovers, is_last })
}

/// The number of consumed messages that were counted as pending.
fn counted<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, head: &HeadRow, commit: &Commit) -> Result<u32> {
    let mut count = 0;
    for id in &commit.consumed {
        let row = rows.message(agent, *id)?.ok_or_else(|| missing_row("a consumed message"))?;
        count += u32::from(row.status == MessageStatus::Pending && is_counted(head, &row));
    }
    Ok(count)
}

/// Queued runs have higher ordinals than the active one, so the search begins there and never reads the agent's earlier runs.
fn next_run<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, commit: &Commit) -> Result<Option<RunBrief>> {
    let ending = rows.run_brief(commit.run)?.ok_or_else(|| missing_row("the run of a commit"))?;
    let next = rows.next_queued(agent, ending.ordinal)?;
    next.map(Some).ok_or_else(|| missing_row("a run that the head counts as queued"))
}

/// The pending messages of a head that has just changed its run.
fn pending_for<R: Reads + ?Sized>(rows: &R, agent: &AgentKey, head: &HeadRow, commit: &Commit) -> Result<u32> {
    let stays = |id, row: &MessageRow| is_counted(head, row) && !commit.consumed.contains(&id);
    Ok(rows.pending(agent)?.iter().filter(|(id, row)| stays(*id, row)).count() as u32)
}

/// Writes everything of a transition except the head and the run's row. Returns the numbers of its messages.
pub(super) fn write<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, commit: &Commit, epoch: Option<Epoch>) -> Result<Vec<MessageId>> {
    for item in &commit.items {
        rows.insert_item(&agent.tenant, item)?;
    }
    let output = commit.state.output;
    for (position, item) in (i64::from(output.length) - commit.appended.len() as i64..).zip(&commit.appended) {
        rows.insert_box_row(output.id, position, *item)?;
    }
    if commit.clears_deltas {
        rows.forget_deltas(commit.run)?;
    }
    write_calls(rows, agent, commit)?;
    write_interrupts(rows, agent, commit)?;
    let mut messages = Vec::with_capacity(commit.messages.len());
    for message in &commit.messages {
        // The same result may have been reported from outside. Then that row is the record of it.
        let stored = match rows.insert_message(agent, &consumed(commit, message, epoch))? {
            Some(stored) => stored,
            None => stored_message(rows, agent, commit, message)?,
        };
        if let Some(request) = &message.key {
            rows.insert_answer(&answer_row(agent, commit.run, request, stored))?;
        }
        messages.push(stored);
    }
    for message in &commit.consumed {
        rows.consume_message(agent, *message, epoch.unwrap_or_default(), commit.now)?;
    }
    let events = (first_number(commit)..).zip(&commit.events);
    let events: Vec<JournalRow> = events.map(|(number, event)| journal_row(number, epoch, commit.now, event)).collect();
    rows.append_journal(commit.run, &events)?;
    Ok(messages)
}

/// The recorded answer to a request with a key: its inbox row.
pub(super) fn answer_row(agent: &AgentKey, run: RunId, request: &RequestKey, message: MessageId) -> AnswerRow {
    AnswerRow { message: Some(message), ..AnswerRow::new(&agent.tenant, request, run) }
}

/// Merges the changes of one call to one statement.
fn write_calls<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, commit: &Commit) -> Result<()> {
    let mut made: BTreeMap<CallNumber, CallRow> = BTreeMap::new();
    let mut moves: BTreeMap<CallNumber, CallMove> = BTreeMap::new();
    for (call, change) in &commit.calls {
        match change {
            CallChange::Made(new) => drop(made.insert(*call, new_call(agent, commit, *call, new))),
            CallChange::Moved { status, result, deadline, item, retry } => {
                let moved = CallMove { status: *status, result: *result, deadline: *deadline, item: *item, retry: *retry };
                match (made.get_mut(call), moves.get_mut(call)) {
                    (Some(row), _) => row.move_on(moved),
                    (None, Some(earlier)) => *earlier = earlier.then(moved),
                    (None, None) => drop(moves.insert(*call, moved)),
                }
            }
        }
    }
    // A call for the server process is started with this commit, unless the same commit has its result already.
    for row in made.values_mut() {
        row.attempt = u32::from(row.status == CallStatus::Started);
        rows.insert_call(row)?;
    }
    moves.into_iter().try_for_each(|(call, moved)| rows.move_call(commit.run, call, moved))
}

/// Cleans up after a run that has ended: drops its calls and skips its messages.
fn release_leftovers<R: Rows + ?Sized>(
    rows: &mut R,
    options: StoreOptions,
    agent: &AgentKey,
    run: RunId,
    leftovers: Leftovers,
    now: Timestamp,
) -> Result<()> {
    if leftovers.calls {
        let dropped = CallMove { status: CallStatus::Dropped, result: None, deadline: None, item: None, retry: None };
        rows.open_calls(run)?.into_iter().try_for_each(|call| rows.move_call(run, call, dropped))?;
    }
    if leftovers.messages {
        let waiting = rows.pending(agent)?.into_iter().filter(|(_, row)| row.run == Some(run));
        waiting.into_iter().try_for_each(|(message, _)| rows.skip_message(agent, message, now))?;
    }
    if options.usage {
        rows.insert_uncounted(&agent.tenant, run)?;
    }
    rows.add_open_runs(&agent.tenant, -1)
}

/// Ends the wait of the run that the ended one continued.
fn release_followed<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, follows: Option<RunId>, now: Timestamp) -> Result<()> {
    follows.map_or(Ok(()), |earlier| rows.release_run(&agent.tenant, earlier, now))
}

/// Ends or continues the agent's work after a transition, and leaves an outbox row.
pub(super) fn finish<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, agent: &AgentKey, commit: &Commit, plan: &Plan) -> Result<()> {
    if commit.state.has_ended() {
        release_leftovers(rows, options, agent, commit.run, plan.leftovers, commit.now)?;
        // A client that has to make calls again may send the whole conversation with their results.
        release_followed(rows, agent, commit.follows.filter(|_| held_ms(&commit.state) == 0), commit.now)?;
        conversations::add_output(rows, agent, commit.run, &commit.state)?;
    }
    if let Some(next) = &plan.next {
        rows.activate_run(next.run, plan.head.epoch)?;
        rows.lease_message(agent, next.message, plan.head.epoch)?;
        conversations::bind(rows, agent, next.run)?;
    }
    tell_tree(rows, agent, commit)?;
    add_to_outbox(rows, options, agent, commit, 0)
}

/// Records a commit's events in the outbox, with the `earlier` events before them.
pub(super) fn add_to_outbox<R: Rows + ?Sized>(
    rows: &mut R,
    options: StoreOptions,
    agent: &AgentKey,
    commit: &Commit,
    earlier: u32,
) -> Result<()> {
    let count = commit.events.len() as u32 + earlier;
    if !options.publish || count == 0 {
        return Ok(());
    }
    rows.insert_outbox(agent, commit.run, first_number(commit) - u64::from(earlier), count)
}

/// The change of the run's row. `going_on` is the status if the run has not ended.
pub(super) fn run_change(commit: &Commit, going_on: RunStatus, epoch: Option<Epoch>) -> RunChange {
    let has_ended = commit.state.has_ended();
    RunChange {
        run: commit.run,
        status: if has_ended { RunStatus::Ended } else { going_on },
        epoch,
        state: codec::encode_run(&commit.state).into(),
        iteration: commit.state.iteration,
        deliverable: commit.appended.last().copied().filter(|_| has_ended),
        ended_at: has_ended.then_some(commit.now),
        held_ms: held_ms(&commit.state),
    }
}

/// An event as a row.
pub(super) fn journal_row(number: u64, epoch: Option<Epoch>, at: Timestamp, event: &Event) -> JournalRow {
    let (kind, body) = codec::encode_event(event);
    JournalRow { number, epoch, at, kind: kind.into(), version: codec::VERSION, body: Bytes::from(body) }
}

fn first_number(commit: &Commit) -> u64 {
    commit.state.next_number.saturating_sub(commit.events.len() as u64)
}

fn new_call(agent: &AgentKey, commit: &Commit, call: CallNumber, made: &NewCall) -> CallRow {
    CallRow {
        agent: agent.clone(),
        run: commit.run,
        call,
        iteration: made.iteration,
        tool: made.tool.clone(),
        route: made.route,
        effect: made.effect,
        status: made.status,
        created_at: commit.now,
        deadline: made.deadline,
        item: made.item,
        result: made.result,
        worker: None,
        lease_until: None,
        attempt: 0,
        claim_key: None,
        retry: 0,
    }
}

fn consumed(commit: &Commit, message: &NewMessage, epoch: Option<Epoch>) -> MessageRow {
    MessageRow {
        kind: message.kind,
        status: MessageStatus::Consumed,
        run: Some(commit.run),
        epoch,
        call: message.call,
        retry: message.retry,
        item: message.item,
        outcome: message.outcome,
        after: message.after,
        source: message.source.clone(),
        reason: message.reason.clone(),
        below: None,
        created_at: commit.now,
        processed_at: Some(commit.now),
    }
}
