//! What each writing verb does, the same for all databases.
//!
//! A verb first reads and decides, then changes the head under its guard, then makes the other writes. After an error in the middle the
//! caller rolls its transaction back.

mod abandon;
mod append_deltas;
mod boxes;
mod claims;
mod commit;
mod conversations;
mod enqueue;
mod erase;
mod heads;
mod interrupts;
mod report;

pub(crate) use abandon::abandon;
pub(crate) use append_deltas::{append_deltas, check_chunks, check_same, join_deltas};
pub(crate) use boxes::{chain, pack, range_size};
pub(crate) use claims::{claim_calls, release_calls, renew_calls};
pub(crate) use commit::{commit, withdraw};
pub(crate) use conversations::{conversation, conversation_parts, converse};
pub(crate) use enqueue::enqueue;
pub(crate) use erase::{FOLLOW_UP_MS, erase, is_erased};
pub(crate) use heads::{is_own_head, may_be_claimed, quarantine, refuse};
pub(crate) use report::report;
