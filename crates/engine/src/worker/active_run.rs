//! The state that a worker keeps in memory: its agent's active run as last committed, and the effects in flight for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::AbortHandle};
use windlass_kernel::{
    AgentKey, AgentName, CallKey, CallNumber, Effect, Epoch, HeadStatus, ItemKind, Manifest, ModelCallId, ParentCall, Remote, Run, RunId,
    Seq, StreamedText, Timestamp, ToolName, ToolServer, budget, content, outstanding,
};
use windlass_ports::{CallChange, Commit, Committed, Guard, Head, Item, LoadedRun, ModelTool, NewRun};

use super::text_continues;
use crate::{
    children::{self, ChildStart},
    compaction::PromptPlan,
    effects::{self, ModelCall, ToolStart},
    engine::Inner,
    prompt,
    stream_buffer::StreamBuffer,
    worker_message::WorkerMessage,
};

#[derive(Default)]
pub(super) struct ActiveRun {
    run: Option<CommittedRun>,
    /// The run is part of the key, because the end of an effect may reach the mailbox when another run is active already.
    in_flight: BTreeMap<(RunId, Effect), AbortHandle>,
    /// Calls whose results are in the batch being handled: they are completed, not lost. The value is the failure class, if the call
    /// failed.
    completed: BTreeMap<(RunId, CallNumber), Option<&'static str>>,
    deferred: Option<DeferredEffects>,
    /// The run whose text is being streamed, with its stream buffer.
    buffer: Option<(RunId, Arc<StreamBuffer>)>,
}

/// Effects of a run that were not started because this process had no lease.
struct DeferredEffects {
    run: RunId,
    seq: Seq,
    /// The task that waits for the lease and then sends `CheckStore` to the worker.
    wait: AbortHandle,
}

/// A run as last committed, with the values of the guard for its next commit.
pub(super) struct CommittedRun {
    pub id: RunId,
    pub state: Run,
    pub manifest: Arc<Manifest>,
    /// The name of the agent whose settings the run has, if it has a named one.
    agent_name: Option<AgentName>,
    /// The run that this one continues, if that one waited for its client.
    pub follows: Option<RunId>,
    tools: Arc<[ModelTool]>,
    status: HeadStatus,
    epoch: Epoch,
    seq: Seq,
    /// The whole prompt, if it is in memory.
    context: Option<Vec<Item>>,
}

impl CommittedRun {
    /// A run that its enqueue is about to enter.
    fn entering(new: &NewRun, enter: Commit) -> Self {
        let items = new.context.items.iter().map(Item::from);
        let own = new.context.parent.is_none().then(|| items.collect());
        let mut run = CommittedRun {
            id: new.run,
            state: new.state.clone(),
            manifest: new.manifest.manifest.clone(),
            agent_name: new.agent_name.clone(),
            follows: new.follows,
            tools: prompt::tools(&new.manifest.manifest),
            status: HeadStatus::Idle,
            epoch: Epoch(0),
            seq: Seq(0),
            context: own,
        };
        run.advance(enter);
        run
    }

    /// The agent as operators know it: the name of the agent, or the key of the head if the run has no named agent.
    pub fn agent_id(&self, head: &AgentKey) -> AgentKey {
        let agent = self.agent_name.clone().unwrap_or_else(|| head.agent.clone());
        AgentKey { tenant: head.tenant.clone(), agent }
    }

    /// The guard for the next commit of the run.
    pub fn guard(&self, agent: &AgentKey) -> Guard {
        Guard { agent: agent.clone(), status: self.status, epoch: self.epoch, run: self.id, seq: self.seq }
    }

    fn advance(&mut self, commit: Commit) {
        if let Some(context) = &mut self.context {
            let fresh: BTreeMap<_, _> = commit.items.iter().map(|item| (item.id, item)).collect();
            let found: Option<Vec<Item>> = commit.appended.iter().map(|id| fresh.get(id).copied().map(Item::from)).collect();
            match found {
                Some(items) => context.extend(items),
                // A result that an earlier commit stored is appended now. The next model call reads the prompt from the store again.
                None => self.context = None,
            }
        }
        self.status = commit.state.head_status();
        self.state = commit.state;
    }

    fn call_content(&self, call: CallNumber) -> Option<bytes::Bytes> {
        let items = self.context.as_ref()?.iter().rev().filter(|item| item.kind == ItemKind::Call);
        items
            .map(|item| &item.content)
            .find(|content| serde_json::from_slice::<content::Call>(content).is_ok_and(|found| found.call == call))
            .cloned()
    }
}

impl ActiveRun {
    /// The state after an enqueue that enters the run, and the tools of which services may then claim calls.
    pub fn entering(new: &NewRun, enter: Commit) -> (ActiveRun, Vec<ToolName>) {
        let claimable = claimable(&enter);
        (ActiveRun { run: Some(CommittedRun::entering(new, enter)), ..ActiveRun::default() }, claimable)
    }

    /// Sets the epoch and sequence number under which the store leased the agent to the run.
    pub fn set_lease(&mut self, epoch: Epoch, seq: Seq) {
        if let Some(run) = &mut self.run {
            (run.epoch, run.seq) = (epoch, seq);
        }
    }

    /// Replaces the run, and cancels everything in flight for the one before.
    pub fn replace(&mut self, other: ActiveRun) {
        self.abandon();
        *self = other;
    }

    /// Sets the run to what was loaded from the store, with the prompt if that was read too. Effects in flight for the run continue.
    pub fn set_run(&mut self, head: &Head, loaded: LoadedRun, context: Option<Vec<Item>>) {
        self.run = Some(CommittedRun {
            id: loaded.id,
            tools: prompt::tools(&loaded.manifest),
            state: loaded.state,
            manifest: loaded.manifest,
            agent_name: loaded.agent_name,
            follows: loaded.follows,
            status: head.status,
            epoch: head.epoch,
            seq: head.seq,
            context,
        });
    }

    /// Sets the stream buffer of a run that was loaded.
    pub fn set_buffer(&mut self, buffer: Option<(RunId, Arc<StreamBuffer>)>) {
        self.buffer = buffer;
    }

    /// Whether the stream buffer is that run's.
    pub fn is_streaming(&self, run: RunId) -> bool {
        self.buffer.as_ref().is_some_and(|(id, _)| *id == run)
    }

    /// The streamed text that no item contains yet.
    pub fn streamed_text(&self) -> StreamedText {
        self.buffer.as_ref().map(|(_, buffer)| buffer.streamed_text()).unwrap_or_default()
    }

    /// Starts an empty stream buffer at `position` of the output: the text streamed so far is in an item, and the same model call
    /// continues.
    pub fn restart_buffer(&self, run: RunId, position: u32) {
        if let Some((_, buffer)) = self.buffer.as_ref().filter(|(id, _)| *id == run) {
            buffer.restart(position);
        }
    }

    /// Closes the stream buffer and waits for the delta batch being written, so that a commit settles exactly the text that was streamed.
    pub async fn close_buffer(&self) {
        if let Some((_, buffer)) = &self.buffer {
            buffer.close().await;
        }
    }

    pub fn run(&self) -> Option<&CommittedRun> {
        self.run.as_ref()
    }

    pub fn has_run(&self) -> bool {
        self.run.is_some()
    }

    pub fn nothing_in_flight(&self) -> bool {
        self.in_flight.is_empty() && self.deferred.is_none()
    }

    /// Defers the outstanding effects until this process has its lease again. Another process may own the run by then, so the worker
    /// reloads it first.
    pub fn defer_effects(&mut self, inner: &Arc<Inner>, mailbox: &mpsc::Sender<WorkerMessage>) {
        self.cancel_lease_wait();
        let Some(run) = self.run.as_ref().filter(|run| !outstanding(&run.state).is_empty()) else { return };
        let (engine, mailbox) = (inner.clone(), mailbox.clone());
        let wait = inner.tasks.spawn(async move {
            while !engine.lease.holds() {
                tokio::time::sleep(engine.beat_pause()).await;
            }
            let _ = mailbox.send(WorkerMessage::CheckStore).await;
        });
        self.deferred = Some(DeferredEffects { run: run.id, seq: run.seq, wait });
    }

    /// Whether the effects outstanding at this sequence number were deferred here. If so, none of them was started.
    pub fn has_deferred(&self, run: RunId, seq: Seq) -> bool {
        self.deferred.as_ref().is_some_and(|deferred| (deferred.run, deferred.seq) == (run, seq))
    }

    fn cancel_lease_wait(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            deferred.wait.abort();
        }
    }

    /// Whether the run is owed in-process calls that are neither in flight nor completed: their executor is gone. A parked run is owed
    /// none, so a call that a person has released meanwhile is not taken for a lost one.
    pub fn has_lost_calls(&self, id: RunId, state: &Run) -> bool {
        let is_lost = |effect| match effect {
            Effect::StartTool { .. } | Effect::StartChild { .. } => {
                !self.in_flight.contains_key(&(id, effect)) && !self.is_completed(id, effect)
            }
            Effect::CallModel { .. } => false,
        };
        outstanding(state).into_iter().any(is_lost)
    }

    /// Whether the effect is a call whose result is in the batch being handled: it has ended, though the run does not record that yet.
    fn is_completed(&self, id: RunId, effect: Effect) -> bool {
        match effect {
            Effect::StartTool { call } | Effect::StartChild { call } => self.completed.contains_key(&(id, call)),
            Effect::CallModel { .. } => false,
        }
    }

    /// Forgets the completed calls: each result was applied, or no longer fits the run.
    pub fn clear_completed(&mut self) {
        self.completed.clear();
    }

    /// Forgets the run, so that the next step loads it again. Effects in flight continue.
    pub fn forget_run(&mut self) {
        self.run = None;
    }

    /// Forgets everything, and cancels all effects in flight.
    pub fn abandon(&mut self) {
        self.run = None;
        self.buffer = None;
        self.cancel_lease_wait();
        self.completed.clear();
        for effect in std::mem::take(&mut self.in_flight).into_values() {
            effect.abort();
        }
    }

    /// Notes the end of an effect, if the message is one. The prompt of a model call is kept for the next iteration.
    pub fn record_end(&mut self, message: &mut WorkerMessage) {
        match message {
            WorkerMessage::ModelDone(done) => {
                let is_its = |effect: &Effect| matches!(effect, Effect::CallModel { id, .. } if *id == done.id);
                self.in_flight.retain(|(run, effect), _| *run != done.run || !is_its(effect));
                if let Some(run) = self.run.as_mut().filter(|run| run.id == done.run && run.context.is_none()) {
                    run.context = done.context.take();
                }
            }
            WorkerMessage::ToolDone(done) => {
                self.in_flight.remove(&(done.run, Effect::StartTool { call: done.call }));
                self.completed.insert((done.run, done.call), done.failure());
            }
            WorkerMessage::ChildStarted(started) => {
                self.in_flight.remove(&(started.run, Effect::StartChild { call: started.call }));
                self.completed.insert((started.run, started.call), None);
            }
            WorkerMessage::CheckStore
            | WorkerMessage::Enqueue(..)
            | WorkerMessage::Report(..)
            | WorkerMessage::Stop(..)
            | WorkerMessage::Steer(..)
            | WorkerMessage::AnswerInterrupt(..)
            | WorkerMessage::Heartbeat(..)
            | WorkerMessage::Reasoned(_) => {}
        }
    }

    /// The failure class of a completed in-process call. `None` if the failure is an answer of the tool itself.
    pub fn failure_class(&self, run: RunId, call: CallNumber) -> Option<&'static str> {
        *self.completed.get(&(run, call))?
    }

    /// Takes over the state of a commit that succeeded. Returns the tools of which services may now claim calls.
    pub fn apply_commit(&mut self, commit: Commit, committed: &Committed) -> Vec<ToolName> {
        let claimable = claimable(&commit);
        if commit.state.has_ended() {
            self.abandon();
        } else if let Some(run) = &mut self.run {
            if commit.clears_deltas && !text_continues(&commit) {
                self.buffer = None;
            }
            run.advance(commit);
            (run.epoch, run.seq) = (committed.epoch, committed.seq);
        }
        claimable
    }

    /// Starts the effects that are outstanding and not in flight, and cancels those that are no longer outstanding. Returns the remaining
    /// pause if the model call, or the repetition of a call, must wait.
    pub fn start_effects(&mut self, inner: &Arc<Inner>, agent: &AgentKey, mailbox: &mpsc::Sender<WorkerMessage>) -> Option<Duration> {
        self.cancel_lease_wait();
        let run = self.run.as_ref()?;
        let owed = outstanding(&run.state);
        self.in_flight.retain(|(id, effect), handle| {
            let is_owed = *id == run.id && owed.contains(effect);
            if !is_owed {
                handle.abort();
            }
            is_owed
        });
        // During a pause the run waits in the store, without a worker.
        let left = |at: Timestamp| Duration::from_millis((at.0 - inner.clock.now().0).max(1).unsigned_abs());
        let mut pause = run.state.retry_at().map(left);
        for effect in owed {
            if self.in_flight.contains_key(&(run.id, effect)) || self.is_completed(run.id, effect) {
                continue;
            }
            match effect {
                Effect::CallModel { not_before: Some(at), .. } if at > inner.clock.now() => {
                    pause = Some(left(at));
                }
                Effect::CallModel { id, .. } => {
                    let buffer = open_buffer(inner, run, &mut self.buffer);
                    let call = model_call(inner, agent, run, buffer, id);
                    self.in_flight.insert((run.id, effect), effects::start_model(inner.clone(), call, mailbox.clone()));
                }
                Effect::StartTool { call } => {
                    let Some(start) = tool_start(agent, run, call) else { continue };
                    self.in_flight.insert((run.id, effect), effects::start_tool(inner.clone(), start, mailbox.clone()));
                }
                Effect::StartChild { call } => {
                    let Some(start) = child_start(agent, run, call, inner.clock.now()) else { continue };
                    self.in_flight.insert((run.id, effect), children::start(inner.clone(), start, mailbox.clone()));
                }
            }
        }
        pause
    }
}

/// Opens the stream buffer for the next model call. Text of a buffer that was closed for a commit is carried over unchanged.
fn open_buffer(inner: &Inner, run: &CommittedRun, stream: &mut Option<(RunId, Arc<StreamBuffer>)>) -> Option<Arc<StreamBuffer>> {
    if !run.manifest.announced {
        return None;
    }
    let text = stream.take().filter(|(id, _)| *id == run.id).map(|(_, buffer)| buffer.streamed_text()).unwrap_or_default();
    let buffer = Arc::new(StreamBuffer::resumed(run.state.output.length, text));
    inner.stream_buffers.insert(run.id, &buffer);
    *stream = Some((run.id, buffer.clone()));
    Some(buffer)
}

fn model_call(inner: &Inner, agent: &AgentKey, run: &CommittedRun, buffer: Option<Arc<StreamBuffer>>, id: ModelCallId) -> ModelCall {
    let wall_end = budget::wall_end(&run.state, &run.manifest.budgets, inner.clock.now());
    let left = wall_end.map(|end| left_ms(end, inner.clock.now()));
    ModelCall {
        agent: agent.clone(),
        agent_id: run.agent_id(agent),
        epoch: run.epoch,
        buffer,
        run: run.id,
        id,
        manifest: run.manifest.clone(),
        tools: run.tools.clone(),
        output: run.state.output,
        plan: PromptPlan::of(&run.state, &run.manifest, inner.models.context(&agent.tenant, &run.manifest.model)),
        context: run.context.clone(),
        deadline: Duration::from_millis(inner.settings.model_deadline_ms),
        patience: left.map_or(Duration::MAX, Duration::from_millis),
    }
}

fn left_ms(until: Timestamp, now: Timestamp) -> u64 {
    (until.0 - now.0).max(1).unsigned_abs()
}

fn tool_start(agent: &AgentKey, run: &CommittedRun, call: CallNumber) -> Option<ToolStart> {
    let open = run.state.call(call)?;
    Some(ToolStart {
        tenant: agent.tenant.clone(),
        key: CallKey { run: run.id, call },
        retry: open.retry,
        tool: open.tool.clone(),
        remote: remote(&run.manifest, &open.tool),
        deadline: open.deadline,
        content: run.call_content(call),
    })
}

/// A child run that is about to be started, with its share of what the run may still use.
fn child_start(agent: &AgentKey, run: &CommittedRun, call: CallNumber, now: Timestamp) -> Option<ChildStart> {
    let open = run.state.call(call)?;
    let starting = run.state.calls().iter().filter(|call| call.child.is_some() && !call.is_received()).count();
    Some(ChildStart {
        tenant: agent.tenant.clone(),
        child: open.child?,
        parent: ParentCall { run: run.id, head: agent.agent.clone(), call, tainted: run.state.tainted },
        agent: run.manifest.tool(open.tool.as_str())?.agent.clone()?,
        share: budget::share(&run.state, &run.manifest.budgets, starting as u32, now),
        manifest: run.manifest.clone(),
        content: run.call_content(call),
    })
}

/// The server that offers a tool, and the tool's name on that server.
fn remote(manifest: &Manifest, tool: &ToolName) -> Option<(ToolServer, Remote)> {
    let remote = manifest.tool(tool.as_str())?.remote.clone()?;
    let server = manifest.servers.iter().find(|server| server.label == remote.server)?.clone();
    Some((server, remote))
}

/// The tools of calls that this commit made, or released, for services to claim.
fn claimable(commit: &Commit) -> Vec<ToolName> {
    let waiting = commit.calls.iter().filter(|(_, change)| match change {
        CallChange::Made(made) => made.status == windlass_ports::CallStatus::Waiting,
        CallChange::Moved { status, .. } => *status == windlass_ports::CallStatus::Waiting,
    });
    waiting.filter_map(|(call, _)| commit.state.call(*call)).map(|call| call.tool.clone()).collect()
}
