//! Conversations: lists of what was said that several runs go on from, one after the other.
//!
//! A conversation owns no content of its own: it knows the box that the next run begins after, and which runs and boxes that came from.
//! Its runs have one agent, so that the head which leases one of them at a time is the lock.

use bytes::Bytes;
use windlass_kernel::{AgentKey, AgentName, BoxId, BoxRange, ConversationId, ItemId, NewItem, RunId, Tenant, Timestamp};

/// The agent of a conversation's runs.
pub fn conversation_agent(tenant: &Tenant, id: ConversationId) -> AgentKey {
    AgentKey { tenant: tenant.clone(), agent: AgentName::from(id.to_string().as_str()) }
}

/// A run's place in a conversation, as whoever asks for it found the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InConversation {
    /// Which.
    pub id: ConversationId,
    /// How far the conversation was.
    pub version: u64,
    /// Whether a run of it was going on. Then this one has to wait, and what stands before it is known when it begins.
    pub is_busy: bool,
    /// Whether it may wait.
    pub may_wait: bool,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationView {
    /// Its id.
    pub id: ConversationId,
    /// When it was begun.
    pub created_at: Timestamp,
    /// What its door wants to know again.
    pub metadata: Bytes,
    /// How often what is said in it has changed.
    pub version: u64,
    /// How many items it has.
    pub items: u32,
    /// What the next run begins after; nothing if nothing was said.
    pub tail: Option<BoxRange>,
    /// Items of its parts that were taken out.
    pub gone: Vec<ItemId>,
    /// Whether a run of it is going on.
    pub is_busy: bool,
}

/// Where a stretch of a conversation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What a run was given and what it said.
    Run(RunId),
    /// What somebody put in.
    Items(BoxId),
}

/// What becomes of a conversation, beside what its runs do.
#[derive(Clone, Debug)]
pub enum ConversationChange {
    /// It begins, with these items.
    Begin {
        /// What its door wants to know again.
        metadata: Bytes,
        /// The box for the items.
        id: BoxId,
        /// The items.
        items: Vec<NewItem>,
    },
    /// Its door wants to know something else again.
    Describe {
        /// What.
        metadata: Bytes,
    },
    /// Something is put in.
    Add {
        /// The box for the items, if there is none they can stand in.
        id: BoxId,
        /// The items.
        items: Vec<NewItem>,
        /// How many items it may have then.
        items_max: u32,
    },
    /// Items are taken out: nobody goes on from them any more.
    Remove {
        /// The box for what stays.
        id: BoxId,
        /// Which items.
        items: Vec<ItemId>,
    },
    /// It is forgotten. Its runs are not.
    End,
}

/// What became of a wish to change a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversed {
    /// It is as it was wished to be.
    Done(ConversationView),
    /// There is none of that id.
    Unknown,
    /// A run of it is going on. Nothing has changed.
    Busy,
    /// There is no room for so many items. Nothing has changed.
    Full,
}
