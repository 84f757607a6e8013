//! What doors ask of the engine, and what it answers.

use bytes::Bytes;
use windlass_kernel::{AfterExecution, AgentKey, AgentName, BoxId, CallNumber, Epoch, ItemKind, ResultField, RunId, TaskStatus, ToolName};
use windlass_ports::{ContextSize, Lineage, MessageId, RequestKey, ServerError, StoreError};

use crate::{prompt_size::PromptTooLarge, quota::OverQuota};

/// A request for a run.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// Of which agent.
    pub agent: AgentKey,
    /// What it is asked: content of its context box, in order.
    pub input: Vec<(ItemKind, Bytes)>,
    /// Another model than the agent's.
    pub model: Option<String>,
    /// Other instructions than the agent's.
    pub instructions: Option<String>,
    /// Other tools than the agent's.
    pub tools: Option<Vec<ToolName>>,
    /// What stands before the input.
    pub context_box: Option<BoxId>,
    /// What the deliverable should contain.
    pub result_fields: Vec<ResultField>,
    /// The same request with the same key is the same run.
    pub key: Option<RequestKey>,
    /// Where it comes from.
    pub lineage: Lineage,
}

/// A person's action: one call of one tool.
#[derive(Clone, Debug)]
pub struct Action {
    /// Of which agent.
    pub agent: AgentKey,
    /// The same action is the same run.
    pub action_id: String,
    /// What is called.
    pub tool: ToolName,
    /// Its arguments: valid JSON.
    pub arguments: String,
    /// Where it comes from.
    pub lineage: Lineage,
}

/// A request that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The run.
    pub run: RunId,
    /// Its inbox row.
    pub message: MessageId,
    /// Whether it waits behind another run.
    pub is_queued: bool,
    /// The fence, once it has one.
    pub epoch: Option<Epoch>,
}

/// A call's result from outside.
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// Of which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// Which call.
    pub call: CallNumber,
    /// How it ended.
    pub status: TaskStatus,
    /// What came back: valid JSON, kept byte for byte.
    pub result: Bytes,
    /// What should follow, if the report says.
    pub after: Option<AfterExecution>,
    /// Who says so.
    pub source: Option<String>,
    /// The same report with the same key is answered as before.
    pub key: Option<RequestKey>,
}

/// A result that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Its inbox row.
    pub message: MessageId,
    /// Whether it was there already.
    pub is_duplicate: bool,
}

/// A wish to end a run.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Of which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// Why.
    pub reason: String,
    /// The epoch the asker knows of; an older one of the same run is fine.
    pub epoch: Option<Epoch>,
    /// Who asks.
    pub source: Option<String>,
    /// The same wish with the same key is answered as before.
    pub key: Option<RequestKey>,
}

/// What a stop found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The run is over now.
    Now,
    /// It was over before.
    Before,
}

/// A person's word on something parked.
#[derive(Clone, Debug)]
pub struct Reconcile {
    /// Of which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// What is decided.
    pub verdict: Verdict,
    /// Who decides.
    pub source: Option<String>,
    /// The same decision with the same key is applied once.
    pub key: Option<RequestKey>,
}

/// What a person decides.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The call ran; this is its result.
    Record {
        /// Which call.
        call: CallNumber,
        /// How it ended.
        status: TaskStatus,
        /// Its result: valid JSON.
        result: Bytes,
    },
    /// The call may run again.
    Release {
        /// Which call.
        call: CallNumber,
    },
    /// The model is told that nobody knows.
    Tell {
        /// Which call.
        call: CallNumber,
    },
    /// The whole run may go on.
    Unpark,
}

/// A person's word that a run which cannot be read is given up.
#[derive(Clone, Debug)]
pub struct Abandon {
    /// Of which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// Who decides.
    pub source: Option<String>,
    /// The same decision with the same key is applied once.
    pub key: Option<RequestKey>,
}

/// Why the engine does not do what it was asked. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such model.
    #[error("there is no model {0:?}")]
    UnknownModel(String),
    /// No model is named, and none is the default.
    #[error("no model is named, and there is no default: the only configured model is \"*\", which passes the name of a request on")]
    NoDefaultModel,
    /// No such agent, and only configured ones can be used.
    #[error("there is no agent {:?}", .agent.as_str())]
    UnknownAgent {
        /// The name that was asked for.
        agent: AgentName,
        /// The configured agent whose name is the most like it.
        nearest: Option<AgentName>,
    },
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(ToolName),
    /// No such box.
    #[error("there is no such box")]
    UnknownBox,
    /// No such run of this agent.
    #[error("this agent has no such turn")]
    UnknownRun,
    /// The run never made such a call.
    #[error("the turn has made no such call")]
    UnknownCall,
    /// The call is this server's own to run.
    #[error("the server runs this call itself; its result is not to be reported")]
    NotExternal,
    /// Another run took over the calls.
    #[error("the calls this would go on with were taken over by another turn")]
    TakenBefore(RunId),
    /// A tool server does not offer its tools.
    #[error(transparent)]
    ToolServer(ServerError),
    /// Too many runs asked for one another.
    #[error("this turn would be {depth} deep; {limit} is the limit")]
    TooDeep {
        /// How deep it would be.
        depth: u32,
        /// How deep a run may be.
        limit: u32,
    },
    /// The key was used for something else.
    #[error("this Idempotency-Key or action_id was used for another request; use a fresh one for a new request")]
    KeyReused,
    /// An action found the agent busy.
    #[error("the agent is busy with another turn")]
    Busy,
    /// No such conversation.
    #[error("there is no such conversation")]
    UnknownConversation,
    /// The agent is a conversation's own.
    #[error("an agent of this name belongs to a conversation; send responses with that `conversation`")]
    ConversationsAgent,
    /// A run of the conversation is going on.
    #[error("another response is being made in this conversation; try again when it is over")]
    ConversationBusy,
    /// The conversation is not as it was when the request was put together.
    #[error("the conversation moved on while this was tried; try again")]
    ConversationMoved,
    /// The conversation has no room for more.
    #[error("the conversation has no room for so many more items; begin another one")]
    ConversationFull,
    /// Too many runs wait for this agent.
    #[error("too many turns are queued for this agent")]
    AgentFull,
    /// Too many runs of this tenant are open.
    #[error("too many turns of this tenant are open")]
    TenantFull,
    /// The tenant would use more than its quota.
    #[error("{0}")]
    OverQuota(OverQuota),
    /// There is no memory left for runs that are not to be stored.
    #[error("no memory is left for what is not to be stored; send it again later, or let it be stored")]
    MemoryFull,
    /// There is nothing to decide.
    #[error("nothing of this turn waits for a decision")]
    NotParked,
    /// There is nothing to give up.
    #[error("the agent is not quarantined for this turn; a turn that can be read is stopped")]
    NotQuarantined,
    /// The epoch is one the run never had.
    #[error("the turn has no such epoch yet")]
    EpochAhead,
    /// An item is too large.
    #[error("an item has {bytes} bytes, {limit} are allowed")]
    ItemTooLarge {
        /// What it has.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A box would hold too much.
    #[error("the box would hold more than {} items or {} bytes, which is the limit", .limit.items, .limit.bytes)]
    BoxTooLarge {
        /// What is allowed.
        limit: ContextSize,
    },
    /// A prompt would read more content than one prompt may.
    #[error("{0}")]
    PromptTooLarge(PromptTooLarge),
    /// The server takes no new work.
    #[error("the server is about to stop and takes no new work")]
    Draining,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something of ours broke; the run is parked with the evidence.
    #[error("internal error; the turn is parked")]
    Internal,
}
