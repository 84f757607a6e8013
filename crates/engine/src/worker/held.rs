//! What a worker holds in memory: its agent's active run as last committed, and what is in flight for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::AbortHandle};
use windlass_kernel::{
    AgentKey, AgentName, CallKey, CallNumber, Effect, Epoch, HeadStatus, ItemKind, Manifest, Remote, Run, RunId, Seq, StreamedText,
    Timestamp, ToolName, ToolServer, content, outstanding,
};
use windlass_ports::{CallChange, Commit, Committed, Guard, Head, Item, LoadedRun, ModelTool, NewRun};

use super::words_go_on;
use crate::{
    compaction::Reading,
    effects::{self, ModelCall, ToolStart},
    engine::Inner,
    live::Words,
    note::Note,
    prompt,
};

#[derive(Default)]
pub(super) struct Held {
    run: Option<HeldRun>,
    /// The run is part of the key: the end of an effect may reach the desk when another run is there already.
    in_flight: BTreeMap<(RunId, Effect), AbortHandle>,
    /// Calls whose result is among the notes being taken, which are over and not lost, with the reason if they failed.
    at_hand: BTreeMap<(RunId, CallNumber), Option<&'static str>>,
    held_back: Option<HeldBack>,
    /// The words of the lap that are announced, and of which run.
    words: Option<(RunId, Arc<Words>)>,
}

/// Effects of a run that were not started when they could have been, because this process had no lease.
struct HeldBack {
    run: RunId,
    seq: Seq,
    /// Waits for the lease, then has the worker look.
    wait: AbortHandle,
}

/// A run as it was last committed, with the guard of its next commit.
pub(super) struct HeldRun {
    pub id: RunId,
    pub state: Run,
    pub manifest: Arc<Manifest>,
    /// The name of the agent whose settings it has, if it has a named one.
    agent_name: Option<AgentName>,
    /// The run that it goes on from, if that one waited for it.
    pub follows: Option<RunId>,
    tools: Arc<[ModelTool]>,
    status: HeadStatus,
    epoch: Epoch,
    seq: Seq,
    /// Everything the model reads, if it is in memory.
    context: Option<Vec<Item>>,
}

impl HeldRun {
    /// A run that is about to be entered with its enqueue.
    fn entering(new: &NewRun, enter: Commit) -> Self {
        let items = new.context.items.iter().map(|item| Item { id: item.id, kind: item.kind, content: item.content.clone() });
        let own = new.context.parent.is_none().then(|| items.collect());
        let mut run = HeldRun {
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

    /// What operators call the run's agent: its name, or the head's key if the run has no named agent.
    pub fn agent_id(&self, head: &AgentKey) -> AgentKey {
        let agent = self.agent_name.clone().unwrap_or_else(|| head.agent.clone());
        AgentKey { tenant: head.tenant.clone(), agent }
    }

    /// What must still hold when the next transition is committed.
    pub fn guard(&self, agent: &AgentKey) -> Guard {
        Guard { agent: agent.clone(), status: self.status, epoch: self.epoch, run: self.id, seq: self.seq }
    }

    fn advance(&mut self, commit: Commit) {
        if let Some(context) = &mut self.context {
            let fresh: BTreeMap<_, _> = commit.items.iter().map(|item| (item.id, item)).collect();
            let found: Option<Vec<Item>> = commit
                .appended
                .iter()
                .map(|id| fresh.get(id).map(|item| Item { id: item.id, kind: item.kind, content: item.content.clone() }))
                .collect();
            match found {
                Some(items) => context.extend(items),
                // A result that came in an earlier commit is appended now: it is read back when it is needed.
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

impl Held {
    /// What a worker holds once an enqueue has entered the run, and the tools that services may then claim calls of.
    pub fn entering(new: &NewRun, enter: Commit) -> (Held, Vec<ToolName>) {
        let claimable = claimable(&enter);
        (Held { run: Some(HeldRun::entering(new, enter)), ..Held::default() }, claimable)
    }

    /// The store leased the agent to the run.
    pub fn leased(&mut self, epoch: Epoch, seq: Seq) {
        if let Some(run) = &mut self.run {
            (run.epoch, run.seq) = (epoch, seq);
        }
    }

    /// Holds another run from here on.
    pub fn replace(&mut self, other: Held) {
        self.abandon();
        *self = other;
    }

    /// Holds what was read from the store, with what the model reads if that was read too. What is in flight for it stays in flight.
    pub fn hold(&mut self, head: &Head, loaded: LoadedRun, context: Option<Vec<Item>>) {
        self.run = Some(HeldRun {
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

    /// Holds the open words of a run that was read.
    pub fn follow_words(&mut self, words: Option<(RunId, Arc<Words>)>) {
        self.words = words;
    }

    /// Whether the open words of that run are held here.
    pub fn follows(&self, run: RunId) -> bool {
        self.words.as_ref().is_some_and(|(id, _)| *id == run)
    }

    /// What was announced and stands in no item yet.
    pub fn said(&self) -> StreamedText {
        self.words.as_ref().map(|(_, words)| words.said()).unwrap_or_default()
    }

    /// What was announced of the run is settled, and the model goes on at this place of its output.
    pub fn begin_words_again(&self, run: RunId, place: u32) {
        if let Some((_, words)) = self.words.as_ref().filter(|(id, _)| *id == run) {
            words.begin_again(place);
        }
    }

    /// Lets no more words be announced, and waits for those under way: what is said is said, and can be settled.
    pub async fn close_words(&self) {
        if let Some((_, words)) = &self.words {
            words.close().await;
        }
    }

    pub fn run(&self) -> Option<&HeldRun> {
        self.run.as_ref()
    }

    pub fn has_run(&self) -> bool {
        self.run.is_some()
    }

    pub fn nothing_in_flight(&self) -> bool {
        self.in_flight.is_empty() && self.held_back.is_none()
    }

    /// Starts nothing until the lease holds again. Another process may have the run by then: the worker looks first.
    pub fn hold_back(&mut self, inner: &Arc<Inner>, desk: &mpsc::Sender<Note>) {
        self.let_go();
        let Some(run) = self.run.as_ref().filter(|run| !outstanding(&run.state).is_empty()) else { return };
        let (engine, desk) = (inner.clone(), desk.clone());
        let wait = inner.tasks.spawn(async move {
            while !engine.lease.holds() {
                tokio::time::sleep(engine.beat_pause()).await;
            }
            let _ = desk.send(Note::Look).await;
        });
        self.held_back = Some(HeldBack { run: run.id, seq: run.seq, wait });
    }

    /// Whether what the run is owed at this count was held back here: then nothing of it was ever started.
    pub fn held_back(&self, run: RunId, seq: Seq) -> bool {
        self.held_back.as_ref().is_some_and(|held| (held.run, held.seq) == (run, seq))
    }

    fn let_go(&mut self) {
        if let Some(held) = self.held_back.take() {
            held.wait.abort();
        }
    }

    /// Whether the run is owed calls in this process that nothing in flight or at hand stands for: their executor is gone. A parked
    /// run is owed none, so a call that a person released meanwhile is not taken for a lost one.
    pub fn has_lost_calls(&self, id: RunId, state: &Run) -> bool {
        let is_lost = |effect| match effect {
            Effect::StartTool { .. } => !self.in_flight.contains_key(&(id, effect)) && !self.is_at_hand(id, effect),
            Effect::CallModel { .. } => false,
        };
        outstanding(state).into_iter().any(is_lost)
    }

    /// Whether it is a call whose result is among the notes being taken: it is over, though the run does not know it yet.
    fn is_at_hand(&self, id: RunId, effect: Effect) -> bool {
        match effect {
            Effect::StartTool { call } => self.at_hand.contains_key(&(id, call)),
            Effect::CallModel { .. } => false,
        }
    }

    /// No result is at hand any more: each was taken, or fits no more.
    pub fn put_results_by(&mut self) {
        self.at_hand.clear();
    }

    /// Reads the run anew before the next step. What is in flight goes on.
    pub fn forget_run(&mut self) {
        self.run = None;
    }

    /// Drops everything, and calls off what is in flight.
    pub fn abandon(&mut self) {
        self.run = None;
        self.words = None;
        self.let_go();
        self.at_hand.clear();
        for effect in std::mem::take(&mut self.in_flight).into_values() {
            effect.abort();
        }
    }

    /// A note may be the end of an effect. What the model read is kept for the next lap.
    pub fn finished(&mut self, note: &mut Note) {
        match note {
            Note::Thought(thought) => {
                let is_it = |effect: &Effect| matches!(effect, Effect::CallModel { iteration, attempt, .. } if (*iteration, *attempt) == (thought.iteration, thought.attempt));
                self.in_flight.retain(|(run, effect), _| *run != thought.run || !is_it(effect));
                if let Some(run) = self.run.as_mut().filter(|run| run.id == thought.run && run.context.is_none()) {
                    run.context = thought.context.take();
                }
            }
            Note::Tool(done) => {
                self.in_flight.remove(&(done.run, Effect::StartTool { call: done.call }));
                self.at_hand.insert((done.run, done.call), done.failure());
            }
            Note::Look
            | Note::Enqueue(..)
            | Note::Report(..)
            | Note::Stop(..)
            | Note::Reconcile(..)
            | Note::Quiet(..)
            | Note::Reasoned(_) => {}
        }
    }

    /// The class of the failure of a call of this process whose result is being taken, if it is not the tool's own answer.
    pub fn failure(&self, run: RunId, call: CallNumber) -> Option<&'static str> {
        *self.at_hand.get(&(run, call))?
    }

    /// A commit went through. Returns the tools that services may now claim calls of.
    pub fn committed(&mut self, commit: Commit, committed: &Committed) -> Vec<ToolName> {
        let claimable = claimable(&commit);
        if commit.state.has_ended() {
            self.abandon();
        } else if let Some(run) = &mut self.run {
            if commit.settles && !words_go_on(&commit) {
                self.words = None;
            }
            run.advance(commit);
            (run.epoch, run.seq) = (committed.epoch, committed.seq);
        }
        claimable
    }

    /// Starts what the run is owed and calls off what it is not owed any more. Returns a pause if the model call must wait.
    pub fn start_effects(&mut self, inner: &Arc<Inner>, agent: &AgentKey, desk: &mpsc::Sender<Note>) -> Option<Duration> {
        self.let_go();
        let run = self.run.as_ref()?;
        let owed = outstanding(&run.state);
        self.in_flight.retain(|(id, effect), handle| {
            let is_owed = *id == run.id && owed.contains(effect);
            if !is_owed {
                handle.abort();
            }
            is_owed
        });
        let mut pause = None;
        for effect in owed {
            if self.in_flight.contains_key(&(run.id, effect)) || self.is_at_hand(run.id, effect) {
                continue;
            }
            match effect {
                Effect::CallModel { not_before: Some(at), .. } if at > inner.clock.now() => {
                    // The run waits in the store, not in a worker.
                    pause = Some(Duration::from_millis((at.0 - inner.clock.now().0).max(1).unsigned_abs()));
                }
                Effect::CallModel { iteration, attempt, .. } => {
                    let words = open_words(inner, run, &mut self.words);
                    let call = model_call(inner, agent, run, words, iteration, attempt);
                    self.in_flight.insert((run.id, effect), effects::start_model(inner.clone(), call, desk.clone()));
                }
                Effect::StartTool { call } => {
                    let Some(start) = tool_start(agent, run, call) else { continue };
                    self.in_flight.insert((run.id, effect), effects::start_tool(inner.clone(), start, desk.clone()));
                }
            }
        }
        pause
    }
}

/// Where the run's words are announced from here on. Words that were closed for a commit are gone on with as they stand.
fn open_words(inner: &Inner, run: &HeldRun, held: &mut Option<(RunId, Arc<Words>)>) -> Option<Arc<Words>> {
    if !run.manifest.announced {
        return None;
    }
    let said = held.take().filter(|(id, _)| *id == run.id).map(|(_, words)| words.said()).unwrap_or_default();
    let words = Arc::new(Words::resumed(run.state.output.length, said));
    inner.live.hold(run.id, &words);
    *held = Some((run.id, words.clone()));
    Some(words)
}

fn model_call(inner: &Inner, agent: &AgentKey, run: &HeldRun, words: Option<Arc<Words>>, iteration: u32, attempt: u32) -> ModelCall {
    let wall = run.manifest.budgets.wall_ms.zip(run.state.started_at);
    let left = wall.map(|(ms, start)| left_ms(start.plus_ms(ms), inner.clock.now()));
    ModelCall {
        agent: agent.clone(),
        agent_id: run.agent_id(agent),
        epoch: run.epoch,
        words,
        run: run.id,
        iteration,
        attempt,
        manifest: run.manifest.clone(),
        tools: run.tools.clone(),
        output: run.state.output,
        reading: Reading::of(&run.state, &run.manifest, inner.models.context(&agent.tenant, &run.manifest.model)),
        context: run.context.clone(),
        deadline: Duration::from_millis(inner.settings.model_deadline_ms),
        patience: left.map_or(Duration::MAX, Duration::from_millis),
    }
}

fn left_ms(until: Timestamp, now: Timestamp) -> u64 {
    (until.0 - now.0).max(1).unsigned_abs()
}

fn tool_start(agent: &AgentKey, run: &HeldRun, call: CallNumber) -> Option<ToolStart> {
    let open = run.state.call(call)?;
    Some(ToolStart {
        tenant: agent.tenant.clone(),
        key: CallKey { run: run.id, call },
        tool: open.tool.clone(),
        remote: remote(&run.manifest, &open.tool),
        deadline: open.deadline,
        content: run.call_content(call),
    })
}

/// The server that offers a tool, and the tool's name there.
fn remote(manifest: &Manifest, tool: &ToolName) -> Option<(ToolServer, Remote)> {
    let remote = manifest.tool(tool.as_str())?.remote.clone()?;
    let server = manifest.servers.iter().find(|server| server.label == remote.server)?.clone();
    Some((server, remote))
}

/// Tools of calls that this commit made or let go for services to claim.
fn claimable(commit: &Commit) -> Vec<ToolName> {
    let waiting = commit.calls.iter().filter(|(_, change)| match change {
        CallChange::Made(made) => made.status == windlass_ports::CallStatus::Waiting,
        CallChange::Moved { status, .. } => *status == windlass_ports::CallStatus::Waiting,
    });
    waiting.filter_map(|(call, _)| commit.state.call(*call)).map(|call| call.tool.clone()).collect()
}
