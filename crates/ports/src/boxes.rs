//! Boxes that are packed, and how much content may be read or packed together.

use windlass_kernel::{BoxId, BoxRange, NewItem, Tenant};

use crate::store::RequestKey;

/// A box to be made out of others and of new items.
#[derive(Clone, Debug)]
pub struct NewPack {
    /// Whose box it is.
    pub tenant: Tenant,
    /// Its id. A box of the tenant that has this id is the answer to the same request made before.
    pub id: BoxId,
    /// What it repeats, in this order.
    pub from: Vec<BoxRange>,
    /// What stands behind that.
    pub items: Vec<NewItem>,
    /// Under which key the client may repeat the request.
    pub key: Option<RequestKey>,
    /// How much the box may hold.
    pub limit: ContextSize,
}

/// What became of a request to pack a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// The box is there.
    Done(BoxRange),
    /// The tenant lacks one of the boxes.
    UnknownBox,
    /// The box would hold more than the limit allows.
    TooLarge,
    /// The key was used for another request.
    KeyReused,
}

/// An amount of content: how much a range stands for, or how much may be read or packed together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSize {
    /// Items.
    pub items: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

impl ContextSize {
    /// The bytes that an item of a prompt counts for besides its content.
    pub const PROMPT_BYTES_PER_ITEM: u64 = 256;

    /// No limit: for content that was limited when it was stored.
    pub const UNLIMITED: Self = ContextSize { items: u64::MAX, bytes: u64::MAX };

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        ContextSize { items: self.items.saturating_add(other.items), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The bytes that the limit of one prompt counts: the content, and for each item what the item takes in memory besides its content.
    /// Without the second part, millions of short items would pass as little content.
    pub fn prompt_bytes(self) -> u64 {
        self.bytes.saturating_add(self.items.saturating_mul(Self::PROMPT_BYTES_PER_ITEM))
    }

    /// Whether neither items nor bytes are more than a limit allows.
    pub fn is_within(self, limit: Self) -> bool {
        self.items <= limit.items && self.bytes <= limit.bytes
    }
}
