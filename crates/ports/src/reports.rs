//! Results from outside the owner of a run.

use windlass_kernel::{AgentKey, NewItem, RunId, Timestamp};

use crate::store::{MessageId, NewMessage};

/// A result from outside the owner.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// Which agent.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// What it says: `tool_result` or `timeout`, with its call.
    pub message: NewMessage,
    /// The content, stored with it.
    pub content: NewItem,
    /// When.
    pub now: Timestamp,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It waits for the owner.
    Recorded(MessageId),
    /// It came too late to matter, and is on record.
    Late(MessageId),
    /// It was there already.
    Duplicate(MessageId),
    /// There is no such run.
    UnknownRun,
}
