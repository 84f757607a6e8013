//! A request for a run, and the outcome of recording it.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{AgentKey, AgentName, BoxId, BoxRange, CallerSpan, Epoch, Event, Manifest, NewItem, Run, RunId, Seq, Timestamp};

use crate::{
    conversations::InConversation,
    names::MessageKind,
    open_requests::RequestHash,
    store::{Commit, MessageId, NodeId},
};

/// A run to be recorded.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// The id of the run.
    pub run: RunId,
    /// The head that the run belongs to: that of an agent, of a conversation, or one that is made for this run alone.
    pub agent: AgentKey,
    /// The name of the agent whose settings it has. `None` for a run without a named agent.
    pub agent_name: Option<AgentName>,
    /// The idempotency key: a repeated request with this key finds this run.
    pub dedupe: Option<String>,
    /// The hash of the create request that starts the run, if a repetition of it may join the run. The request is open from here on, at
    /// `node`.
    pub request: Option<RequestHash>,
    /// The run's place in the execution graph.
    pub lineage: Lineage,
    /// What the run may do.
    pub manifest: Arc<PinnedManifest>,
    /// Data of the door, which the store does not interpret.
    pub note: Option<Bytes>,
    /// How long after its end the run is erased, in milliseconds. `None` if it is kept.
    pub erase_ms: Option<u64>,
    /// The earlier run whose calls this one makes. A run's calls are only inherited once.
    pub takes: Option<RunId>,
    /// The earlier run that waits for its client, and that this one continues. The earlier run stops waiting when this one ends.
    pub follows: Option<RunId>,
    /// The conversation that the run belongs to, whose agent it has. The run continues from the conversation's items and adds its own.
    pub conversation: Option<InConversation>,
    /// The box that the run reads.
    pub context: NewBox,
    /// The box that the run writes: a new one, whose parent is the context.
    pub output: BoxId,
    /// Event number 0 of the journal.
    pub accepted: Event,
    /// The state of the run after `accepted`.
    pub state: Run,
    /// `turn` or `ui_action`. A busy agent refuses an action and queues a turn.
    pub kind: MessageKind,
    /// The commit that enters the run, if this node has room to own it.
    pub enter: Option<Commit>,
    /// The node that makes the request.
    pub node: NodeId,
    /// How many runs may wait.
    pub admission: Admission,
    /// The time of the request.
    pub now: Timestamp,
}

/// The place of a run in the execution graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The trace it belongs to: sixteen bytes, as in W3C trace context.
    pub trace: [u8; 16],
    /// The span of the request, if it named one. Stores keep it in the journal's first event, not beside the other fields.
    pub caller: Option<CallerSpan>,
    /// The step of another run that asked for this one.
    pub parent_step: Option<String>,
    /// The name of the token with which the request came.
    pub source: Option<String>,
    /// The number of runs above this one in the graph. It is 0 for a run that a client asked for.
    pub depth: u32,
}

/// A manifest with the hash it is stored under.
#[derive(Clone, Debug)]
pub struct PinnedManifest {
    /// SHA-256 of `body`.
    pub hash: [u8; 32],
    /// The stored bytes.
    pub body: Bytes,
    /// The manifest that the bytes encode.
    pub manifest: Arc<Manifest>,
}

/// A box to be made.
#[derive(Clone, Debug)]
pub struct NewBox {
    /// The id of the box.
    pub id: BoxId,
    /// The range that precedes the box's own items.
    pub parent: Option<BoxRange>,
    /// The box's own items.
    pub items: Vec<NewItem>,
}

/// How many runs may wait before a request is refused.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Queued runs of one agent.
    pub queued_per_agent_max: u32,
    /// Runs of one tenant that have not ended.
    pub open_per_tenant_max: u32,
}

/// The outcome of a request for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The agent was idle. The run is entered, and this node owns it.
    Entered {
        /// The run's inbox row.
        message: MessageId,
        /// The epoch of the head.
        epoch: Epoch,
        /// The head's sequence number after this commit.
        seq: Seq,
    },
    /// The agent was idle and is leased to the run. No worker has entered it.
    Dispatched {
        /// The run's inbox row.
        message: MessageId,
        /// The epoch of the head.
        epoch: Epoch,
    },
    /// The agent is busy; the run is queued.
    Queued {
        /// The run's inbox row.
        message: MessageId,
    },
    /// The idempotency key was used before. This is the run of the first request.
    Duplicate {
        /// The first run.
        run: RunId,
        /// Its agent.
        agent: AgentKey,
        /// The run's inbox row.
        message: MessageId,
        /// Its epoch, once it has one.
        epoch: Option<Epoch>,
        /// Whether the run is still queued.
        queued: bool,
    },
    /// An action found the agent busy, or a run that may not wait found its conversation busy. Nothing was stored.
    Busy,
    /// The conversation does not exist. Nothing was stored.
    UnknownConversation,
    /// The conversation has changed since the request read it. Nothing was stored.
    ConversationMoved,
    /// Too many runs wait for this agent. Nothing was stored.
    AgentFull,
    /// Too many runs of this tenant are open. Nothing was stored.
    TenantFull,
    /// The memory for runs that are not stored is full. Nothing was stored.
    MemoryFull,
    /// The context box does not exist.
    UnknownBox,
    /// The run is a child run, and the call that it answers is not open any more. Nothing was stored.
    ParentGone,
    /// Another run has inherited the calls already. Nothing was stored.
    AlreadyInherited {
        /// The run that inherited them.
        by: RunId,
    },
}
