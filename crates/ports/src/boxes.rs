//! Boxes that are made of other boxes, and limits on how much content is read or packed at once.

use windlass_kernel::{BoxId, BoxRange, NewItem, Tenant};

use crate::store::RequestKey;

/// A box to be made of ranges of other boxes and of new items.
#[derive(Clone, Debug)]
pub struct NewPack {
    /// The tenant that owns the box.
    pub tenant: Tenant,
    /// The id of the box. If the tenant has a box with this id, the same request was made before, and that box is its answer.
    pub id: BoxId,
    /// The ranges whose items the box repeats, in this order.
    pub from: Vec<BoxRange>,
    /// New items, which follow the repeated ones.
    pub items: Vec<NewItem>,
    /// The key under which the client may repeat the request.
    pub key: Option<RequestKey>,
    /// How much content the box may have.
    pub limit: ContextSize,
}

/// The outcome of a request to pack a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// The box exists now.
    Done(BoxRange),
    /// The tenant does not have one of the boxes.
    UnknownBox,
    /// The box would have more content than the limit allows.
    TooLarge,
    /// The key was used for a different request.
    KeyReused,
}

/// An amount of content: the size of a range, or a limit on what is read or packed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextSize {
    /// The number of items.
    pub items: u64,
    /// The bytes of their content.
    pub bytes: u64,
}

impl ContextSize {
    /// The bytes that an item of a prompt counts for besides its content.
    pub const PROMPT_BYTES_PER_ITEM: u64 = 256;

    /// No limit: for content that was limited when it was stored.
    pub const UNLIMITED: Self = ContextSize { items: u64::MAX, bytes: u64::MAX };

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        ContextSize { items: self.items.saturating_add(other.items), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The bytes that the limit of one prompt counts: the content, and for each item what the item takes in memory besides its content.
    /// Without the second part, millions of short items would pass as little content.
    pub fn prompt_bytes(self) -> u64 {
        self.bytes.saturating_add(self.items.saturating_mul(Self::PROMPT_BYTES_PER_ITEM))
    }

    /// Whether neither the items nor the bytes exceed the limit.
    pub fn is_within(self, limit: Self) -> bool {
        self.items <= limit.items && self.bytes <= limit.bytes
    }
}
