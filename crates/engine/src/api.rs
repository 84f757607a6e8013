//! The requests of doors to the engine, and its answers.

use bytes::Bytes;
use windlass_kernel::{
    AfterExecution, AgentKey, AgentName, BoxId, BudgetKind, CallNumber, Epoch, ItemId, ItemKind, ResultField, RunId, TaskStatus, ToolName,
};
use windlass_ports::{ContextSize, Lineage, MessageId, RequestKey, ServerError, StoreError};

use crate::{prompt_size::PromptTooLarge, quota::OverQuota};

/// A request for a run.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// The agent that gets the request.
    pub agent: AgentKey,
    /// The content of the run's context box, in order.
    pub input: Vec<(ItemKind, Bytes)>,
    /// A model to use instead of the agent's.
    pub model: Option<String>,
    /// Instructions to use instead of the agent's.
    pub instructions: Option<String>,
    /// Tools to use instead of the agent's.
    pub tools: Option<Vec<ToolName>>,
    /// The box that the input is put after.
    pub context_box: Option<BoxId>,
    /// The fields that the deliverable should contain.
    pub result_fields: Vec<ResultField>,
    /// The same request under the same key gets the same run.
    pub key: Option<RequestKey>,
    /// Where the request comes from: its caller, trace and parent step.
    pub lineage: Lineage,
}

/// A person's action: one call of one tool.
#[derive(Clone, Debug)]
pub struct Action {
    /// The agent that the action is for.
    pub agent: AgentKey,
    /// The idempotency key: the same action id gets the same run.
    pub action_id: String,
    /// The tool that is called.
    pub tool: ToolName,
    /// The call's arguments: valid JSON.
    pub arguments: String,
    /// Where the action comes from: its caller, trace and parent step.
    pub lineage: Lineage,
}

/// An accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The run of the request.
    pub run: RunId,
    /// The id of the run's inbox row.
    pub message: MessageId,
    /// Whether the run waits behind another one.
    pub is_queued: bool,
    /// The run's epoch. `None` while it is queued.
    pub epoch: Option<Epoch>,
}

/// The result of an external call.
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// The agent of the run, by its name or the key of its head.
    pub agent: AgentKey,
    /// The run that made the call.
    pub run: RunId,
    /// The number of the call.
    pub call: CallNumber,
    /// The number of the call's repetition that it belongs to; 0 is the first try.
    pub retry: u32,
    /// How the call ended.
    pub status: TaskStatus,
    /// The result: valid JSON, stored byte for byte.
    pub result: Bytes,
    /// What the run does after the result, if the report asks for something.
    pub after: Option<AfterExecution>,
    /// Who sent the report, for the record.
    pub source: Option<String>,
    /// The same report under the same key gets the same answer.
    pub key: Option<RequestKey>,
}

/// An accepted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The id of the result's inbox row.
    pub message: MessageId,
    /// Whether the call had a result already.
    pub is_duplicate: bool,
}

/// A request to end a run.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The agent of the run, by its name or the key of its head.
    pub agent: AgentKey,
    /// The run to end.
    pub run: RunId,
    /// The reason, for the record.
    pub reason: String,
    /// The epoch that the client knows, if any. An older epoch of the same run is accepted.
    pub epoch: Option<Epoch>,
    /// Who sent the request, for the record.
    pub source: Option<String>,
    /// The same request under the same key gets the same answer.
    pub key: Option<RequestKey>,
}

/// The effect of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The stop ended the run.
    Now,
    /// The run had ended before.
    Before,
}

/// A request to give the active run another instruction.
#[derive(Clone, Debug)]
pub struct Steer {
    /// The agent of the run, by its name or the key of its head.
    pub agent: AgentKey,
    /// The active run.
    pub run: RunId,
    /// The instruction.
    pub input: (ItemKind, Bytes),
    /// Who sent the request, for the record.
    pub source: Option<String>,
    /// The same request under the same key gets the same answer.
    pub key: Option<RequestKey>,
}

/// A person's answer to an interrupt.
#[derive(Clone, Debug)]
pub struct AnswerInterrupt {
    /// The agent of the run, by its name or the key of its head.
    pub agent: AgentKey,
    /// The run that waits.
    pub run: RunId,
    /// The interrupt.
    pub target: AnswerTarget,
    /// The decision.
    pub action: AnswerAction,
    /// Who decided: the name of the token.
    pub source: Option<String>,
    /// The same answer under the same key is applied once.
    pub key: Option<RequestKey>,
}

/// How an answer names its interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerTarget {
    /// By its number.
    Interrupt {
        /// The number.
        number: u64,
        /// The item that the person saw.
        shows: Option<ItemId>,
    },
    /// The interrupt that holds this call.
    Call(CallNumber),
    /// The interrupt that holds the whole run.
    Run,
}

/// What a person decides.
#[derive(Clone, Debug)]
pub enum AnswerAction {
    /// The call may start with the arguments that were shown.
    Approve,
    /// The call may start with other arguments, which the person wrote.
    Edit {
        /// The content of the call as the person wants it, as [`Engine::edited_call`](crate::Engine::edited_call) makes it. Empty if the
        /// person saw something else than the interrupt shows: then the answer is refused.
        call: Bytes,
    },
    /// The call must not start.
    Reject {
        /// What the model reads about it. May be empty.
        comment: String,
    },
    /// The answer to the model's question.
    Answer {
        /// The answer: valid JSON, which fits the schema of the question.
        answer: Bytes,
    },
    /// The call took effect, and this is its result.
    Record {
        /// How the call ended.
        status: TaskStatus,
        /// The call's result: valid JSON.
        result: Bytes,
    },
    /// The call may run again.
    Release,
    /// The model is given the information that the outcome is unknown.
    Tell,
    /// The budget that the run waits for gets this limit.
    Raise {
        /// The new limit, in the unit of the budget.
        limit: u64,
    },
    /// The whole run may continue.
    Resume,
    /// The run ends.
    End,
}

/// An accepted answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The number of the journal event that records it. `None` if the same request was answered before, under its key.
    pub number: Option<u64>,
    /// How many more people must approve.
    pub remaining: u8,
}

/// A person's decision to give up an unreadable run.
#[derive(Clone, Debug)]
pub struct Abandon {
    /// The quarantined agent.
    pub agent: AgentKey,
    /// The unreadable run.
    pub run: RunId,
    /// Who decided, for the record.
    pub source: Option<String>,
    /// The same decision under the same key is applied once.
    pub key: Option<RequestKey>,
}

/// Why the engine refused a request. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model does not exist.
    #[error("there is no model {0:?}")]
    UnknownModel(String),
    /// The request names no model, and there is no default.
    #[error("no model is named, and there is no default: the only configured model is \"*\", which passes the name of a request on")]
    NoDefaultModel,
    /// The agent has a cost budget, and the price of its model is not known.
    #[error("the budget cost_usd needs a price of the model {0:?}, which has none; add it to `prices` of the configuration")]
    UnpricedModel(String),
    /// The agent does not exist, and only configured ones can be used.
    #[error("there is no agent {:?}", .agent.as_str())]
    UnknownAgent {
        /// The name in the request.
        agent: AgentName,
        /// The configured agent with the most similar name.
        nearest: Option<AgentName>,
    },
    /// The tool does not exist.
    #[error("there is no tool {0:?}")]
    UnknownTool(ToolName),
    /// The box does not exist.
    #[error("there is no such box")]
    UnknownBox,
    /// The agent has no such run.
    #[error("this agent has no such turn")]
    UnknownRun,
    /// The run never made such a call.
    #[error("the turn has made no such call")]
    UnknownCall,
    /// The server runs the call itself.
    #[error("the server runs this call itself; its result is not to be reported")]
    NotExternal,
    /// Another run has inherited the calls.
    #[error("the calls this would go on with were taken over by another turn")]
    AlreadyInherited(RunId),
    /// A tool server did not list its tools.
    #[error(transparent)]
    ToolServer(ServerError),
    /// The run would be nested too deep.
    #[error("this turn would be {depth} deep; {limit} is the limit")]
    TooDeep {
        /// The depth that the run would have.
        depth: u32,
        /// The largest depth.
        limit: u32,
    },
    /// The key was used for another request.
    #[error("this Idempotency-Key or action_id was used for another request; use a fresh one for a new request")]
    KeyReused,
    /// An action found the agent busy.
    #[error("the agent is busy with another turn")]
    Busy,
    /// The conversation does not exist.
    #[error("there is no such conversation")]
    UnknownConversation,
    /// The agent is the head of a conversation.
    #[error("an agent of this name belongs to a conversation; send responses with that `conversation`")]
    ConversationsAgent,
    /// A run of the conversation is in progress.
    #[error("another response is being made in this conversation; try again when it is over")]
    ConversationBusy,
    /// The conversation has changed since the request was built.
    #[error("the conversation moved on while this was tried; try again")]
    ConversationMoved,
    /// The conversation would have too many items.
    #[error("the conversation has no room for so many more items; begin another one")]
    ConversationFull,
    /// Too many runs are queued for this agent.
    #[error("too many turns are queued for this agent")]
    AgentFull,
    /// Too many runs of this tenant are open.
    #[error("too many turns of this tenant are open")]
    TenantFull,
    /// The tenant would exceed its quota.
    #[error("{0}")]
    OverQuota(OverQuota),
    /// The memory for runs that are not stored is full.
    #[error("no memory is left for what is not to be stored; send it again later, or let it be stored")]
    MemoryFull,
    /// A child run was to be started for a call that is not open any more.
    #[error("the run that asked for this one does not wait for it any more")]
    ParentGone,
    /// The call waits for a person's approval or answer and was never started.
    #[error("this call waits for a person's approval or answer; its result is not taken")]
    CallHeld,
    /// The call is in the pause before a repetition, which no service has claimed.
    #[error("this call is repeated after a pause and was not claimed again; its result is not taken")]
    CallPaused,
    /// The run has no such open interrupt.
    #[error("nothing of this turn waits for a decision")]
    NotParked,
    /// The person saw another item than the one that waits for the decision.
    #[error("the interrupt shows another item than the one that was answered; read it again")]
    NotShown,
    /// The arguments that a person wrote do not fit the tool.
    #[error("the arguments do not fit the schema of the tool at {place}: {reason}")]
    BadArguments {
        /// The place in the arguments, as a JSON pointer.
        place: String,
        /// Why they do not fit.
        reason: String,
    },
    /// The arguments that a person wrote cannot be checked.
    #[error("the schema of the tool cannot be used to check arguments ({0}); approve or reject the call as it is")]
    UnusableSchema(String),
    /// The decision does not fit the cause of the interrupt.
    #[error("this decision does not fit what the turn waits for")]
    UnfitDecision,
    /// The new limit is below what was used.
    #[error("the limit of {} must be at least {limit_min}, because the run has used {used} already", .kind.as_str())]
    RaisedTooLittle {
        /// The budget.
        kind: BudgetKind,
        /// The lowest limit with which the run can continue.
        limit_min: u64,
        /// What was used, or would be with the next step.
        used: u64,
    },
    /// The same person has approved already.
    #[error("you have approved this call already; another person must approve it too")]
    AlreadyApproved,
    /// The agent is not quarantined for this run.
    #[error("the agent is not quarantined for this turn; a turn that can be read is stopped")]
    NotQuarantined,
    /// The run is queued or has ended, so that it takes no instructions.
    #[error("this turn is not active, so that it takes no instructions; enqueue a new turn")]
    NotActive,
    /// The run asks no model again.
    #[error("this turn asks no model again, so that nothing would read the instruction")]
    NotSteerable,
    /// Too many instructions wait for the next iteration.
    #[error("too many instructions wait for the next iteration of this turn; try again when it has read them")]
    TooManyInstructions,
    /// The run never had that epoch.
    #[error("the turn has no such epoch yet")]
    EpochAhead,
    /// An item is too large.
    #[error("an item has {bytes} bytes, {limit} are allowed")]
    ItemTooLarge {
        /// The size of the item.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The box would be too large.
    #[error("the box would hold more than {} items or {} bytes, which is the limit", .limit.items, .limit.bytes)]
    BoxTooLarge {
        /// The largest size.
        limit: ContextSize,
    },
    /// The prompt would be too large.
    #[error("{0}")]
    PromptTooLarge(PromptTooLarge),
    /// The server is draining and takes no new work.
    #[error("the server is about to stop and takes no new work")]
    Draining,
    /// The store failed or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect of the engine; the run is parked with the evidence.
    #[error("internal error; the turn is parked")]
    Internal,
}
