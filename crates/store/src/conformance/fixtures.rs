//! Builders of test data. The real kernel makes all transitions, so that no case stores what can't happen.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use windlass_kernel::{
    ASK_PERSON, AfterExecution, AgentKey, BoxId, BoxRange, Budgets, CallNumber, CallRetries, CallUpdate, CallerSpan, ChunkLengths,
    ConversationId, EffectClass, Epoch, Event, Gate, Input, ItemId, ItemKind, Manifest, Moment, NewItem, Opening, Origin, ParentCall,
    Reply, Report, ReportCause, RequestedCall, Route, Run, RunId, SpanId, TaskStatus, Tenant, Timestamp, ToolSpec, Transition, apply,
    ask_person_tool, content, step,
};
use windlass_ports::{
    Admission, CallChange, CallClaim, CallStatus, Commit, CommitKind, Committed, ContextSize, DeltaBatch, Enqueued, Guard, Lineage, Loaded,
    Message, MessageKind, NewBox, NewCall, NewMessage, NewPack, NewReport, NewRun, NodeId, PinnedManifest, StateWrite, StoreError, Taken,
    child_head, codec,
};

use super::Full;

/// The span of the requests that begin the tests' runs.
const CALLER: Option<CallerSpan> = Some(CallerSpan { id: SpanId(9), sampled: true });

/// The place of the tests' runs in the execution graph.
pub fn lineage() -> Lineage {
    Lineage { trace: [7; 16], caller: CALLER, parent_step: Some("step".into()), source: Some("tests".into()), depth: 3 }
}

/// The time at which tests begin.
pub const START: Timestamp = Timestamp(1_700_000_000_000);

/// The deadline of calls in tests.
pub const DEADLINE_MS: u64 = 60_000;

/// The node that makes the tests' requests, unless a case uses another one.
pub const NODE: NodeId = NodeId(1);

/// A tool of a service, whose calls may be repeated.
pub const LOOKUP: &str = "lookup";

/// A tool of a service, whose calls must not be repeated.
pub const CHARGE: &str = "charge";

/// A tool of the server process.
pub const LOCAL: &str = "local";

/// An agent as a tool: a call of it starts a child run.
pub const HELPER: &str = "agent__helper";

/// A tool that the client runs itself: a call of it ends the run.
pub const HANDED_BACK: &str = "handed back";

/// An agent of the tenant that most cases use.
pub fn agent(name: &str) -> AgentKey {
    AgentKey { tenant: "acme".into(), agent: name.into() }
}

/// An agent of another tenant.
pub fn foreign(name: &str) -> AgentKey {
    AgentKey { tenant: "other".into(), agent: name.into() }
}

/// An external tool whose calls are repeated once after a failure.
pub const FLAKY: &str = "flaky";
/// The pause before that repetition.
pub const FLAKY_PAUSE_MS: u64 = 500;

/// The manifest of the tests' runs.
pub fn manifest() -> Arc<PinnedManifest> {
    let tool = |name: &str, route, effect| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: serde_json::json!({ "type": "object" }),
        route,
        effect,
        after_execution: AfterExecution::Suspend,
        deadline_ms: DEADLINE_MS,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    let budgets = Budgets { iterations: 1_000, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
    Arc::new(codec::pin_manifest(Manifest {
        tools: vec![
            tool(LOOKUP, Route::External, EffectClass::Read),
            tool(CHARGE, Route::External, EffectClass::Write),
            tool(LOCAL, Route::InProcess, EffectClass::Read),
            tool(HANDED_BACK, Route::Client, EffectClass::Write),
            ToolSpec { deadline_ms: u64::MAX, agent: Some("helper".into()), ..tool(HELPER, Route::Child, EffectClass::Idempotent) },
            ToolSpec { retry: Some(CallRetries { max: 1, backoff_ms: FLAKY_PAUSE_MS }), ..tool(FLAKY, Route::External, EffectClass::Read) },
            ask_person_tool(),
        ],
        ..Manifest::plain("test", budgets)
    }))
}

/// A reply that calls these tools.
pub fn calls(tools: &[&str]) -> Input {
    let requested = |(index, tool): (usize, &&str)| RequestedCall {
        provider_id: format!("call_{index}"),
        tool: (*tool).to_owned(),
        arguments: if *tool == ASK_PERSON { r#"{"question":"which?"}"# } else { "{}" }.to_owned(),
    };
    Input::Replied(Reply { calls: tools.iter().enumerate().map(requested).collect(), ..Reply::default() })
}

/// A reply that ends the run.
pub fn final_reply(text: &str) -> Input {
    Input::Replied(Reply { text: text.to_owned(), ..Reply::default() })
}

/// A batch of deltas with these chunks, after `first` others.
pub fn delta_batch(agent: &AgentKey, run: RunId, epoch: u64, first: u32, pieces: &[&str]) -> DeltaBatch {
    DeltaBatch {
        agent: agent.clone(),
        run,
        epoch: Epoch(epoch),
        first,
        text: pieces.concat(),
        pieces: ChunkLengths(pieces.iter().map(|piece| piece.len() as u32).collect()),
    }
}

/// The kernel's input for a pending report.
pub fn report_input(message: &Message) -> Input {
    Input::Reported(Report {
        call: message.call.unwrap(),
        retry: message.retry,
        cause: ReportCause::Tool,
        status: message.outcome.unwrap_or(TaskStatus::Success),
        item: message.item.unwrap(),
        after: message.after,
        below: message.below,
    })
}

/// The guard for a loaded head.
pub fn guard(agent: &AgentKey, loaded: &Loaded) -> Guard {
    let run = loaded.run.as_ref().unwrap().id;
    Guard { agent: agent.clone(), status: loaded.head.status, epoch: loaded.head.epoch, run, seq: loaded.head.seq }
}

/// Makes ids, and drives agents through a store.
pub struct Kit {
    store: Arc<dyn Full>,
    manifest: Arc<PinnedManifest>,
    last_id: AtomicU64,
}

impl Kit {
    /// A kit for a store that no other kit uses.
    pub fn new(store: &Arc<dyn Full>) -> Self {
        Self::starting_at(store, 0)
    }

    /// A kit whose ids come after `last_id`.
    pub fn starting_at(store: &Arc<dyn Full>, last_id: u64) -> Self {
        Kit { store: Arc::clone(store), manifest: manifest(), last_id: AtomicU64::new(last_id) }
    }

    /// A kit whose runs have these rules for approvals.
    pub fn with_gates(store: &Arc<dyn Full>, gates: Vec<Gate>) -> Self {
        Self::new(store).gated(gates)
    }

    /// The same kit with these rules for approvals.
    pub fn gated(self, gates: Vec<Gate>) -> Self {
        let manifest = Manifest { gates, ..Manifest::clone(&self.manifest.manifest) };
        Kit { manifest: Arc::new(codec::pin_manifest(manifest)), ..self }
    }

    /// The same kit with one iteration for each run, which then waits for a higher limit.
    pub fn of_one_iteration(self) -> Self {
        let manifest = Manifest::clone(&self.manifest.manifest);
        let budgets = Budgets { iterations: 1, ..manifest.budgets };
        Kit { manifest: Arc::new(codec::pin_manifest(Manifest { budgets, budgets_park: true, ..manifest })), ..self }
    }

    fn id<T>(&self, read: impl Fn(&[u8]) -> Option<T>) -> T {
        let number = u128::from(self.last_id.fetch_add(1, Ordering::Relaxed)) + 1;
        read(&number.to_be_bytes()).unwrap()
    }

    /// An unused id of an item.
    pub fn item_id(&self) -> ItemId {
        self.id(ItemId::from_slice)
    }

    /// An unused id of a box.
    pub fn box_id(&self) -> BoxId {
        self.id(BoxId::from_slice)
    }

    /// An unused id of a run.
    pub fn run_id(&self) -> RunId {
        self.id(RunId::from_slice)
    }

    /// An unused id of a conversation.
    pub fn conversation_id(&self) -> ConversationId {
        self.id(ConversationId::from_slice)
    }

    /// A new item with this content.
    pub fn item(&self, kind: ItemKind, bytes: &[u8]) -> NewItem {
        NewItem::own(self.item_id(), kind, bytes.to_vec().into())
    }

    /// A request to pack a box, without a limit.
    pub fn new_pack(&self, tenant: &Tenant, from: Vec<BoxRange>, items: Vec<NewItem>) -> NewPack {
        NewPack { tenant: tenant.clone(), id: self.box_id(), from, items, key: None, limit: ContextSize::UNLIMITED }
    }

    /// A turn that is not entered.
    pub fn new_run(&self, agent: &AgentKey, now: Timestamp) -> NewRun {
        self.new_run_after(agent, None, vec![self.item(ItemKind::Instruction, br#"{"text":"do it"}"#)], now)
    }

    /// A turn without a named agent, which has a head of its own.
    pub fn own_run(&self, now: Timestamp) -> NewRun {
        let mut new = self.new_run(&agent(""), now);
        new.agent = agent(&new.run.to_string());
        new
    }

    /// A turn that begins after a range, with items of its own.
    pub fn new_run_after(&self, agent: &AgentKey, parent: Option<BoxRange>, items: Vec<NewItem>, now: Timestamp) -> NewRun {
        let context = NewBox { id: self.box_id(), parent, items };
        let output = self.box_id();
        let accepted = Event::Accepted {
            origin: Origin::Turn,
            context: BoxRange { id: context.id, length: context.items.len() as u32 },
            output: BoxRange { id: output, length: 0 },
            caller: CALLER,
            parent: None,
        };
        NewRun {
            run: self.run_id(),
            agent: agent.clone(),
            agent_name: None,
            dedupe: None,
            lineage: lineage(),
            manifest: Arc::clone(&self.manifest),
            note: None,
            erase_ms: None,
            takes: None,
            follows: None,
            conversation: None,
            request: None,
            context,
            output,
            state: apply(None, &accepted).unwrap(),
            accepted,
            kind: MessageKind::Turn,
            enter: None,
            node: NODE,
            admission: Admission { queued_per_agent_max: 1_000, open_per_tenant_max: 10_000 },
            now,
        }
    }

    /// The child run of a call, which has a head of its own.
    pub fn new_child(&self, child: RunId, parent: ParentCall, now: Timestamp) -> NewRun {
        let mut new = self.new_run(&child_head(&agent("").tenant, child), now);
        let Event::Accepted { origin, context, output, caller, .. } = new.accepted else { panic!("the first event") };
        new.run = child;
        new.agent_name = Some("helper".into());
        new.accepted = Event::Accepted { origin, context, output, caller, parent: Some(Box::new(parent)) };
        new.state = apply(None, &new.accepted).unwrap();
        self.entering(new)
    }

    /// The same turn, entered if its agent is idle.
    pub fn entering(&self, mut new: NewRun) -> NewRun {
        new.enter = Some(self.commit(new.run, &new.state, Input::Entered(Opening::Ask), new.now));
        new
    }

    /// Enqueues a turn that is entered if its agent is idle.
    pub async fn begin(&self, agent: &AgentKey, now: Timestamp) -> (RunId, Enqueued) {
        let new = self.entering(self.new_run(agent, now));
        (new.run, self.store.enqueue(new).await.unwrap())
    }

    /// The commit by `NODE` of what an input does to a run.
    pub fn commit(&self, run: RunId, state: &Run, input: Input, now: Timestamp) -> Commit {
        let mut fresh = || self.item_id();
        let made = step(state, &self.manifest.manifest, input, &mut Moment { now, fresh: &mut fresh });
        Commit {
            kind: if made.run.has_ended() { CommitKind::End } else { CommitKind::Suspend },
            state_write: if made.run.iteration.is_multiple_of(8) { StateWrite::Always } else { StateWrite::WithRow },
            run,
            node: NODE,
            raise_epoch: false,
            calls: call_changes(&made),
            interrupts: made.interrupts.clone(),
            state: made.run,
            events: made.events,
            items: made.items,
            appended: made.appended,
            messages: Vec::new(),
            consumed: Vec::new(),
            clears_deltas: false,
            follows: None,
            stops: made.stops,
            report: made.report,
            now,
        }
    }

    /// An agent's head and run, which must exist.
    pub async fn load(&self, agent: &AgentKey) -> Loaded {
        self.store.load(agent).await.unwrap().unwrap()
    }

    /// The guard and the commit of what an input does to an agent's run now.
    pub async fn prepare(&self, agent: &AgentKey, input: Input, now: Timestamp) -> (Guard, Commit) {
        let loaded = self.load(agent).await;
        let run = loaded.run.as_ref().unwrap();
        let mut commit = self.commit(run.id, &run.state, input, now);
        commit.consumed.extend(run.turn);
        commit.follows = run.follows;
        (guard(agent, &loaded), commit)
    }

    /// Gives an agent's run an input and commits the transition.
    pub async fn advance(&self, agent: &AgentKey, input: Input, now: Timestamp) -> Committed {
        self.try_advance(agent, input, now).await.unwrap()
    }

    /// The same, with the error of the commit.
    pub async fn try_advance(&self, agent: &AgentKey, input: Input, now: Timestamp) -> Result<Committed, StoreError> {
        let (guard, commit) = self.prepare(agent, input, now).await;
        self.store.commit(guard, commit).await
    }

    /// Consumes the oldest pending report of an agent's run.
    pub async fn take_report(&self, agent: &AgentKey, now: Timestamp) -> Committed {
        let message = self.load(agent).await.pending[0].clone();
        let (guard, mut commit) = self.prepare(agent, report_input(&message), now).await;
        commit.consumed.push(message.id);
        self.store.commit(guard, commit).await.unwrap()
    }

    /// A report of a call's success.
    pub fn new_report(&self, agent: &AgentKey, run: RunId, call: u32, now: Timestamp) -> NewReport {
        let raw = serde_json::value::RawValue::from_string("{\"ok\":true}".into()).unwrap();
        let bytes = content::result(CallNumber(call), TaskStatus::Success, &raw);
        let content = NewItem::own(self.item_id(), ItemKind::Result, bytes);
        NewReport {
            agent: agent.clone(),
            run,
            message: NewMessage {
                kind: MessageKind::ToolResult,
                call: Some(CallNumber(call)),
                retry: 0,
                item: Some(content.id),
                outcome: Some(TaskStatus::Success),
                after: None,
                source: Some("service".into()),
                reason: None,
                key: None,
            },
            content,
            now,
        }
    }

    /// Reports a call's success.
    pub async fn report(&self, agent: &AgentKey, run: RunId, call: u32, now: Timestamp) -> Taken {
        self.store.report(self.new_report(agent, run, call, now)).await.unwrap()
    }

    /// A worker's claim of calls of a tool, for ten seconds.
    pub fn claim(&self, tool: &str, worker: &str, max: usize, now: Timestamp) -> CallClaim {
        CallClaim {
            tenant: "acme".into(),
            tool: tool.into(),
            worker: worker.to_owned(),
            max,
            until: now.plus_ms(10_000),
            key: None,
            request: None,
            now,
        }
    }
}

/// What a transition does to the rows of calls.
pub fn call_changes(made: &Transition) -> Vec<(CallNumber, CallChange)> {
    let mut contents = made.items.iter().filter(|item| item.kind == ItemKind::Call).map(|item| item.id);
    let change = |update: &CallUpdate| match update {
        CallUpdate::Made { iteration, call } => CallChange::Made(NewCall {
            iteration: *iteration,
            tool: call.tool.clone(),
            route: call.route,
            effect: call.effect,
            deadline: call.deadline,
            item: contents.next().expect("a call that is made has its content in the same transition"),
            status: CallStatus::fresh(call.route),
            result: None,
        }),
        CallUpdate::Moved { status, result, deadline, item, retry } => {
            CallChange::Moved { status: *status, result: *result, deadline: *deadline, item: *item, retry: *retry }
        }
    };
    let numbers = made.calls.iter().map(|(call, _)| *call);
    numbers.zip(made.calls.iter().map(|(_, update)| update).map(change)).collect()
}
