//! How a request becomes a run: all that is written for it, and the way to the worker that writes it.

use std::sync::Arc;

use tokio::sync::oneshot;
use windlass_kernel::{
    AgentIdentity, AgentKey, AgentName, BoxId, BoxRange, Event, Input, NewItem, Opening, Origin, ParentCall, RunId, Tenant, Timestamp,
    apply,
};
use windlass_ports::{Enqueued as StoreEnqueued, InConversation, Lineage, MessageKind, NewBox, NewRun, PinnedManifest, RequestHash};

use crate::{
    api::{EngineError, Enqueued},
    draft::Draft,
    engine::Engine,
    messages,
    roster::RunOptions,
    worker_message::WorkerMessage,
};

/// A run to be recorded.
pub(crate) struct NewTurn {
    /// The head of the run.
    pub agent: AgentKey,
    /// The agent whose settings the run has.
    pub agent_name: Option<AgentName>,
    pub kind: MessageKind,
    pub manifest: Arc<PinnedManifest>,
    pub dedupe: Option<String>,
    pub input: Vec<NewItem>,
    pub parent: Option<BoxRange>,
    /// Data that the door stores with the run and reads back with it.
    pub note: Option<bytes::Bytes>,
    /// Milliseconds after its end at which the run is erased.
    pub erase_ms: Option<u64>,
    /// The run whose calls it inherits.
    pub takes: Option<RunId>,
    /// The run that it continues, if that one waited for its client.
    pub follows: Option<RunId>,
    /// The call that it answers, if it is a child run.
    pub child_of: Option<ParentCall>,
    /// The conversation of the run.
    pub conversation: Option<InConversation>,
    /// The create request that starts it, if a repetition of that request may join it.
    pub request: Option<RequestHash>,
    /// When the request was received.
    pub at: Timestamp,
}

impl Engine {
    /// The manifest that a request to an agent pins.
    pub(crate) fn pin(&self, agent: &AgentKey, options: RunOptions) -> Result<Arc<PinnedManifest>, EngineError> {
        let inner = self.inner();
        inner.roster.pin(agent, options, inner.models.as_ref(), &inner.settings)
    }

    /// Records a run, and starts it at once if its agent is idle and there is room for a worker.
    pub(crate) async fn submit(&self, id: RunId, new: NewTurn, lineage: Lineage, opening: Opening) -> Result<StoreEnqueued, EngineError> {
        if self.is_draining() {
            return Err(EngineError::Draining);
        }
        // The head of a conversation is only for runs of the conversation: a run outside of it would not have its history.
        if new.conversation.is_none() && matches!(new.agent.agent.identity(), AgentIdentity::Conversation(_)) {
            return Err(EngineError::ConversationsAgent);
        }
        self.admit_run(&new.agent.tenant, new.dedupe.as_deref()).await?;
        self.check_prompt(&new.agent.tenant, new.parent, &new.input).await?;
        let lineage = Lineage { depth: self.depth(&new.agent.tenant, &lineage).await?, ..lineage };
        let run = self.new_run(id, new, lineage, opening);
        let agent = run.agent.clone();
        let outcome = self.record(&agent, run).await?;
        if matches!(outcome, StoreEnqueued::TenantFull) { Err(self.tenant_full(&agent.tenant)) } else { Ok(outcome) }
    }

    async fn record(&self, agent: &AgentKey, run: NewRun) -> Result<StoreEnqueued, EngineError> {
        let inner = self.inner();
        let (answer, answered) = oneshot::channel();
        match inner.mailbox(agent, inner.settings.workers_max) {
            Some(mailbox) => {
                mailbox.send(WorkerMessage::Enqueue(Box::new(run), answer)).await;
                answered.await.map_err(|_| EngineError::Internal)?
            }
            None => {
                let unentered = NewRun { enter: None, ..run };
                let outcome = inner.store.enqueue(unentered).await?;
                inner.committed.notify_one();
                if matches!(outcome, StoreEnqueued::Dispatched { .. }) {
                    inner.ring(agent);
                }
                Ok(outcome)
            }
        }
    }

    /// The depth of a run that an iteration of another run requested. A parent step that names no run of this tenant counts as none.
    async fn depth(&self, tenant: &Tenant, lineage: &Lineage) -> Result<u32, EngineError> {
        let Some(parent) = lineage.parent_step.as_deref().and_then(messages::run_of_step) else { return Ok(0) };
        let Some(parent) = self.views().run(tenant, parent).await? else { return Ok(0) };
        let (depth, limit) = (parent.lineage.depth + 1, self.settings().depth_max);
        if depth >= limit { Err(EngineError::TooDeep { depth, limit }) } else { Ok(depth) }
    }

    fn new_run(&self, id: RunId, new: NewTurn, lineage: Lineage, opening: Opening) -> NewRun {
        let inner = self.inner();
        let now = new.at;
        let admission = self.admission(&new.agent.tenant);
        let context = NewBox { id: BoxId(inner.ids.fresh()), parent: new.parent, items: new.input };
        let output = BoxId(inner.ids.fresh());
        let accepted = Event::Accepted {
            origin: if new.kind == MessageKind::UiAction { Origin::Action } else { Origin::Turn },
            context: BoxRange { id: context.id, length: context.items.len() as u32 },
            output: BoxRange { id: output, length: 0 },
            caller: lineage.caller,
            parent: new.child_of.map(Box::new),
        };
        let state = apply(None, &accepted).expect("every journal begins with `accepted`");
        let mut draft = Draft::new(&state);
        draft.step(&new.manifest.manifest, Input::Entered(opening), now, inner.ids.as_ref());
        NewRun {
            run: id,
            agent: new.agent,
            agent_name: new.agent_name,
            dedupe: new.dedupe,
            lineage,
            enter: Some(draft.into_commit(id, new.follows, inner.node, now)),
            manifest: new.manifest,
            note: new.note,
            erase_ms: new.erase_ms,
            takes: new.takes,
            follows: new.follows,
            conversation: new.conversation,
            request: new.request,
            context,
            output,
            accepted,
            state,
            kind: new.kind,
            node: inner.node,
            admission,
            now,
        }
    }
}

/// The answer to a request, or the error, from the outcome of the store.
pub(crate) fn enqueued(run: RunId, outcome: StoreEnqueued) -> Result<Enqueued, EngineError> {
    match outcome {
        StoreEnqueued::Entered { message, epoch, .. } | StoreEnqueued::Dispatched { message, epoch } => {
            Ok(Enqueued { run, message, is_queued: false, epoch: Some(epoch) })
        }
        StoreEnqueued::Queued { message } => Ok(Enqueued { run, message, is_queued: true, epoch: None }),
        StoreEnqueued::Duplicate { run, message, epoch, queued, .. } => Ok(Enqueued { run, message, is_queued: queued, epoch }),
        StoreEnqueued::Busy => Err(EngineError::Busy),
        StoreEnqueued::UnknownConversation => Err(EngineError::UnknownConversation),
        StoreEnqueued::ConversationMoved => Err(EngineError::ConversationMoved),
        StoreEnqueued::AgentFull => Err(EngineError::AgentFull),
        StoreEnqueued::TenantFull => Err(EngineError::TenantFull),
        StoreEnqueued::MemoryFull => Err(EngineError::MemoryFull),
        StoreEnqueued::ParentGone => Err(EngineError::ParentGone),
        StoreEnqueued::UnknownBox => Err(EngineError::UnknownBox),
        StoreEnqueued::AlreadyInherited { by } => Err(EngineError::AlreadyInherited(by)),
    }
}
