//! The engine's interface to the doors.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use windlass_kernel::{
    AgentKey, BoxId, BoxRange, CallNumber, ItemId, ItemKind, NewItem, Opening, ResultField, Route, RunId, Tenant, ToolName, content,
};
use windlass_ports::{
    Clock, ContentReader, Doorbell, Enqueued as StoreEnqueued, Ids, MessageKind, Meter, Models, NewPack, NodeId, Packed, Publisher,
    RequestKey, Ring, RunView, Store, ToolServers, Views, codec,
};

use crate::{
    adopted::Adopted,
    api::{Action, AnswerInterrupt, Answered, EngineError, Enqueue, Enqueued, Reported, Stop, Stopped, ToolResult},
    bells,
    crash::CrashPoints,
    fair_semaphore::FairSemaphores,
    journal_cache::{JournalCache, JournalCaches},
    keys,
    lease::{self, Lease},
    notify::{self, Notices, Notifications},
    publish,
    quota::Ledger,
    readers::Readers,
    repeats,
    roster::{AgentCatalog, RunOptions},
    settings::Settings,
    stream_buffer::StreamBuffers,
    submit::{NewTurn, enqueued},
    sweep,
    tasks::Tasks,
    watch::{Watch, Watchers},
    worker_message::{Answer, WorkerMessage},
    workers::Workers,
};

/// The components that an engine is started with.
pub struct Parts {
    /// The store, for writing.
    pub store: Arc<dyn Store>,
    /// The same store, for reading.
    pub views: Arc<dyn Views>,
    /// The id of this process in the store.
    pub node: NodeId,
    /// The configured models.
    pub models: Arc<dyn Models>,
    /// The configured agents and tools.
    pub roster: AgentCatalog,
    /// The client of tool servers (MCP), if there can be any.
    pub servers: Option<Arc<dyn ToolServers>>,
    /// Notifies other processes of what happens here.
    pub doorbell: Option<Arc<dyn Doorbell>>,
    /// Notifications from other processes.
    pub bells: Option<mpsc::Receiver<Ring>>,
    /// Where the messages of the outbox are published.
    pub publisher: Option<Arc<dyn Publisher>>,
    /// Where notices of opened interrupts go, if they go anywhere.
    pub notifications: Option<Notifications>,
    /// The clock by which deadlines are judged.
    pub clock: Arc<dyn Clock>,
    /// Gives ids that are not in use.
    pub ids: Arc<dyn Ids>,
    /// Crash points, at which a test ends the process.
    pub crash: CrashPoints,
    /// The limits and times of the engine.
    pub settings: Settings,
    /// Reads content in the formats of the APIs.
    pub reader: Arc<dyn ContentReader>,
    /// Counts facts for metrics.
    pub meter: Arc<dyn Meter>,
    /// Ends all tasks at once when it is cancelled, as if the process had died. For simulations; a server has none.
    pub life: Option<CancellationToken>,
}

/// The state that workers and doors share.
pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub views: Arc<dyn Views>,
    pub node: NodeId,
    pub models: Arc<dyn Models>,
    pub roster: AgentCatalog,
    pub servers: Option<Arc<dyn ToolServers>>,
    pub stream_buffers: StreamBuffers,
    pub journal_caches: JournalCaches,
    pub doorbell: Option<Arc<dyn Doorbell>>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub crash: CrashPoints,
    pub settings: Settings,
    pub reader: Arc<dyn ContentReader>,
    pub meter: Arc<dyn Meter>,
    pub semaphores: FairSemaphores,
    pub workers: Workers,
    pub tasks: Tasks,
    pub lease: Lease,
    pub adopted: Adopted,
    pub ledger: Ledger,
    pub notices: Option<Notices>,
    pub readers: Readers,
    /// Notified when a worker ends after another agent was refused one.
    pub room: Notify,
    /// Notified after commits, for the publisher of the outbox.
    pub committed: Notify,
    pub agent_news: Watchers<AgentKey>,
    pub rests: Watchers<AgentKey>,
    pub tool_news: Watchers<(Tenant, ToolName)>,
    pub draining: watch::Sender<bool>,
}

/// The running engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// Starts the engine, which from now on finds and does all work that is due in the store.
    pub fn start(parts: Parts) -> Self {
        let inner = Arc::new(Inner {
            store: parts.crash.around(parts.store),
            views: parts.views,
            node: parts.node,
            models: parts.models,
            roster: parts.roster,
            servers: parts.servers,
            stream_buffers: StreamBuffers::default(),
            journal_caches: JournalCaches::default(),
            doorbell: parts.doorbell,
            clock: parts.clock,
            ids: parts.ids,
            crash: parts.crash,
            tasks: Tasks::new(parts.life),
            lease: Lease::new(parts.settings.lease_ms),
            settings: parts.settings,
            reader: parts.reader,
            meter: parts.meter,
            adopted: Adopted::default(),
            ledger: Ledger::default(),
            notices: parts.notifications.as_ref().map(|notifications| Notices::new(notifications.notifier.clone())),
            readers: Readers::default(),
            semaphores: FairSemaphores::default(),
            workers: Workers::default(),
            room: Notify::new(),
            committed: Notify::new(),
            agent_news: Watchers::default(),
            rests: Watchers::default(),
            tool_news: Watchers::default(),
            draining: watch::Sender::new(false),
        });
        inner.tasks.spawn(lease::keep(inner.clone()));
        inner.tasks.spawn(sweep::run(inner.clone()));
        inner.tasks.spawn(repeats::load_at_start(inner.clone()));
        if let Some(bells) = parts.bells {
            inner.tasks.spawn(bells::listen(inner.clone(), bells));
        }
        if let Some(publisher) = parts.publisher {
            inner.tasks.spawn(publish::run(inner.clone(), publisher));
        }
        if let Some(notifications) = parts.notifications {
            inner.tasks.spawn(notify::announce_open(inner.clone(), notifications.tenants));
        }
        Engine { inner }
    }

    /// Records a run. When this returns, the run is on disk; it starts at once if the agent is idle.
    pub async fn enqueue(&self, request: Enqueue) -> Result<Enqueued, EngineError> {
        let key = keys::scoped("turn", &request.agent.agent, request.key);
        let tenant = request.agent.tenant.clone();
        // This comes before every other check: what the first attempt needed may be gone, and is not needed again.
        if let Some(first) = self.first_run(&tenant, key.as_ref()).await? {
            return Ok(first);
        }
        self.admit_run(&tenant, None).await?;
        self.inner.roster.check_agent(&request.agent)?;
        let input: Vec<NewItem> = request.input.into_iter().map(|(kind, content)| self.item(kind, content)).collect::<Result<_, _>>()?;
        let (parent, inherited) = self.context(&request.agent.tenant, request.context_box).await?;
        let result_fields = if request.result_fields.is_empty() { inherited } else { request.result_fields };
        let names = request.tools.as_deref().unwrap_or_else(|| self.inner.roster.tool_names(&request.agent));
        let offers = self.offers(&request.agent.tenant, names).await?;
        let options = RunOptions { model: request.model, instructions: request.instructions, tools: request.tools, offers, result_fields };
        let manifest = self.pin(&request.agent, options)?;
        let new = NewTurn {
            agent_name: Some(request.agent.agent.clone()),
            agent: request.agent,
            kind: MessageKind::Turn,
            manifest,
            dedupe: key.as_ref().map(|request| request.key.clone()),
            input,
            parent,
            note: key.as_ref().map(|request| bytes::Bytes::copy_from_slice(&request.asked)),
            erase_ms: None,
            takes: None,
            follows: None,
            child_of: None,
            conversation: None,
            request: None,
            at: self.now(),
        };
        let id = RunId(self.inner.ids.fresh());
        let outcome = self.submit(id, new, request.lineage, Opening::Ask).await?;
        match self.first_run(&tenant, key.as_ref().filter(|_| matches!(outcome, StoreEnqueued::Duplicate { .. }))).await? {
            Some(first) => Ok(first),
            None => enqueued(id, outcome),
        }
    }

    /// Records a person's action, if its agent is idle.
    pub async fn act(&self, action: Action) -> Result<Enqueued, EngineError> {
        let dedupe = format!("action:{}/{}", action.agent.agent, action.action_id);
        let tenant = action.agent.tenant.clone();
        let asked = codec::content_hash(format!("{}\n{}", action.tool, action.arguments).as_bytes());
        if let Some(first) = self.run_under(&tenant, &dedupe, asked).await? {
            return Ok(first);
        }
        self.inner.roster.check_agent(&action.agent)?;
        let requested = windlass_kernel::RequestedCall {
            provider_id: action.action_id.clone(),
            tool: action.tool.to_string(),
            arguments: action.arguments,
        };
        let input = vec![self.item(ItemKind::Call, content::call(CallNumber(1), &requested))?];
        let options = RunOptions { tools: Some(vec![action.tool]), ..RunOptions::default() };
        let manifest = self.pin(&action.agent, options)?;
        let new = NewTurn {
            agent_name: Some(action.agent.agent.clone()),
            agent: action.agent,
            kind: MessageKind::UiAction,
            manifest,
            dedupe: Some(dedupe.clone()),
            input,
            parent: None,
            note: Some(bytes::Bytes::copy_from_slice(&asked)),
            erase_ms: None,
            takes: None,
            follows: None,
            child_of: None,
            conversation: None,
            request: None,
            at: self.now(),
        };
        let id = RunId(self.inner.ids.fresh());
        let outcome = self.submit(id, new, action.lineage, Opening::Act(requested)).await?;
        let is_repeated = matches!(outcome, StoreEnqueued::Duplicate { .. });
        match if is_repeated { self.run_under(&tenant, &dedupe, asked).await? } else { None } {
            Some(first) => Ok(first),
            None => enqueued(id, outcome),
        }
    }

    /// Records the result of a call. When this returns, the result is on disk. A repeated report is only acknowledged.
    pub async fn report(&self, mut result: ToolResult) -> Result<Reported, EngineError> {
        self.inner.crash.after_effect("tool_start");
        result.key = keys::scoped("report", &result.agent.agent, result.key);
        if let Some(before) = self.inner.reported(&result.agent, result.key.as_ref()).await? {
            return Ok(before);
        }
        self.check_size(result.result.len())?;
        let run = self.run_of(&result.agent, result.run).await?;
        result.agent = run.agent.clone();
        if result.call.0 == 0 || result.call.0 > run.state.calls_used {
            return Err(EngineError::UnknownCall);
        }
        let tries = run.state.call(result.call).map_or(0, |open| open.retry);
        if run.state.call(result.call).is_some() && result.retry > tries {
            return Err(EngineError::UnknownCall);
        }
        // Its row would make the result of the repetition a duplicate.
        if run.state.call(result.call).is_some_and(|open| open.not_before.is_some() && result.retry == open.retry) {
            return Err(EngineError::CallPaused);
        }
        if run.state.call_hold(result.call).is_some_and(|interrupt| !interrupt.takes_results()) {
            return Err(EngineError::CallHeld);
        }
        // The server that runs an in-process call knows its result. If that got lost, a person decides, and not a client with a token.
        if run.state.call(result.call).is_some_and(|open| open.route != Route::External) {
            return Err(EngineError::NotExternal);
        }
        if run.state.has_ended() || *self.inner.draining.borrow() {
            return self.inner.record(result).await;
        }
        let agent = result.agent.clone();
        let (answer, answered) = oneshot::channel();
        match self.inner.mailbox(&agent, self.inner.settings.workers_max) {
            Some(mailbox) => mailbox.send(WorkerMessage::Report(Box::new(result), answer)).await,
            // There is no room for a worker. The result waits in the store, where the sweep finds it.
            None => return self.inner.record(result).await,
        }
        answered.await.map_err(|_| EngineError::Internal)?
    }

    /// Ends a run, in whatever state it is. A model call in flight is cancelled.
    pub async fn stop(&self, mut stop: Stop) -> Result<Stopped, EngineError> {
        stop.key = keys::scoped("stop", &stop.agent.agent, stop.key);
        if self.inner.answered(&stop.agent.tenant, stop.key.as_ref()).await?.is_some() {
            return Ok(Stopped::Now);
        }
        let run = self.run_of(&stop.agent, stop.run).await?;
        stop.agent = run.agent.clone();
        if stop.epoch.is_some_and(|given| run.epoch.is_none_or(|epoch| given > epoch)) {
            return Err(EngineError::EpochAhead);
        }
        let agent = stop.agent.clone();
        self.ask(&agent, |answer| WorkerMessage::Stop(Box::new(stop), answer)).await
    }

    /// Applies a person's answer to an interrupt. An answer with a key is applied once, however often it is sent.
    pub async fn answer_interrupt(&self, mut answer: AnswerInterrupt) -> Result<Answered, EngineError> {
        answer.key = keys::scoped("reconcile", &answer.agent.agent, answer.key);
        if self.inner.answered(&answer.agent.tenant, answer.key.as_ref()).await?.is_some() {
            return Ok(Answered { number: None, remaining: 0 });
        }
        answer.agent = self.run_of(&answer.agent, answer.run).await?.agent;
        let agent = answer.agent.clone();
        self.ask(&agent, |reply| WorkerMessage::AnswerInterrupt(Box::new(answer), reply)).await
    }

    /// Makes a box of whole boxes and new items. The same request under the same key gives the same box.
    pub async fn pack(
        &self,
        tenant: &Tenant,
        boxes: &[BoxId],
        input: Vec<(ItemKind, bytes::Bytes)>,
        key: Option<RequestKey>,
    ) -> Result<BoxRange, EngineError> {
        // A store identifies a box by its id, so a given key becomes the id.
        let id = BoxId(match &key {
            Some(request) => Uuid::from_bytes(codec::content_hash(format!("{tenant}/{}", request.key).as_bytes())),
            None => self.inner.ids.fresh(),
        });
        let key = key.map(|request| RequestKey { key: format!("pack:{}", request.key), ..request });
        // The boxes that the first request named may be gone, and are not needed again.
        if self.inner.answered(tenant, key.as_ref()).await?.is_some()
            && let Some(view) = self.inner.views.open_box(tenant, id).await?
        {
            return Ok(BoxRange { id, length: view.length });
        }
        self.admit_content(tenant)?;
        let items = input.into_iter().map(|(kind, content)| self.item(kind, content)).collect::<Result<_, _>>()?;
        let mut from = Vec::with_capacity(boxes.len());
        for id in boxes {
            let view = self.inner.views.open_box(tenant, *id).await?.ok_or(EngineError::UnknownBox)?;
            from.push(BoxRange { id: *id, length: view.length });
        }
        let limit = self.inner.settings.context_max;
        let packed = self.inner.store.pack(NewPack { tenant: tenant.clone(), id, from, items, key, limit }).await?;
        match packed {
            Packed::Done(packed) => Ok(packed),
            Packed::UnknownBox => Err(EngineError::UnknownBox),
            Packed::TooLarge => Err(EngineError::BoxTooLarge { limit }),
            Packed::KeyReused => Err(EngineError::KeyReused),
        }
    }

    /// A watch that wakes when something is committed for the agent.
    pub fn watch_agent(&self, agent: &AgentKey) -> Watch {
        self.inner.agent_news.watch(agent)
    }

    /// A watch that wakes when a run of the agent needs no more work and that is on disk: it has ended, or a person must decide.
    pub fn watch_settled(&self, agent: &AgentKey) -> Watch {
        self.inner.rests.watch(agent)
    }

    /// Follows a run: commits of this process from now on are read from memory.
    pub fn follow(&self, run: RunId) -> JournalCache {
        self.inner.journal_caches.follow(run)
    }

    /// The read operations of the store.
    pub fn views(&self) -> &Arc<dyn Views> {
        &self.inner.views
    }

    /// The configured agents and tools.
    pub fn roster(&self) -> &AgentCatalog {
        &self.inner.roster
    }

    /// The limits in force.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The time, by the engine's clock.
    pub fn now(&self) -> windlass_kernel::Timestamp {
        self.inner.clock.now()
    }

    /// Handles a doorbell for an agent: another process committed something for it.
    pub fn look(&self, agent: &AgentKey) {
        self.inner.wake_worker(agent);
    }

    /// Stops taking new work, waits a while for calls in flight, and leaves the rest to the next owner.
    pub async fn drain(&self) {
        self.inner.draining.send_replace(true);
        self.wait_for_workers().await;
        if let Err(error) = self.inner.store.flush_readers().await {
            tracing::warn!(%error, "the last records of readers could not be written; their requests count as unanswered");
        }
        lease::give_up(&self.inner).await;
    }

    async fn wait_for_workers(&self) {
        let patience = tokio::time::sleep(Duration::from_millis(self.inner.settings.drain_ms));
        tokio::pin!(patience);
        while self.inner.workers.count() > 0 {
            tokio::select! {
                biased;
                () = &mut patience => return,
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }

    /// Runs that this process takes over from a lost one, some of them more than once. Only the first caller gets the receiver, which
    /// covers the time since the engine's start.
    pub fn adopted(&self) -> Option<mpsc::Receiver<(AgentKey, RunId)>> {
        self.inner.adopted.listen()
    }

    /// Whether the engine has stopped taking new work.
    pub fn is_draining(&self) -> bool {
        *self.inner.draining.borrow()
    }

    /// Waits until the engine stops taking new work.
    pub async fn draining(&self) {
        let mut draining = self.inner.draining.subscribe();
        // The sender lives as long as this engine does.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// How many agents have a worker in this process.
    pub fn working(&self) -> usize {
        self.inner.workers.count()
    }

    /// An id that no run has yet.
    pub fn fresh_run(&self) -> RunId {
        RunId(self.inner.ids.fresh())
    }

    /// The engine whose state this is.
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Engine { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The context box that a request's items are put after, and the result fields that it asks for.
    async fn context(&self, tenant: &Tenant, id: Option<BoxId>) -> Result<(Option<BoxRange>, Vec<ResultField>), EngineError> {
        let Some(id) = id else { return Ok((None, Vec::new())) };
        let view = self.inner.views.open_box(tenant, id).await?.ok_or(EngineError::UnknownBox)?;
        let range = BoxRange { id, length: view.length };
        self.check_history(tenant, range).await?;
        let items = self.inner.views.range_items(tenant, range).await?;
        let wanted = items.iter().rev().find(|item| item.kind == ItemKind::ResultFields);
        let fields = wanted.and_then(|item| serde_json::from_slice::<content::FieldsSchema>(&item.content).ok());
        Ok((Some(range), fields.map(|schema| schema.fields).unwrap_or_default()))
    }

    /// The run, if `agent` is the name of its agent or the key of its head.
    pub(crate) async fn run_of(&self, agent: &AgentKey, run: RunId) -> Result<RunView, EngineError> {
        let view = self.inner.views.run(&agent.tenant, run).await?;
        let is_its = |view: &RunView| view.agent == *agent || view.agent_name.as_ref() == Some(&agent.agent);
        view.filter(is_its).ok_or(EngineError::UnknownRun)
    }

    /// Sends a message that must be answered even if all workers are in use, because a person waits.
    pub(crate) async fn ask<T>(&self, agent: &AgentKey, message: impl FnOnce(Answer<T>) -> WorkerMessage) -> Result<T, EngineError> {
        let (answer, answered) = oneshot::channel();
        if let Some(mailbox) = self.inner.mailbox(agent, usize::MAX) {
            mailbox.send(message(answer)).await;
        }
        answered.await.map_err(|_| EngineError::Internal)?
    }

    pub(crate) fn item(&self, kind: ItemKind, content: bytes::Bytes) -> Result<NewItem, EngineError> {
        self.check_size(content.len())?;
        let header = if kind == ItemKind::Instruction { self.inner.reader.header(&content) } else { None };
        Ok(NewItem { id: ItemId(self.inner.ids.fresh()), kind, content, header })
    }

    fn check_size(&self, bytes: usize) -> Result<(), EngineError> {
        let limit = self.inner.settings.item_bytes_max;
        if bytes > limit { Err(EngineError::ItemTooLarge { bytes, limit }) } else { Ok(()) }
    }
}
