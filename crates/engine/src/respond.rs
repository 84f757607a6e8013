//! Starting runs whose manifest comes with the request: the engine's side of the Responses API.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{
    AgentKey, AgentName, BoxRange, InheritedCall, ItemKind, Manifest, Opening, RunId, Tenant, Timestamp, ToolName, ToolSpec, content,
};
use windlass_ports::{
    Enqueued as StoreEnqueued, InConversation, Lineage, MessageKind, RequestHash, TenantCursor, TenantErasure, ToolServers, codec,
    conversation_agent,
};

use crate::{
    api::EngineError,
    engine::Engine,
    journal_cache::JournalCache,
    retention::{self, AgedErasure},
    submit::{NewTurn, enqueued},
    watch::Watch,
};

/// Rows that one batch of a tenant's erasure looks at in one transaction. Other commits wait meanwhile, so the batch is small.
const TENANT_BATCH: usize = 500;

/// A request for a run with a manifest of its own.
#[derive(Clone, Debug)]
pub struct Respond {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The named agent whose settings the manifest has, if it has one. The run records the name and has a head of its own.
    pub agent: Option<AgentName>,
    /// Whether the run has the agent's own head instead. Responses of such an agent run one after the other.
    pub serial: bool,
    /// What the run may do.
    pub manifest: Manifest,
    /// The new items of the request, put after `parent`.
    pub input: Vec<(ItemKind, Bytes)>,
    /// The history before the new items.
    pub parent: Option<BoxRange>,
    /// The conversation of the response. The run then has the conversation's head.
    pub conversation: Option<InConversation>,
    /// The earlier run that this one continues, with the calls that it deferred to this one. This run makes them first.
    pub left: Option<DeferredCalls>,
    /// Data that the door stores with the run and reads back with it.
    pub note: Bytes,
    /// Milliseconds after its end at which the run is erased. `None` keeps it.
    pub erase_ms: Option<u64>,
    /// A request with the same key gets the same run.
    pub dedupe: Option<String>,
    /// Identifies the create request, if a repetition of it may join the run.
    pub request: Option<RequestHash>,
    /// Where the request comes from: its caller, trace and parent step.
    pub lineage: Lineage,
}

/// Calls that a run deferred to the run after it, because it had to wait for its client first.
#[derive(Clone, Debug)]
pub struct DeferredCalls {
    /// The run that deferred them.
    pub run: RunId,
    /// The calls, with the client's answers to those that it had to approve.
    pub calls: Vec<InheritedCall>,
    /// Whether the input contains the calls already, as inherited calls under their own numbers.
    pub is_placed: bool,
}

/// An accepted request.
#[derive(Clone, Debug)]
pub struct Responded {
    /// The run. Under a key that was used before, it is the run of the first request.
    pub run: RunId,
    /// The agent of the run.
    pub agent: AgentKey,
    /// Facts about a run that was started just now. `None` if the key was used before.
    pub begun: Option<Begun>,
}

/// Facts about a new run, so that the caller need not read them from the store.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What the run may do.
    pub manifest: Arc<Manifest>,
    /// When the run was accepted.
    pub at: Timestamp,
    /// Wakes when the run needs no more work, even if that was before the call returned.
    pub rests: Watch,
    /// The journal cache of the run, complete from its first event.
    pub tail: JournalCache,
}

impl Engine {
    /// Records a run. When this returns, the run is on disk; it starts at once if its agent is idle.
    pub async fn respond(&self, request: Respond) -> Result<Responded, EngineError> {
        let inner = self.inner();
        if inner.models.resolve(&request.tenant, &request.manifest.model).is_none() {
            return Err(EngineError::UnknownModel(request.manifest.model));
        }
        let id = RunId(inner.ids.fresh());
        let mut input = request.input.into_iter().map(|(kind, content)| self.item(kind, content)).collect::<Result<Vec<_>, _>>()?;
        let mut opening = Opening::Ask;
        let (mut takes, mut follows) = (None, None);
        if let Some(left) = request.left {
            follows = Some(left.run);
            takes = follows.filter(|_| !left.calls.is_empty());
            // The calls are also put into the context box, where a worker that enters the run later finds them.
            for call in left.calls.iter().filter(|_| !left.is_placed) {
                input.push(self.item(ItemKind::Call, content::inherited_call(call.number, call))?);
            }
            if takes.is_some() {
                opening = Opening::InheritCalls(left.calls);
            }
        }
        let agent = match request.conversation {
            Some(asked) => conversation_agent(&request.tenant, asked.id),
            None => {
                let head = request.agent.clone().filter(|_| request.serial);
                AgentKey { tenant: request.tenant, agent: head.unwrap_or_else(|| AgentName::from(id.to_string().as_str())) }
            }
        };
        let is_in_conversation = request.conversation.is_some();
        let new = NewTurn {
            agent,
            agent_name: request.agent,
            kind: MessageKind::Turn,
            manifest: Arc::new(codec::pin_manifest(Manifest { gates: inner.roster.gates().to_vec(), ..request.manifest })),
            dedupe: request.dedupe,
            input,
            parent: request.parent,
            note: Some(request.note),
            erase_ms: request.erase_ms,
            takes,
            follows,
            child_of: None,
            conversation: request.conversation,
            request: request.request,
            at: inner.clock.now(),
        };
        let agent = new.agent.clone();
        // The watch and the cache exist before the commit, so that they miss nothing.
        let begun = Begun { manifest: new.manifest.manifest.clone(), at: new.at, rests: self.watch_settled(&agent), tail: self.follow(id) };
        let outcome = self.submit(id, new, request.lineage, opening).await?;
        if let StoreEnqueued::Duplicate { run, agent, .. } = &outcome
            && *run != id
        {
            return Ok(Responded { run: *run, agent: agent.clone(), begun: None });
        }
        if is_in_conversation && outcome == StoreEnqueued::Busy {
            return Err(EngineError::ConversationBusy);
        }
        enqueued(id, outcome).map(|taken| Responded { run: taken.run, agent, begun: Some(begun) })
    }

    /// Erases the content of a run that has ended: its input and its output. Its children go first, so that a repeated request finds what
    /// an interrupted one has left.
    pub async fn erase(&self, tenant: &Tenant, run: RunId) -> Result<(), EngineError> {
        for child in self.children_of(tenant, run).await? {
            Box::pin(self.erase(tenant, child)).await?;
        }
        Ok(self.inner().store.erase(tenant.clone(), run).await?)
    }

    /// Erases a batch of everything that a tenant has. The next batch continues from the returned cursor.
    pub async fn erase_tenant(&self, tenant: &Tenant, from: TenantCursor) -> Result<TenantErasure, EngineError> {
        Ok(self.inner().store.erase_tenant(tenant.clone(), from, TENANT_BATCH).await?)
    }

    /// Erases a batch of a tenant's ended runs that are older than `retention` allows. The next batch continues from the returned `next`.
    pub async fn erase_aged(&self, tenant: &Tenant, after: Option<RunId>) -> Result<AgedErasure, EngineError> {
        let inner = self.inner();
        let now = inner.clock.now();
        Ok(retention::erase_aged(&*inner.store, inner.settings.retention, tenant, after, now).await?)
    }

    /// The configured tool of that name, in process or external, if the tenant may use it.
    pub fn tool(&self, tenant: &Tenant, name: &ToolName) -> Option<ToolSpec> {
        self.inner().roster.tool(tenant, name, &self.inner().settings)
    }

    /// The names of the configured models that the tenant may use.
    pub fn model_names(&self, tenant: &Tenant) -> Vec<String> {
        self.inner().models.names(tenant)
    }

    /// The client of tool servers (MCP), if there can be any.
    pub fn servers(&self) -> Option<&Arc<dyn ToolServers>> {
        self.inner().servers.as_ref()
    }

    /// Whether a model of that name is configured for the tenant.
    pub fn has_model(&self, tenant: &Tenant, name: &str) -> bool {
        self.inner().models.resolve(tenant, name).is_some()
    }

    /// The model of a request that names none, if there is one.
    pub fn default_model(&self, tenant: &Tenant) -> Option<&str> {
        self.inner().models.default_name(tenant)
    }
}
