//! Consecutive transitions of one run, collected into one commit.

use std::collections::BTreeMap;

use windlass_kernel::{
    CallNumber, CallUpdate, ChildReport, Event, Input, InterruptUpdate, ItemId, ItemKind, Manifest, Moment, NewItem, OpenCall, Run, RunId,
    Timestamp, Transition, step,
};
use windlass_ports::{CallChange, CallStatus, Commit, CommitKind, Ids, MessageId, NewCall, NewMessage, NodeId, StateWrite};

/// The new state of a run, and everything that has to be written with it.
pub(crate) struct Draft {
    pub run: Run,
    pub events: Vec<Event>,
    pub items: Vec<NewItem>,
    pub appended: Vec<ItemId>,
    pub calls: Vec<(CallNumber, CallChange)>,
    pub interrupts: Vec<InterruptUpdate>,
    pub messages: Vec<NewMessage>,
    pub consumed: Vec<MessageId>,
    pub raise_epoch: bool,
    /// Child runs that nothing waits for any more.
    pub stops: Vec<RunId>,
    /// The result for the parent, if the run is a child run that has ended.
    pub report: Option<ChildReport>,
    /// Whether streamed text is in an item now, or was discarded.
    pub clears_deltas: bool,
    kind: Option<CommitKind>,
}

impl Draft {
    /// A draft that changes nothing yet.
    pub fn new(run: &Run) -> Self {
        Draft {
            run: run.clone(),
            events: Vec::new(),
            items: Vec::new(),
            appended: Vec::new(),
            calls: Vec::new(),
            interrupts: Vec::new(),
            messages: Vec::new(),
            consumed: Vec::new(),
            raise_epoch: false,
            stops: Vec::new(),
            report: None,
            clears_deltas: false,
            kind: None,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.consumed.is_empty() && self.messages.is_empty()
    }

    /// Applies an input and adds its transition to the draft.
    pub fn step(&mut self, manifest: &Manifest, input: Input, now: Timestamp, ids: &dyn Ids) {
        let mut fresh = || ItemId(ids.fresh());
        let transition = step(&self.run, manifest, input, &mut Moment { now, fresh: &mut fresh });
        self.clears_deltas |= manifest.announced && transition.events.iter().any(settles_text);
        self.add(transition);
    }

    fn add(&mut self, mut transition: Transition) {
        for (call, change) in call_changes(&mut transition) {
            self.change_call(call, change);
        }
        self.kind = strongest(self.kind, kind_of(&transition.events));
        self.interrupts.extend(transition.interrupts);
        self.events.extend(transition.events);
        self.items.extend(transition.items);
        self.appended.extend(transition.appended);
        self.stops.extend(transition.stops);
        self.report = transition.report.or(self.report.take());
        self.run = transition.run;
    }

    /// A commit has one row change per call: a later change is merged into an earlier one.
    fn change_call(&mut self, call: CallNumber, change: CallChange) {
        let earlier = self.calls.iter_mut().find(|(number, _)| *number == call);
        match (earlier, change) {
            (None, change) => self.calls.push((call, change)),
            (Some((_, CallChange::Made(made))), CallChange::Moved { status, result, deadline, item, retry: _ }) => {
                made.status = status;
                made.result = result.or(made.result);
                made.deadline = deadline.unwrap_or(made.deadline);
                made.item = item.unwrap_or(made.item);
            }
            (Some((_, moved @ CallChange::Moved { .. })), CallChange::Moved { status, result, deadline, item, retry }) => {
                let CallChange::Moved { result: old_result, deadline: old_deadline, item: old_item, retry: old_retry, .. } = moved.clone()
                else {
                    return;
                };
                let (result, deadline) = (result.or(old_result), deadline.or(old_deadline));
                *moved = CallChange::Moved { status, result, deadline, item: item.or(old_item), retry: retry.or(old_retry) };
            }
            (Some((_, earlier)), made @ CallChange::Made(_)) => *earlier = made,
        }
    }

    /// The commit of everything collected. `follows` is the run that this one continues, if it continues one.
    pub fn into_commit(self, id: RunId, follows: Option<RunId>, node: NodeId, now: Timestamp) -> Commit {
        let kind = self.kind.unwrap_or(CommitKind::Note);
        Commit {
            kind,
            state_write: state_write(kind, &self.run),
            run: id,
            node,
            raise_epoch: self.raise_epoch,
            state: self.run,
            events: self.events,
            items: self.items,
            appended: self.appended,
            calls: self.calls,
            interrupts: self.interrupts,
            messages: self.messages,
            consumed: self.consumed,
            clears_deltas: self.clears_deltas,
            follows,
            stops: self.stops,
            report: self.report,
            now,
        }
    }
}

/// The state of a run is stored once in this many iterations.
const STATE_EVERY: u32 = 8;

/// Between two iterations the journal is sufficient. The state is stored from time to time, so that few events have to be folded; storing
/// it with every commit would rewrite the same row each time.
fn state_write(kind: CommitKind, run: &Run) -> StateWrite {
    let is_iteration_boundary = matches!(kind, CommitKind::Suspend | CommitKind::Resume | CommitKind::BeginChild);
    if is_iteration_boundary && !run.iteration.is_multiple_of(STATE_EVERY) { StateWrite::WithRow } else { StateWrite::Always }
}

/// Whether text that was streamed before this event is settled by it: it is in an item, or discarded.
pub(crate) fn settles_text(event: &Event) -> bool {
    matches!(event, Event::Reasoned { .. } | Event::Compacted { .. } | Event::Replied { .. } | Event::Cut { .. } | Event::Ended { .. })
}

/// The changes that a transition makes to the rows of calls, with the content of the calls that it makes.
fn call_changes(transition: &mut Transition) -> Vec<(CallNumber, CallChange)> {
    let contents = call_contents(transition);
    let change = |(call, update)| match update {
        CallUpdate::Made { iteration, call: open } => (call, made(&open, iteration, &contents)),
        CallUpdate::Moved { status, result, deadline, item, retry } => (call, CallChange::Moved { status, result, deadline, item, retry }),
    };
    std::mem::take(&mut transition.calls).into_iter().map(change).collect()
}

/// The content item of each call that the transition makes, by number.
fn call_contents(transition: &Transition) -> BTreeMap<CallNumber, ItemId> {
    let calls = transition.items.iter().filter(|item| item.kind == ItemKind::Call);
    let made = transition.events.iter().flat_map(|event| {
        if let Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } = event {
            calls.as_slice()
        } else if let Event::ActionStarted { call, .. } = event {
            std::slice::from_ref(call)
        } else {
            &[]
        }
    });
    made.map(|call| call.call).zip(calls.map(|item| item.id)).collect()
}

fn made(call: &OpenCall, iteration: u32, contents: &BTreeMap<CallNumber, ItemId>) -> CallChange {
    let item = *contents.get(&call.call).expect("every call that is made has its content in the same transition");
    CallChange::Made(NewCall {
        iteration,
        tool: call.tool.clone(),
        route: call.route,
        effect: call.effect,
        deadline: call.deadline,
        item,
        status: CallStatus::fresh(call.route),
        result: None,
    })
}

/// The kind of a transition, for crash points: that of its most significant event.
fn kind_of(events: &[Event]) -> CommitKind {
    events.iter().fold(CommitKind::Note, |kind, event| {
        let own = match event {
            Event::Ended { reason: windlass_kernel::EndReason::Stopped, .. } => CommitKind::Stop,
            Event::Ended { .. } => CommitKind::End,
            Event::Interrupted(_) | Event::CallParked { .. } | Event::Parked { .. } => CommitKind::Park,
            Event::OwnerChanged { .. } => CommitKind::TakeOver,
            Event::Approved { .. } | Event::Edited { .. } | Event::Resolved { .. } | Event::CallReleased { .. } | Event::Unparked => {
                CommitKind::Answer
            }
            Event::Leased => CommitKind::Enter,
            Event::Replied { .. } | Event::CallsInherited { .. } => CommitKind::Suspend,
            Event::Cut { .. } => CommitKind::Cut,
            Event::Reasoned { .. } => CommitKind::Announce,
            Event::Heartbeat => CommitKind::Quiet,
            Event::IterationStarted { .. } | Event::Compacted { .. } => CommitKind::Resume,
            Event::Reported { status: windlass_kernel::TaskStatus::Timeout, .. } => CommitKind::Timeout,
            Event::Reported { .. } => CommitKind::Report,
            Event::ChildBegun { .. } => CommitKind::BeginChild,
            Event::AttemptFailed { .. } | Event::Compacting { .. } | Event::CallRetried { .. } => CommitKind::Retry,
            Event::Accepted { .. }
            | Event::ActionStarted { .. }
            | Event::LeaseEnded { .. }
            | Event::Ignored { .. }
            | Event::Steered { .. }
            | Event::BudgetBreached { .. } => CommitKind::Note,
        };
        strongest(Some(kind), own).unwrap_or(own)
    })
}

/// The more significant of two kinds of one commit.
fn strongest(a: Option<CommitKind>, b: CommitKind) -> Option<CommitKind> {
    let weight = |kind: CommitKind| match kind {
        CommitKind::Stop => 10,
        CommitKind::End => 9,
        CommitKind::Park => 8,
        CommitKind::TakeOver => 7,
        CommitKind::Answer => 6,
        CommitKind::Enter => 5,
        CommitKind::Timeout => 4,
        CommitKind::Resume => 3,
        CommitKind::Suspend => 2,
        CommitKind::Report | CommitKind::BeginChild | CommitKind::Retry | CommitKind::Cut | CommitKind::Quiet | CommitKind::Announce => 1,
        CommitKind::Note | CommitKind::Enqueue | CommitKind::Erase | CommitKind::Claim | CommitKind::Renew | CommitKind::Release => 0,
        CommitKind::Quarantine | CommitKind::Abandon | CommitKind::Refuse | CommitKind::Pack | CommitKind::Converse => 0,
    };
    Some(a.filter(|a| weight(*a) >= weight(b)).unwrap_or(b))
}
