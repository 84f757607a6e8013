//! Giving up a run that can't be read: its quarantined agent continues with the next run.

use windlass_kernel::{
    AgentKey, BoxRange, Budgets, ChildReport, EndReason, Event, ItemKind, Manifest, NewItem, Origin, Phase, Progress, Run, TaskStatus,
    Verdict, apply, content,
};
use windlass_ports::{Abandoned, ClosedInterrupt, Commit, CommitKind, GivenUp, MessageKind, RunStatus, StateWrite, StoreError, codec};

use super::commit::{Leftovers, finish, plan, run_change, write};
use crate::{
    StoreOptions,
    reading::manifest_of,
    rows::{HeadRow, Reads, Result, Rows, RunRow, missing_row},
};

const NO_BUDGETS: Budgets = Budgets { iterations: 0, calls: None, tokens: None, wall_ms: None, children: None, cost: None };

/// The number of events that are read at once.
const EVENTS_PAGE: usize = 64;

/// Ends the run that an agent is quarantined for.
pub(crate) fn abandon<R: Rows + ?Sized>(rows: &mut R, options: StoreOptions, agent: &AgentKey, given_up: &GivenUp) -> Result<Abandoned> {
    let is_its = |head: &HeadRow| head.quarantined.is_some() && head.run == Some(given_up.run);
    let Some(before) = rows.head(agent)?.filter(is_its) else {
        return Ok(Abandoned::NotQuarantined);
    };
    let row = rows.run(given_up.run)?.ok_or_else(|| missing_row("a head's run"))?;
    // The manifest may be what can't be read. Then the cost of the run is not known.
    let manifest = if row.parent.is_some() { manifest_of(rows, &row).ok() } else { None };
    let commit = ending(last_known(rows, &row)?, &row, manifest.as_deref(), given_up)?;
    let mut plan = plan(rows, agent, &before, &commit)?;
    // The counts of calls and messages on the head may be as wrong as the rest.
    plan.leftovers = Leftovers::EVERYTHING;
    let is_ours = if plan.is_last { rows.delete_head(agent, &before)? } else { rows.update_head(agent, &before, &plan.head)? };
    if !is_ours {
        return Err(StoreError::Fenced);
    }
    write(rows, agent, &commit, Some(plan.epoch))?;
    // Which interrupts are open is as uncertain as the rest, so the commit names none.
    let closed = ClosedInterrupt { verdict: Verdict::Stopped, by: None, at: given_up.now };
    rows.close_interrupts(given_up.run, &closed)?;
    rows.update_run(&run_change(&commit, RunStatus::Active, Some(plan.epoch)))?;
    finish(rows, options, agent, &commit, &plan)?;
    Ok(Abandoned::Done { next_leased: plan.next.is_some() })
}

fn ending(state: Run, row: &RunRow, manifest: Option<&Manifest>, given_up: &GivenUp) -> Result<Commit> {
    let results = state.calls().iter().filter_map(|call| match call.progress {
        Progress::Received { item, .. } => Some(item),
        Progress::Open | Progress::Begun => None,
    });
    let appended = results.chain([given_up.deliverable.id]).collect();
    let ended = Event::Ended { status: TaskStatus::Failed, reason: EndReason::Abandoned };
    let mut items = vec![given_up.deliverable.clone()];
    let report = row.parent.clone().map(|parent| {
        let content = content::child_result(parent.call, TaskStatus::Failed, &given_up.deliverable.content);
        items.push(NewItem::own(given_up.result, ItemKind::Result, content));
        let below = state.used(&manifest.map_or(NO_BUDGETS, |manifest| manifest.budgets));
        ChildReport { parent, status: TaskStatus::Failed, item: given_up.result, below }
    });
    let state = apply(Some(state), &ended).ok_or_else(|| missing_row("a run's state"))?;
    Ok(Commit {
        kind: CommitKind::End,
        state_write: StateWrite::Always,
        run: given_up.run,
        node: given_up.node,
        raise_epoch: true,
        state,
        events: vec![ended],
        items,
        appended,
        calls: Vec::new(),
        interrupts: Vec::new(),
        messages: vec![given_up.message.clone()],
        consumed: Vec::new(),
        clears_deltas: true,
        follows: row.follows,
        stops: given_up.children.clone(),
        report,
        now: given_up.now,
    })
}

/// The run as its journal gives it. From the first unreadable event on, events only count for their numbers.
fn last_known<R: Reads + ?Sized>(rows: &R, row: &RunRow) -> Result<Run> {
    let (mut known, mut next, mut is_whole) = (None, 0, true);
    loop {
        let page = rows.journal(row.brief.run, next, EVENTS_PAGE)?;
        for entry in &page {
            next = entry.number + 1;
            let event = codec::decode_event(&entry.kind, entry.version, &entry.body).ok().filter(|_| is_whole);
            match event.and_then(|event| apply(known.clone(), &event)) {
                Some(run) => known = Some(run),
                None => is_whole = false,
            }
        }
        if page.len() < EVENTS_PAGE {
            break;
        }
    }
    match known {
        Some(run) if is_whole => Ok(run),
        known => {
            let run = known.map_or_else(|| begun(rows, row), Ok)?;
            let output = BoxRange { id: row.output, length: rows.box_length(row.output)? };
            Ok(Run { phase: Phase::Accepted, next_number: next, output, ..run })
        }
    }
}

/// The run as it began.
fn begun<R: Reads + ?Sized>(rows: &R, row: &RunRow) -> Result<Run> {
    let origin = if row.kind == MessageKind::UiAction { Origin::Action } else { Origin::Turn };
    let context = BoxRange { id: row.context, length: rows.box_length(row.context)? };
    let accepted = Event::Accepted {
        origin,
        context,
        output: BoxRange { id: row.output, length: 0 },
        caller: None,
        parent: row.parent.clone().map(Box::new),
    };
    apply(None, &accepted).ok_or_else(|| missing_row("a run's state"))
}
