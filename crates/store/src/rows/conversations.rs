//! The statements about conversations.

use bytes::Bytes;
use windlass_kernel::{BoxId, BoxRange, ConversationId, ItemId, Tenant, Timestamp};
use windlass_ports::Part;

use super::{BoxRow, Result};

/// A conversation. Its parts are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationRow {
    /// The id of the conversation.
    pub id: ConversationId,
    /// The tenant that owns it.
    pub tenant: Tenant,
    /// When it was created.
    pub created_at: Timestamp,
    /// Data of the door, which the store does not interpret.
    pub metadata: Bytes,
    /// A number that rises with every change of the items.
    pub version: u64,
    /// The number of its items.
    pub items: u32,
    /// The range that the next run continues from.
    pub tail: Option<BoxRange>,
    /// Removed items: sixteen bytes for each.
    pub gone: Bytes,
}

impl ConversationRow {
    /// The ids of the removed items.
    pub fn gone_items(&self) -> Vec<ItemId> {
        self.gone.chunks_exact(16).filter_map(ItemId::from_slice).collect()
    }
}

/// The reads of conversations.
pub trait ConversationReads {
    /// A conversation.
    fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>>;
    /// The parts of a conversation, in their order.
    fn conversation_parts(&self, id: ConversationId) -> Result<Vec<Part>>;
}

/// The writes of conversations.
pub trait ConversationRows: ConversationReads {
    /// Stores a conversation.
    fn insert_conversation(&mut self, row: &ConversationRow) -> Result<()>;
    /// Replaces all columns of a conversation that can change: not its tenant and not its creation time.
    fn update_conversation(&mut self, row: &ConversationRow) -> Result<()>;
    /// Deletes a conversation with its parts, the boxes `gone`, and the items in these boxes. Nothing else may have been made from these
    /// boxes.
    fn delete_conversation(&mut self, id: ConversationId, gone: &[BoxId]) -> Result<()>;
    /// Stores a part under a number that is higher than all before.
    fn insert_part(&mut self, id: ConversationId, n: u64, part: Part) -> Result<()>;
    /// Replaces the parent of a box that no run has read yet.
    fn bind_box(&mut self, row: &BoxRow) -> Result<()>;
}
