//! The steps that are possible in a state. Faults are limited by their budgets.

use windlass_kernel::{CallNumber, Effect, Phase};

use super::{
    configs::Ways,
    guards::Guard,
    promises::{Fact, Promise, Seen},
    state::{ActiveRun, Call, CallStatus, Message, MessageStatus, RunNo, RunStatus, RunningEffect, Stage, State, Worker, WorkerMessage},
    store::{Enqueued, accepted_run},
    worker::{Rules, Scene, entered},
};

/// One step. Workers, requests, calls and runs are named by their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client requests a run from a worker.
    Enqueue(u8, u8),
    /// The same, and the answer is lost.
    EnqueueLost(u8, u8),
    /// A worker handles the messages in its mailbox.
    Handle(u8),
    /// The sweep sends a worker to the store, and the worker handles its mailbox, too.
    CheckStore(u8),
    /// The store answers a worker's commit.
    Commit(u8),
    /// The store writes a worker's commit, and the answer is lost.
    CommitLost(u8),
    /// A worker's commit is delayed on the network, and is sent again.
    Delay(u8),
    /// The delayed commit arrives.
    Arrive,
    /// A worker starts the effects that its commit made outstanding.
    Start(u8),
    /// A worker's model call is answered.
    Think(u8),
    /// A worker's model call fails.
    Fail(u8),
    /// A tool of a worker's process ends.
    ToolEnds(u8, u8),
    /// A service claims a call and starts it.
    Claim(u8),
    /// A service reports a call to a worker.
    Report(u8, u8),
    /// A service reports a call to the store, because no worker has room.
    Record(u8),
    /// A service reports a call, and will report it again.
    ReportTwice(u8),
    /// A service dies with a call and never reports it.
    Silence(u8),
    /// A report arrives before its call is made.
    Early,
    /// A client asks a worker to stop a run.
    Stop(u8, u8),
    /// A worker's process dies and another one starts.
    Crash(u8),
    /// A worker's process is paused until its lease has ended.
    Pause(u8),
    /// The process continues with what it had in memory.
    Wake(u8),
    /// Time passes.
    Tick,
}

/// All steps that may be possible. A step that turns out to change nothing is dropped by the caller.
pub(super) fn possible(state: &State, rules: &Rules<'_>) -> Vec<Action> {
    let mut actions = Vec::with_capacity(24);
    for (index, worker) in state.workers.iter().enumerate() {
        of_worker(state, rules, worker, index as u8, &mut actions);
    }
    of_services(state, rules, &mut actions);
    if state.floating.is_some() {
        actions.push(Action::Arrive);
    }
    if state.faults.ticks > 0 && time_matters(state) {
        actions.push(Action::Tick);
    }
    actions
}

fn of_worker(state: &State, rules: &Rules<'_>, worker: &Worker, index: u8, actions: &mut Vec<Action>) {
    if worker.is_paused {
        return actions.push(Action::Wake(index));
    }
    match &worker.stage {
        Stage::Committing(sent) => {
            actions.push(Action::Commit(index));
            if state.faults.lost > 0 && !sent.is_applied {
                actions.push(Action::CommitLost(index));
            }
            if state.faults.delays > 0 && state.floating.is_none() {
                actions.push(Action::Delay(index));
            }
        }
        Stage::Starting { .. } => actions.push(Action::Start(index)),
        Stage::Free => of_free_worker(state, rules, worker, index, actions),
    }
    for flight in worker.in_flight.iter().filter(|flight| !flight.is_over) {
        match flight.effect {
            Effect::CallModel { .. } => {
                actions.push(Action::Think(index));
                if state.faults.failures > 0 {
                    actions.push(Action::Fail(index));
                }
            }
            Effect::StartTool { call } => actions.push(Action::ToolEnds(index, call.0 as u8)),
            Effect::StartChild { .. } => {}
        }
    }
    let has_stake = worker.is_busy() || state.store.head.owner == Some(worker.node) && state.store.head.run.is_some();
    if state.faults.crashes > 0 && has_stake {
        actions.push(Action::Crash(index));
    }
    if state.faults.pauses > 0 && worker.is_busy() {
        actions.push(Action::Pause(index));
    }
}

fn of_free_worker(state: &State, rules: &Rules<'_>, worker: &Worker, index: u8, actions: &mut Vec<Action>) {
    if !worker.messages.is_empty() {
        actions.push(Action::Handle(index));
    }
    let head = &state.store.head;
    let owner_is_lost = head.owner.is_some_and(|owner| !state.is_live(owner));
    let is_orphan = owner_is_lost && state.store.is_owed() && rules.guards.has(Guard::OrphansAreFound);
    if state.store.is_due(state.clock) || is_orphan {
        actions.push(Action::CheckStore(index));
    }
    // Requests are made in their order: two at the same time have the effect of one order or the other.
    if let Some(request) = state.requests.iter().position(|is_open| *is_open) {
        actions.push(Action::Enqueue(index, request as u8));
        if state.faults.lost > 0 {
            actions.push(Action::EnqueueLost(index, request as u8));
        }
    }
    if state.faults.stops > 0 {
        let open = state.store.runs.iter().enumerate().filter(|(_, row)| row.status != RunStatus::Ended);
        actions.extend(open.map(|(run, _)| Action::Stop(index, run as u8)));
    }
}

fn of_services(state: &State, rules: &Rules<'_>, actions: &mut Vec<Action>) {
    for (place, call) in state.store.calls.iter().enumerate() {
        if state.store.is_claimable(rules.guards, place, state.clock) {
            actions.push(Action::Claim(place as u8));
        }
        if !call.is_ready {
            continue;
        }
        if state.store.run(call.run).status == RunStatus::Ended {
            // A late report is recorded, and has the same effect whichever way it comes.
            actions.push(Action::Record(place as u8));
            continue;
        }
        if rules.config.reports != Ways::Inbox {
            let awake = state.workers.iter().enumerate().filter(|(_, worker)| !worker.is_paused);
            actions.extend(awake.map(|(index, _)| Action::Report(index as u8, place as u8)));
        }
        if rules.config.reports != Ways::Mailbox {
            actions.push(Action::Record(place as u8));
        }
        if state.faults.duplicates > 0 {
            actions.push(Action::ReportTwice(place as u8));
        }
        if state.faults.silences > 0 {
            actions.push(Action::Silence(place as u8));
        }
    }
    let may_come_early = state.store.runs.first().is_some_and(|row| row.status == RunStatus::Active && row.state.calls_used == 0);
    if state.faults.early > 0 && may_come_early {
        actions.push(Action::Early);
    }
}

/// Whether anything depends on a later time.
fn time_matters(state: &State) -> bool {
    let is_ahead = |at: windlass_kernel::Timestamp| at > state.clock;
    let held = state.store.calls.iter().any(|call| matches!(call.status, CallStatus::Claimed(until) if is_ahead(until)));
    let Some(run) = state.store.head.run else { return false };
    let state = &state.store.run(run).state;
    let waits = state.calls().iter().any(|call| state.is_free(call) && is_ahead(call.deadline));
    held || waits || matches!(state.phase, Phase::Thinking { not_before: Some(at), .. } if is_ahead(at))
}

/// The state after a step.
pub(super) fn perform<'a>(state: &State, action: Action, rules: &'a Rules<'a>) -> (State, Seen) {
    let mut scene = Scene { state: state.clone(), seen: Seen::default(), rules };
    match action {
        Action::Enqueue(index, request) => scene.enqueue(usize::from(index), usize::from(request), false),
        Action::EnqueueLost(index, request) => scene.enqueue(usize::from(index), usize::from(request), true),
        Action::Handle(index) => scene.handle(usize::from(index), false),
        Action::CheckStore(index) => scene.handle(usize::from(index), true),
        Action::Commit(index) => scene.commit(usize::from(index), false),
        Action::CommitLost(index) => {
            scene.state.faults.lost -= 1;
            scene.commit(usize::from(index), true);
        }
        Action::Delay(index) => scene.delay(usize::from(index)),
        Action::Arrive => scene.arrive(),
        Action::Start(index) => scene.start(usize::from(index)),
        Action::Think(index) => scene.think(usize::from(index), true),
        Action::Fail(index) => scene.think(usize::from(index), false),
        Action::ToolEnds(index, call) => scene.tool_ends(usize::from(index), CallNumber(call.into())),
        Action::Claim(place) => {
            let (store, mut context) = scene.context();
            store.claim(&mut context, usize::from(place));
        }
        Action::Report(index, place) => scene.report(Some(usize::from(index)), usize::from(place)),
        Action::Record(place) => scene.report(None, usize::from(place)),
        Action::ReportTwice(place) => {
            scene.state.faults.duplicates -= 1;
            scene.report(None, usize::from(place));
            scene.state.store.calls[usize::from(place)].is_ready = true;
        }
        Action::Silence(place) => {
            scene.state.faults.silences -= 1;
            scene.state.store.calls[usize::from(place)].is_ready = false;
        }
        Action::Early => scene.early(),
        Action::Stop(index, run) => {
            scene.state.faults.stops -= 1;
            scene.state.workers[usize::from(index)].messages.push(WorkerMessage::Stop { run });
        }
        Action::Crash(index) => scene.crash(usize::from(index)),
        Action::Pause(index) => {
            scene.state.faults.pauses -= 1;
            scene.state.workers[usize::from(index)].is_paused = true;
        }
        Action::Wake(index) => scene.state.workers[usize::from(index)].is_paused = false,
        Action::Tick => {
            scene.state.faults.ticks -= 1;
            scene.state.clock = scene.state.clock.plus_ms(1);
        }
    }
    scene.state.store.agree(&mut scene.seen);
    (scene.state, scene.seen)
}

impl Scene<'_> {
    fn enqueue(&mut self, index: usize, request: usize, is_lost: bool) {
        let key = self.rules.config.keys[request];
        let run = self.state.store.runs.len() as RunNo;
        let worker = &self.state.workers[index];
        let (node, is_free) = (worker.node, worker.active.is_none());
        let is_full = self.rules.config.is_full;
        let enter = (is_free && !is_full).then(|| entered(self.rules, &accepted_run(run), self.state.clock));
        let is_entered = enter.is_some();
        let (store, mut context) = self.context();
        let outcome = store.enqueue(&mut context, key, node, enter);
        if is_lost {
            self.state.faults.lost -= 1;
            self.seen.fact(Fact::EnqueueLost);
        } else {
            self.state.requests[request] = false;
        }
        let Enqueued::Entered(run) = outcome else { return };
        let head = &self.state.store.head;
        let worker = &mut self.state.workers[index];
        if is_full {
            return;
        }
        if is_lost || !is_entered {
            // A worker loads the agent after every batch, so that it finds what no message brought.
            worker.active = None;
            worker.messages.push(WorkerMessage::CheckStore);
            return;
        }
        let state = self.state.store.run(run).state.clone();
        worker.active = Some(ActiveRun { run, status: state.head_status(), state, epoch: head.epoch, seq: head.seq });
        worker.stage = Stage::Starting { taken: Vec::new(), again: false };
    }

    fn delay(&mut self, index: usize) {
        self.state.faults.delays -= 1;
        if let Stage::Committing(sent) = &self.state.workers[index].stage {
            self.state.floating = Some(Box::new((sent.named.clone(), sent.commit.clone())));
        }
    }

    /// The answer of a delayed commit is lost: its sender does not wait for it any more.
    fn arrive(&mut self) {
        let Some(floating) = self.state.floating.take() else { return };
        let before = self.state.store.head.seq;
        let (store, mut context) = self.context();
        store.commit(&mut context, &floating.0, &floating.1, false);
        if self.state.store.head.seq == before {
            return self.seen.fact(Fact::LateRequest);
        }
        // It arrived in time after all: the sender that repeats it finds it applied.
        for worker in &mut self.state.workers {
            if let Stage::Committing(sent) = &mut worker.stage
                && sent.named == floating.0
                && sent.commit == floating.1
            {
                sent.is_applied = true;
            }
        }
    }

    fn think(&mut self, index: usize, is_reply: bool) {
        if !is_reply {
            self.state.faults.failures -= 1;
        }
        let worker = &mut self.state.workers[index];
        let is_model = |flight: &&mut RunningEffect| !flight.is_over && matches!(flight.effect, Effect::CallModel { .. });
        let Some(flight) = worker.in_flight.iter_mut().find(is_model) else { return };
        flight.is_over = true;
        if let Effect::CallModel { id, .. } = flight.effect {
            worker.messages.push(WorkerMessage::ModelEnded { run: flight.run, id, is_reply });
        }
    }

    fn tool_ends(&mut self, index: usize, call: CallNumber) {
        let worker = &mut self.state.workers[index];
        let effect = Effect::StartTool { call };
        if let Some(flight) = worker.in_flight.iter_mut().find(|flight| !flight.is_over && flight.effect == effect) {
            flight.is_over = true;
            worker.messages.push(WorkerMessage::Tool { run: flight.run, call });
        }
    }

    fn report(&mut self, index: Option<usize>, place: usize) {
        let row = &mut self.state.store.calls[place];
        row.is_ready = false;
        let (run, call) = (row.run, row.call);
        let has_ended = self.state.store.run(run).state.has_ended();
        match index.filter(|_| !has_ended) {
            Some(index) => self.state.workers[index].messages.push(WorkerMessage::Report { run, call }),
            None => {
                let (store, mut context) = self.context();
                store.report(&mut context, run, call);
            }
        }
    }

    fn early(&mut self) {
        self.state.faults.early -= 1;
        let (store, mut context) = self.context();
        store.report(&mut context, 0, CallNumber(1));
    }

    fn crash(&mut self, index: usize) {
        self.state.faults.crashes -= 1;
        let next = self.state.workers.iter().map(|worker| worker.node).max().unwrap_or_default() + 1;
        let lost = std::mem::replace(&mut self.state.workers[index], Worker::fresh(next));
        let mut messages = lost.messages;
        match lost.stage {
            Stage::Free => {}
            Stage::Committing(sent) => messages.extend(sent.taken.iter().map(|(message, _)| *message)),
            Stage::Starting { taken, .. } => messages.extend(taken),
        }
        for message in messages {
            self.send_again(message);
        }
    }
}

/// Checks a state without a next step: every run has ended, waits for a deadline to come, or waits for a person.
pub(super) fn judge_end(state: &State, seen: &mut Seen) {
    let head = &state.store.head;
    let Some(run) = head.run else {
        let queued = head.queued;
        return seen.holds(queued == 0, Promise::NothingStuck, || format!("the agent is idle and {queued} runs wait"));
    };
    let stored = &state.store.run(run).state;
    let parks = |call: &windlass_kernel::OpenCall| stored.call_hold(call.call).is_some();
    if stored.calls().iter().any(parks) {
        seen.fact(Fact::ParkedAtTheEnd);
    }
    let waits = match &stored.phase {
        Phase::Accepted | Phase::Ended { .. } => false,
        Phase::Thinking { not_before, .. } => not_before.is_some_and(|at| at > state.clock),
        Phase::Waiting { calls } => calls.iter().all(|call| call.is_received() || parks(call) || call.deadline > state.clock),
    };
    seen.holds(waits || stored.is_held(), Promise::NothingStuck, || format!("run {run} is stuck: {head:?}, {stored:?}"));
    let is_awaited = |call| stored.call(call).is_some_and(|open| !open.is_received());
    let is_takeable = |message: &&Message| message.run == run && message.status == MessageStatus::Pending && is_awaited(message.call);
    let unapplied = state.store.inbox.iter().find(is_takeable);
    seen.holds(unapplied.is_none(), Promise::NothingStuck, || format!("a result waits and no worker takes it: {unapplied:?}"));
    let is_ended = |call: &&Call| call.run == run && matches!(call.status, CallStatus::Claimed(until) if until <= state.clock);
    let held = state.store.calls.iter().find(is_ended);
    seen.holds(held.is_none(), Promise::NothingStuck, || format!("a hold ended and no worker looks: {held:?}"));
}
