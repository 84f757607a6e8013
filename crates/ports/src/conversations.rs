//! Conversations: lists of items that several runs extend, one after the other.
//!
//! A conversation has no content of its own. It records the box range that the next run continues from, and the runs and boxes that the
//! range came from. All its runs have one agent, whose head is leased to one run at a time: that is the lock of the conversation.

use bytes::Bytes;
use windlass_kernel::{AgentKey, AgentName, BoxId, BoxRange, ConversationId, ItemId, NewItem, RunId, Tenant, Timestamp};

/// The agent of a conversation's runs.
pub fn conversation_agent(tenant: &Tenant, id: ConversationId) -> AgentKey {
    AgentKey { tenant: tenant.clone(), agent: AgentName::from(id.to_string().as_str()) }
}

/// The conversation of a new run, in the state in which the request found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InConversation {
    /// The id of the conversation.
    pub id: ConversationId,
    /// The version of the conversation that the request was built on.
    pub version: u64,
    /// Whether a run of the conversation was active then. The new run has to wait in that case, and its context is only known when it
    /// begins.
    pub is_busy: bool,
    /// Whether the new run may wait.
    pub may_wait: bool,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationView {
    /// The id of the conversation.
    pub id: ConversationId,
    /// When the conversation was created.
    pub created_at: Timestamp,
    /// Data of the door, which the store does not interpret.
    pub metadata: Bytes,
    /// A number that rises with every change of the items.
    pub version: u64,
    /// The number of items in the conversation.
    pub items: u32,
    /// The range that the next run continues from. `None` while the conversation is empty.
    pub tail: Option<BoxRange>,
    /// Items that were removed from the conversation.
    pub gone: Vec<ItemId>,
    /// Whether a run of the conversation has not ended.
    pub is_busy: bool,
}

/// The source of a part of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The input and the output of a run.
    Run(RunId),
    /// Items that a client added.
    Items(BoxId),
}

/// A change of a conversation that is not made by a run.
#[derive(Clone, Debug)]
pub enum ConversationChange {
    /// The conversation is created, with these items.
    Begin {
        /// Data of the door, which the store does not interpret.
        metadata: Bytes,
        /// The id of the box that gets the items.
        id: BoxId,
        /// The items.
        items: Vec<NewItem>,
    },
    /// The data of the door is replaced.
    Describe {
        /// The new data.
        metadata: Bytes,
    },
    /// Items are added.
    Add {
        /// The id for a box that gets the items, if they do not fit into an existing one.
        id: BoxId,
        /// The items.
        items: Vec<NewItem>,
        /// The number of items that the conversation may have afterwards.
        items_max: u32,
    },
    /// Items are removed: later runs do not read them.
    Remove {
        /// The id for a box that gets the items that remain.
        id: BoxId,
        /// The removed items.
        items: Vec<ItemId>,
    },
    /// The conversation is deleted. Its runs stay.
    End,
}

/// The outcome of a change of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversed {
    /// The change is stored, now or by an earlier request.
    Done(ConversationView),
    /// There is no conversation with this id.
    Unknown,
    /// A run of the conversation has not ended. Nothing has changed.
    Busy,
    /// The conversation would have too many items. Nothing has changed.
    Full,
}
