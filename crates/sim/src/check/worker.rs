//! One worker of one process, as `engine::worker` does it: messages in, one commit, effects out. The kernel makes every decision.

use std::sync::Arc;

use uuid::Uuid;
use windlass_kernel::{
    CallNumber, Effect, Event, Failure, FailureCause, HeadStatus, Input, Interrupt, ItemId, Manifest, ModelCallId, Moment, OpenCall,
    Opening, Phase, Reply, Report, ReportCause, RequestedCall, Run, Spent, StreamedText, TaskStatus, Timestamp, outstanding, step,
};

use super::{
    configs::{Config, HOLD_TICKS, tool_name},
    guards::{Guard, Guards},
    promises::{Fact, Promise, Seen},
    state::{
        ActiveRun, CallStatus, Commit, MessageStatus, Named, RunNo, RunStatus, RunningEffect, SentCommit, Stage, State, Store, Worker,
        WorkerMessage,
    },
    store::{Answer, StoreContext},
};

/// The configuration and the guards by which everything is decided and checked.
pub(super) struct Rules<'a> {
    pub config: &'a Config,
    pub manifest: &'a Manifest,
    pub guards: Guards,
}

/// A state that is changed by one step.
pub(super) struct Scene<'a> {
    pub state: State,
    pub seen: Seen,
    pub rules: &'a Rules<'a>,
}

/// Consecutive transitions of one run that become one commit.
struct Draft {
    run: Run,
    events: Vec<Event>,
    reports: Vec<CallNumber>,
    consumed: Vec<u8>,
    raise_epoch: bool,
}

impl Draft {
    fn new(run: &Run) -> Self {
        Draft { run: run.clone(), events: Vec::new(), reports: Vec::new(), consumed: Vec::new(), raise_epoch: false }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.consumed.is_empty() && self.reports.is_empty()
    }

    fn step(&mut self, rules: &Rules<'_>, input: Input, now: Timestamp) {
        // Content is not modelled, so one id is enough for all items of the kernel.
        let mut fresh = || ItemId(Uuid::nil());
        let transition = step(&self.run, rules.manifest, input, &mut Moment { now, fresh: &mut fresh });
        self.events.extend(transition.events);
        self.run = transition.run;
    }

    fn report(&mut self, rules: &Rules<'_>, run: RunNo, call: CallNumber, cause: ReportCause, now: Timestamp) {
        let status = if cause == ReportCause::Deadline { TaskStatus::Timeout } else { TaskStatus::Success };
        let item = ItemId(Uuid::from_u128(1 + u128::from(run) * 1000 + u128::from(call.0) * 10));
        self.step(rules, Input::Reported(Report { call, retry: 0, cause, status, item, after: None, below: None }), now);
    }
}

/// What loading the agent gave.
enum Loaded {
    /// A run to continue.
    Run(Box<Draft>),
    /// No run is active, or another live process owns it.
    Nothing,
}

/// The run and its events after it was entered.
pub(super) fn entered(rules: &Rules<'_>, run: &Run, now: Timestamp) -> (Arc<Run>, Vec<Event>) {
    let mut draft = Draft::new(run);
    draft.step(rules, Input::Entered(Opening::Ask), now);
    (Arc::new(draft.run), draft.events)
}

impl Scene<'_> {
    /// The store, with what its verbs need besides their arguments.
    pub fn context(&mut self) -> (&mut Store, StoreContext<'_>) {
        (&mut self.state.store, StoreContext { guards: self.rules.guards, now: self.state.clock, seen: &mut self.seen })
    }

    /// A worker takes all messages from its mailbox, and loads the agent if `checks_store` is set or a message asks for that.
    pub fn handle(&mut self, index: usize, checks_store: bool) {
        let worker = &mut self.state.workers[index];
        let messages = std::mem::take(&mut worker.messages);
        for message in &messages {
            worker.in_flight.retain(|flight| !is_end_of(*message, flight));
        }
        if checks_store || messages.contains(&WorkerMessage::CheckStore) {
            worker.active = None;
        }
        let taken: Vec<WorkerMessage> = messages.into_iter().filter(|message| *message != WorkerMessage::CheckStore).collect();
        self.advance(index, taken);
    }

    fn advance(&mut self, index: usize, taken: Vec<WorkerMessage>) {
        let active = self.state.workers[index].active.as_ref().map(|active| Draft::new(&active.state));
        let mut draft = match active {
            Some(draft) => draft,
            None => match self.load(index, &taken) {
                Loaded::Run(draft) => *draft,
                Loaded::Nothing => {
                    self.resolve_outside_commit(index, taken);
                    return self.end_if_idle(index);
                }
            },
        };
        let Some(active) = self.state.workers[index].active.clone() else { return };
        let taken: Vec<(WorkerMessage, bool)> =
            taken.into_iter().map(|message| (message, self.draft_message(&mut draft, active.run, message))).collect();
        if draft.is_empty() {
            self.start_effects(index);
            self.resolve_outside_commit(index, taken.into_iter().map(|(message, _)| message).collect());
            return self.end_if_idle(index);
        }
        if !self.rules.guards.has(Guard::EffectsAfterCommit) {
            self.start_owed(index, active.run, &draft.run);
        }
        let named = Named { status: active.status, epoch: active.epoch, run: active.run, seq: active.seq };
        let Draft { run, events, reports, consumed, raise_epoch } = draft;
        let node = self.state.workers[index].node;
        let commit = Commit { run: active.run, node, raise_epoch, state: Arc::new(run), events, reports, consumed };
        self.state.workers[index].stage = Stage::Committing(Box::new(SentCommit { named, commit, taken, is_applied: false }));
    }

    /// Loads the agent, and drafts the inputs that its run missed.
    fn load(&mut self, index: usize, taken: &[WorkerMessage]) -> Loaded {
        let head = self.state.store.head.clone();
        let Some(run) = head.run else {
            self.abandon(index);
            return Loaded::Nothing;
        };
        let state = self.state.store.run(run).state.clone();
        let node = self.state.workers[index].node;
        let is_foreign = head.owner != Some(node) && head.status != HeadStatus::Dispatched && !outstanding(&state).is_empty();
        let owner_lives = head.owner.is_some_and(|owner| self.state.is_live(owner));
        let stops = taken.iter().any(|message| matches!(message, WorkerMessage::Stop { run: stopped } if *stopped == run));
        if is_foreign && owner_lives && !stops && self.rules.guards.has(Guard::TakeOnlyFromLost) {
            self.abandon(index);
            return Loaded::Nothing;
        }
        let mut draft = Draft::new(&state);
        if head.status == HeadStatus::Dispatched {
            draft.step(self.rules, Input::Entered(Opening::Ask), self.state.clock);
        } else if self.has_lost_work(index, run, &state, taken, is_foreign) {
            draft.step(self.rules, Input::owner_changed(), self.state.clock);
            // A run that is stopped in the same commit starts no effects.
            if !stops {
                self.judge_parking(index, run, &draft.events, !is_foreign);
            }
        }
        self.take_messages(&mut draft, run);
        self.give_up_waits(&mut draft, run);
        self.state.workers[index].active = Some(ActiveRun { run, state, status: head.status, epoch: head.epoch, seq: head.seq });
        Loaded::Run(Box::new(draft))
    }

    fn has_lost_work(&self, index: usize, run: RunNo, state: &Run, taken: &[WorkerMessage], is_foreign: bool) -> bool {
        if is_foreign {
            return self.rules.guards.has(Guard::TakeoverIsAnInput);
        }
        let worker = &self.state.workers[index];
        if self.state.store.head.owner != Some(worker.node) {
            return false;
        }
        let is_in_flight = |effect: &Effect| worker.in_flight.iter().any(|flight| flight.run == run && flight.effect == *effect);
        let is_at_hand = |effect: &Effect| {
            let Effect::StartTool { call } = effect else { return true };
            self.rules.guards.has(Guard::ResultInMemory) && taken.contains(&WorkerMessage::Tool { run, call: *call })
        };
        outstanding(state).iter().any(|effect| matches!(effect, Effect::StartTool { .. }) && !is_in_flight(effect) && !is_at_hand(effect))
    }

    /// Only a call whose outcome is unknown may be parked: not one that a live process has in flight or whose result it has in memory.
    fn judge_parking(&mut self, index: usize, run: RunNo, events: &[Event], is_own: bool) {
        for event in events {
            let Event::Interrupted(Interrupt { call: Some(call), .. }) = event else { continue };
            let effect = Effect::StartTool { call: *call };
            let lives = |(place, worker): (usize, &Worker)| {
                place != index && !worker.is_paused && worker.in_flight.iter().any(|flight| flight.run == run && flight.effect == effect)
            };
            let is_known = is_own || self.state.workers.iter().enumerate().any(lives);
            self.seen.holds(!is_known, Promise::ParkOnlyUnknown, || {
                format!("write {} of run {run} is parked though the process that runs it lives", call.0)
            });
        }
    }

    fn take_messages(&self, draft: &mut Draft, run: RunNo) {
        // The worker skips the question if the head counts no pending messages, so a message that is not counted is not seen.
        if self.state.store.head.pending == 0 {
            return;
        }
        for (place, message) in self.state.store.inbox.iter().enumerate() {
            let is_ours = message.run == run && message.status == MessageStatus::Pending;
            if !is_ours || message.call.0 > draft.run.calls_used {
                continue;
            }
            draft.consumed.push(place as u8);
            draft.report(self.rules, run, message.call, ReportCause::Tool, self.state.clock);
        }
    }

    fn give_up_waits(&self, draft: &mut Draft, run: RunNo) {
        let now = self.state.clock;
        for call in draft.run.expired(now) {
            draft.report(self.rules, run, call, ReportCause::Deadline, now);
        }
        for row in self.state.store.calls.iter().filter(|row| row.run == run) {
            let is_open = draft.run.call(row.call).is_some_and(|open| draft.run.is_free(open));
            if is_open && matches!(row.status, CallStatus::Claimed(until) if until <= now) {
                draft.step(self.rules, Input::LeaseEnded(row.call), now);
            }
        }
    }

    /// Drafts the input of a message, if it is about the active run and fits its state.
    fn draft_message(&mut self, draft: &mut Draft, active: RunNo, message: WorkerMessage) -> bool {
        let now = self.state.clock;
        match message {
            WorkerMessage::ModelEnded { run, id, is_reply } => {
                let Some(owed) = draft.run.model_call() else { return false };
                if run != active || id != owed && self.rules.guards.has(Guard::ReplyFitsIteration) {
                    return false;
                }
                self.seen.holds(id == owed, Promise::IterationsByOne, || format!("a reply to {id:?} is taken as one to {owed:?}"));
                draft.step(self.rules, model_input(self.rules.config, run, id, is_reply, now), now);
            }
            WorkerMessage::Tool { run, call } | WorkerMessage::Report { run, call } => {
                let is_awaited = |open: &OpenCall| !open.is_received() && (!message.is_local() || draft.run.call_hold(call).is_none());
                if run != active || !draft.run.call(call).is_some_and(is_awaited) {
                    return false;
                }
                draft.reports.push(call);
                draft.report(self.rules, run, call, ReportCause::Tool, now);
            }
            WorkerMessage::Stop { run } => {
                if run != active || draft.run.has_ended() {
                    return false;
                }
                if matches!(draft.run.phase, Phase::Thinking { .. }) {
                    self.seen.fact(Fact::StoppedThinking);
                }
                draft.raise_epoch = true;
                draft.step(self.rules, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, now);
            }
            WorkerMessage::CheckStore => return false,
        }
        true
    }

    /// The store answers a commit, or writes it and its answer is lost.
    pub fn commit(&mut self, index: usize, is_lost: bool) {
        let stage = std::mem::replace(&mut self.state.workers[index].stage, Stage::Free);
        let Stage::Committing(sent) = stage else { return };
        let (store, mut context) = self.context();
        let answer = store.commit(&mut context, &sent.named, &sent.commit, sent.is_applied);
        match answer {
            Answer::Fenced => self.fenced(index, &sent),
            Answer::Done { .. } if is_lost => self.answer_lost(index, *sent),
            Answer::Done { pending, next_leased } => self.committed(index, *sent, pending, next_leased),
        }
    }

    fn committed(&mut self, index: usize, sent: SentCommit, pending: bool, next_leased: bool) {
        let SentCommit { commit, taken, is_applied, .. } = sent;
        if is_applied {
            self.seen.fact(Fact::AnswerLost);
        }
        let makes_calls = commit.events.iter().any(|event| matches!(event, Event::Replied { calls, .. } if !calls.is_empty()));
        if pending && makes_calls {
            self.seen.fact(Fact::EarlyKept);
        }
        if commit.state.has_ended() {
            self.abandon(index);
        } else if let Some(active) = &mut self.state.workers[index].active {
            let head = &self.state.store.head;
            active.status = commit.state.head_status();
            active.state = commit.state;
            (active.epoch, active.seq) = (head.epoch, head.seq);
        }
        let taken = taken.into_iter().filter(|(_, is_drafted)| !is_drafted).map(|(message, _)| message).collect();
        self.state.workers[index].stage = Stage::Starting { taken, again: next_leased || pending && makes_calls };
    }

    fn fenced(&mut self, index: usize, sent: &SentCommit) {
        let node = self.state.workers[index].node;
        let is_other = self.state.store.head.owner != Some(node);
        if is_other {
            self.seen.fact(Fact::ZombieFenced);
        }
        self.abandon(index);
        let messages: Vec<WorkerMessage> = sent.taken.iter().map(|(message, _)| *message).filter(|message| !message.is_local()).collect();
        let worker = &mut self.state.workers[index];
        if !messages.is_empty() || !is_other {
            worker.messages.push(WorkerMessage::CheckStore);
        }
        worker.messages.extend(messages);
        self.end_if_idle(index);
    }

    /// The store has written, and the worker does not know.
    fn answer_lost(&mut self, index: usize, sent: SentCommit) {
        if self.rules.guards.has(Guard::SameCommitAgain) {
            self.state.workers[index].stage = Stage::Committing(Box::new(SentCommit { is_applied: true, ..sent }));
            return;
        }
        // A new draft would be another commit. The senders of the messages are asked to repeat them.
        for (message, _) in &sent.taken {
            self.send_again(*message);
        }
        let worker = &mut self.state.workers[index];
        worker.messages.extend(sent.taken.iter().map(|(message, _)| *message).filter(|message| message.is_local()));
        if worker.messages.is_empty() && worker.in_flight.is_empty() {
            worker.messages.push(WorkerMessage::CheckStore);
        }
    }

    /// A report that this process does not acknowledge is sent again.
    pub fn send_again(&mut self, message: WorkerMessage) {
        if let WorkerMessage::Report { run, call } = message
            && let Some(row) = self.state.store.call(run, call)
        {
            row.is_ready = true;
        }
    }

    /// After the answer to its commit a worker starts the effects that are owed, and resolves the messages that did not fit.
    pub fn start(&mut self, index: usize) {
        let stage = std::mem::replace(&mut self.state.workers[index].stage, Stage::Free);
        let Stage::Starting { taken, again } = stage else { return };
        self.start_effects(index);
        if again {
            let worker = &mut self.state.workers[index];
            worker.active = None;
            worker.messages.push(WorkerMessage::CheckStore);
        }
        self.resolve_outside_commit(index, taken);
        self.end_if_idle(index);
    }

    fn start_effects(&mut self, index: usize) {
        let Some(active) = self.state.workers[index].active.clone() else { return };
        self.start_owed(index, active.run, &active.state);
    }

    /// Starts the effects that a run is owed, and cancels those that it is not owed any more.
    fn start_owed(&mut self, index: usize, run: RunNo, state: &Run) {
        let owed = outstanding(state);
        let node = self.state.workers[index].node;
        let is_old = self.state.store.head.owner != Some(node) || self.state.store.head.run != Some(run);
        self.state.workers[index].in_flight.retain(|flight| flight.run == run && owed.contains(&flight.effect));
        for effect in owed {
            let is_in_flight = self.state.workers[index].in_flight.iter().any(|flight| flight.run == run && flight.effect == effect);
            let must_wait = matches!(effect, Effect::CallModel { not_before: Some(at), .. } if at > self.state.clock);
            if is_in_flight || must_wait {
                continue;
            }
            if is_old {
                self.seen.fact(Fact::ZombieStarted);
            }
            match effect {
                Effect::StartTool { call } => self.state.store.start(&mut self.seen, run, call),
                Effect::CallModel { id, .. } => self.judge_model_call(run, id),
                // The worlds of this check have one head, and no agents among their tools.
                Effect::StartChild { .. } => {}
            }
            self.state.workers[index].in_flight.push(RunningEffect { run, effect, is_over: false });
        }
    }

    /// A model call must belong to a committed iteration.
    fn judge_model_call(&mut self, run: RunNo, id: ModelCallId) {
        let iteration = id.iteration;
        let stored = self.state.store.run(run).state.clone();
        let is_committed = match stored.model_call() {
            Some(owed) if owed.iteration == iteration => id.attempt <= owed.attempt,
            Some(owed) => owed.iteration > iteration,
            None => stored.iteration >= iteration,
        };
        self.seen
            .holds(is_committed, Promise::EffectFromRow, || format!("iteration {iteration} of run {run} calls the model without a row"));
    }

    /// Resolves messages that are not about the active run, or do not fit its state any more.
    fn resolve_outside_commit(&mut self, index: usize, taken: Vec<WorkerMessage>) {
        for message in taken {
            match message {
                WorkerMessage::Report { run, call } => {
                    let (store, mut context) = self.context();
                    store.report(&mut context, run, call);
                    self.check_again(index);
                }
                WorkerMessage::Stop { run } => match self.state.store.run(run).status {
                    RunStatus::Ended => {}
                    RunStatus::Active => {
                        self.check_again(index);
                        self.state.workers[index].messages.push(message);
                    }
                    RunStatus::Queued => self.withdraw(index, run),
                },
                WorkerMessage::CheckStore | WorkerMessage::ModelEnded { .. } | WorkerMessage::Tool { .. } => {}
            }
        }
    }

    fn withdraw(&mut self, index: usize, run: RunNo) {
        let state = self.state.store.run(run).state.clone();
        let mut draft = Draft::new(&state);
        draft.step(self.rules, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, self.state.clock);
        let node = self.state.workers[index].node;
        let Draft { run: state, events, .. } = draft;
        let commit = Commit { run, node, raise_epoch: false, state: Arc::new(state), events, reports: Vec::new(), consumed: Vec::new() };
        let (store, mut context) = self.context();
        store.withdraw(&mut context, &commit);
    }

    fn check_again(&mut self, index: usize) {
        let worker = &mut self.state.workers[index];
        worker.active = None;
        if !worker.messages.contains(&WorkerMessage::CheckStore) {
            worker.messages.push(WorkerMessage::CheckStore);
        }
    }

    /// Drops the run from memory, and cancels its effects.
    fn abandon(&mut self, index: usize) {
        let worker = &mut self.state.workers[index];
        worker.active = None;
        worker.in_flight.clear();
    }

    /// A worker without effects in flight and without messages ends, and drops its run from memory.
    fn end_if_idle(&mut self, index: usize) {
        let worker = &mut self.state.workers[index];
        if !worker.is_busy() {
            worker.active = None;
        }
    }
}

fn is_end_of(message: WorkerMessage, flight: &RunningEffect) -> bool {
    match (message, flight.effect) {
        (WorkerMessage::ModelEnded { run, id, .. }, Effect::CallModel { id: one, .. }) => run == flight.run && id == one,
        (WorkerMessage::Tool { run, call }, Effect::StartTool { call: one }) => run == flight.run && call == one,
        (
            WorkerMessage::CheckStore
            | WorkerMessage::ModelEnded { .. }
            | WorkerMessage::Tool { .. }
            | WorkerMessage::Report { .. }
            | WorkerMessage::Stop { .. },
            _,
        ) => false,
    }
}

/// The input of a model call's end: tools are requested in the first iteration, then an answer is given.
fn model_input(config: &Config, run: RunNo, id: ModelCallId, is_reply: bool, now: Timestamp) -> Input {
    let ModelCallId { iteration, attempt, .. } = id;
    if !is_reply {
        let retry_at = (attempt < 2).then(|| now.plus_ms(HOLD_TICKS));
        return Input::AttemptFailed(Failure {
            code: "busy".into(),
            cause: FailureCause::Other,
            message: String::new(),
            retry_after_ms: None,
            retry_at,
            fallback: None,
            spent: Spent::default(),
            streamed: StreamedText::default(),
        });
    }
    let calls = (iteration == 1 || config.is_greedy) && (run == 0 || !config.is_only_first);
    let requested =
        |index: usize| RequestedCall { provider_id: String::new(), tool: tool_name(index).to_owned(), arguments: "{}".to_owned() };
    let calls = if calls { (0..config.tools.len()).map(requested).collect() } else { Vec::new() };
    Input::Replied(Reply { calls, ..Reply::default() })
}
