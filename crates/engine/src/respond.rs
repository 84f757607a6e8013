//! Runs whose door has made up their manifest: the loop behind the Responses protocol.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{
    AgentKey, AgentName, BoxRange, CallNumber, ItemKind, Manifest, Opening, RequestedCall, RunId, Tenant, Timestamp, ToolName, ToolSpec,
    content,
};
use windlass_ports::{
    CommitKind, Enqueued as StoreEnqueued, InConversation, Lineage, MessageKind, RequestHash, TenantCursor, TenantErasure, ToolServers,
    codec, conversation_agent,
};

use crate::{
    api::EngineError,
    engine::Engine,
    retention::{self, AgedErasure},
    submit::{NewTurn, enqueued},
    tail::Tail,
    watch::Watch,
};

/// Rows of a table that a batch of the erasure of a tenant looks at: other commits wait for it.
const TENANT_BATCH: usize = 500;

/// A request with a manifest of its own.
#[derive(Clone, Debug)]
pub struct Respond {
    /// Whose it is.
    pub tenant: Tenant,
    /// The agent whose settings its manifest has, if it has a named one. The run keeps the name and has a head of its own.
    pub agent: Option<AgentName>,
    /// Whether it runs under the agent's own head instead: then responses of the agent run one after the other.
    pub serial: bool,
    /// What it may do.
    pub manifest: Manifest,
    /// What it is asked, beyond what stands before.
    pub input: Vec<(ItemKind, Bytes)>,
    /// What stands before.
    pub parent: Option<BoxRange>,
    /// The conversation it is said in, whose agent it has then.
    pub conversation: Option<InConversation>,
    /// The earlier run that this one goes on from, with the calls that it left behind: this one makes them first.
    pub left: Option<LeftCalls>,
    /// What the door wants to know again.
    pub note: Bytes,
    /// How long after its end it is erased; kept if there is no time.
    pub erase_ms: Option<u64>,
    /// The same key is the same run.
    pub dedupe: Option<String>,
    /// Identifies the create request, if a repetition of it may join the run.
    pub request: Option<RequestHash>,
    /// Where it comes from.
    pub lineage: Lineage,
}

/// Calls that a run left behind, if any, when it waited for its client.
#[derive(Clone, Debug)]
pub struct LeftCalls {
    /// Which run.
    pub run: RunId,
    /// The calls, by the numbers they have there.
    pub calls: Vec<(CallNumber, RequestedCall)>,
    /// Whether they stand in the input already, as calls that are taken over under their own numbers.
    pub is_placed: bool,
}

/// A request that was taken.
#[derive(Clone, Debug)]
pub struct Responded {
    /// The run: another's, if the key was used before.
    pub run: RunId,
    /// Its agent.
    pub agent: AgentKey,
    /// What a run has that was begun just now; nothing if the key was used before.
    pub begun: Option<Begun>,
}

/// What whoever asked for a run need not read again.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What it may do.
    pub manifest: Arc<Manifest>,
    /// When it was accepted.
    pub at: Timestamp,
    /// Wakes when it has come to rest, however soon that was.
    pub rests: Watch,
    /// Everything that happened in it so far.
    pub tail: Tail,
}

impl Engine {
    /// Records a run. It is on disk when this returns, and begins at once if its agent is idle.
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
            // The calls stand in the context too: whoever enters the run later finds them there.
            for (number, call) in left.calls.iter().filter(|_| !left.is_placed) {
                input.push(self.item(ItemKind::Call, content::taken_call(*number, call, Some(*number)))?);
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
            manifest: Arc::new(codec::pin_manifest(request.manifest)),
            dedupe: request.dedupe,
            input,
            parent: request.parent,
            note: Some(request.note),
            erase_ms: request.erase_ms,
            takes,
            follows,
            conversation: request.conversation,
            request: request.request,
            at: inner.clock.now(),
        };
        let agent = new.agent.clone();
        // Watched from before there is anything to miss.
        let begun = Begun { manifest: new.manifest.manifest.clone(), at: new.at, rests: self.watch_rests(&agent), tail: self.follow(id) };
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

    /// Erases a run that has ended: what it was given, and what it said.
    pub async fn erase(&self, tenant: &Tenant, run: RunId) -> Result<(), EngineError> {
        let inner = self.inner();
        inner.crash.before_commit(CommitKind::Erase);
        inner.store.erase(tenant.clone(), run).await?;
        inner.crash.after_commit(CommitKind::Erase);
        Ok(())
    }

    /// Erases a batch of everything that a tenant has. The next one goes on from what this one returns.
    pub async fn erase_tenant(&self, tenant: &Tenant, from: TenantCursor) -> Result<TenantErasure, EngineError> {
        Ok(self.inner().store.erase_tenant(tenant.clone(), from, TENANT_BATCH).await?)
    }

    /// Erases a batch of a tenant's ended runs that are older than `retention` says. The next one goes on from what this one returns.
    pub async fn erase_aged(&self, tenant: &Tenant, after: Option<RunId>) -> Result<AgedErasure, EngineError> {
        let inner = self.inner();
        let now = inner.clock.now();
        Ok(retention::erase_batch(&*inner.store, &inner.crash, inner.settings.retention, tenant, after, now).await?)
    }

    /// The configured tool of that name, whoever runs it, if the tenant may use it.
    pub fn tool(&self, tenant: &Tenant, name: &ToolName) -> Option<ToolSpec> {
        self.inner().roster.tool(tenant, name, &self.inner().settings)
    }

    /// The names of the configured models that the tenant may use.
    pub fn model_names(&self, tenant: &Tenant) -> Vec<String> {
        self.inner().models.names(tenant)
    }

    /// Servers that offer tools, if there can be any.
    pub fn servers(&self) -> Option<&Arc<dyn ToolServers>> {
        self.inner().servers.as_ref()
    }

    /// Whether a model of that name is configured for the tenant.
    pub fn has_model(&self, tenant: &Tenant, name: &str) -> bool {
        self.inner().models.resolve(tenant, name).is_some()
    }

    /// The model a request gets that names none, if there is one.
    pub fn default_model(&self, tenant: &Tenant) -> Option<&str> {
        self.inner().models.default_name(tenant)
    }
}
