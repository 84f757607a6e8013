//! A request for a run, and what a store makes of it.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{AgentKey, AgentName, BoxId, BoxRange, CallerSpan, Epoch, Event, Manifest, NewItem, Run, RunId, Seq, Timestamp};

use crate::{
    conversations::InConversation,
    open_requests::RequestHash,
    store::{Commit, MessageId, NodeId},
    words::MessageKind,
};

/// A run to be recorded.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub run: RunId,
    /// The head it runs under: the agent's own, a conversation's, or one that is made for this run alone.
    pub agent: AgentKey,
    /// The name of the agent whose settings it has. `None` for a run without a named agent.
    pub agent_name: Option<AgentName>,
    /// A key under which the same request finds this run again.
    pub dedupe: Option<String>,
    /// The create request that starts it, if a repetition of that request may join it. It is open from here on, at `node`.
    pub request: Option<RequestHash>,
    /// Where it comes from.
    pub lineage: Lineage,
    /// What it may do.
    pub manifest: Arc<PinnedManifest>,
    /// What its door wants to know again, opaque to everybody else.
    pub note: Option<Bytes>,
    /// How long after its end it is erased; kept if there is no time.
    pub erase_ms: Option<u64>,
    /// The earlier run whose calls it takes over. Only one run ever does.
    pub takes: Option<RunId>,
    /// The earlier run that waited for its client, and that this one goes on from. When this one is over, that one need not wait.
    pub follows: Option<RunId>,
    /// The conversation it is part of, whose agent it has. It begins after what was said there, and what it says is said there.
    pub conversation: Option<InConversation>,
    /// What it reads.
    pub context: NewBox,
    /// Where it writes: a box of its own, whose parent is the context.
    pub output: BoxId,
    /// Number 0 of its journal.
    pub accepted: Event,
    /// The run after `accepted`.
    pub state: Run,
    /// `turn` or `ui_action`. An action is refused by a busy agent, a turn queues.
    pub kind: MessageKind,
    /// What entering it does, if this node has room to enter.
    pub enter: Option<Commit>,
    /// Which node asks.
    pub node: NodeId,
    /// How much may wait.
    pub admission: Admission,
    /// When.
    pub now: Timestamp,
}

/// Where a run comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The trace it belongs to: sixteen bytes, as in W3C trace context.
    pub trace: [u8; 16],
    /// The span of the request, if it named one. Stores keep it in the journal's first event, not beside the other fields.
    pub caller: Option<CallerSpan>,
    /// The step that asked for it.
    pub parent_step: Option<String>,
    /// Who asked: the token's name.
    pub source: Option<String>,
    /// How many runs asked for one another before it; the first one, which somebody outside asked for, has none.
    pub depth: u32,
}

/// A manifest with the hash it is stored under.
#[derive(Clone, Debug)]
pub struct PinnedManifest {
    /// SHA-256 of `body`.
    pub hash: [u8; 32],
    /// The stored bytes.
    pub body: Bytes,
    /// What they say.
    pub manifest: Arc<Manifest>,
}

/// A box to be made.
#[derive(Clone, Debug)]
pub struct NewBox {
    /// Its id.
    pub id: BoxId,
    /// What stands before its own items.
    pub parent: Option<BoxRange>,
    /// Its own items.
    pub items: Vec<NewItem>,
}

/// How much may wait before a request is refused.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Queued runs of one agent.
    pub queued_per_agent_max: u32,
    /// Runs of one tenant that have not ended.
    pub open_per_tenant_max: u32,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// The agent was idle; the run is entered and this node owns it.
    Entered {
        /// Its inbox row.
        message: MessageId,
        /// The fence.
        epoch: Epoch,
        /// The head's count after this commit.
        seq: Seq,
    },
    /// The agent was idle and is leased; no worker has entered.
    Dispatched {
        /// Its inbox row.
        message: MessageId,
        /// The fence.
        epoch: Epoch,
    },
    /// The agent is busy; the run waits its turn.
    Queued {
        /// Its inbox row.
        message: MessageId,
    },
    /// The key was used: this is the first run.
    Duplicate {
        /// The first run.
        run: RunId,
        /// Its agent.
        agent: AgentKey,
        /// Its inbox row.
        message: MessageId,
        /// Its epoch, once it has one.
        epoch: Option<Epoch>,
        /// Whether it still waits its turn.
        queued: bool,
    },
    /// An action found the agent busy, or a run that may not wait its conversation. Nothing was stored.
    Busy,
    /// There is no such conversation. Nothing was stored.
    UnknownConversation,
    /// The conversation is not as it was found. Nothing was stored.
    ConversationMoved,
    /// Too many runs wait for this agent. Nothing was stored.
    AgentFull,
    /// Too many runs of this tenant are open. Nothing was stored.
    TenantFull,
    /// There is no memory left for runs that are not to be stored. Nothing was.
    MemoryFull,
    /// The context box is not there.
    UnknownBox,
    /// Another run has taken over the calls. Nothing was stored.
    TakenBefore {
        /// Which.
        by: RunId,
    },
}
