//! The statements about conversations.

use bytes::Bytes;
use windlass_kernel::{BoxId, BoxRange, ConversationId, ItemId, Tenant, Timestamp};
use windlass_ports::Part;

use super::{BoxRow, Outcome};

/// A conversation, whole. Its parts are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationRow {
    /// Its id.
    pub id: ConversationId,
    /// Whose it is.
    pub tenant: Tenant,
    /// When it was begun.
    pub created_at: Timestamp,
    /// What its door wants to know again.
    pub metadata: Bytes,
    /// How often what is said in it has changed.
    pub version: u64,
    /// How many items it has.
    pub items: u32,
    /// What the next run begins after.
    pub tail: Option<BoxRange>,
    /// Items of its parts that were taken out: sixteen bytes each, one after the other.
    pub gone: Bytes,
}

impl ConversationRow {
    /// The items that were taken out.
    pub fn gone_items(&self) -> Vec<ItemId> {
        self.gone.chunks_exact(16).filter_map(ItemId::from_slice).collect()
    }
}

/// What a database can be asked about conversations.
pub trait ConversationReads {
    /// A conversation.
    fn conversation(&self, id: ConversationId) -> Outcome<Option<ConversationRow>>;
    /// A conversation's parts, in their order.
    fn conversation_parts(&self, id: ConversationId) -> Outcome<Vec<Part>>;
}

/// What a database can be told about conversations.
pub trait ConversationRows: ConversationReads {
    /// Stores a conversation.
    fn insert_conversation(&mut self, row: &ConversationRow) -> Outcome<()>;
    /// Replaces what can change of a conversation: all but whose it is and when it was begun.
    fn update_conversation(&mut self, row: &ConversationRow) -> Outcome<()>;
    /// Forgets a conversation with its parts.
    /// These boxes go with it, and the items that stand in them; nothing else may have been made from them.
    fn delete_conversation(&mut self, id: ConversationId, gone: &[BoxId]) -> Outcome<()>;
    /// Stores a part under a number that is higher than those before.
    fn insert_part(&mut self, id: ConversationId, n: u64, part: Part) -> Outcome<()>;
    /// Replaces what stands before a box that nobody has read yet.
    fn bind_box(&mut self, row: &BoxRow) -> Outcome<()>;
}
