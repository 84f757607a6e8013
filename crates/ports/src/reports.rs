//! Results of calls and instructions that do not come from the owner of the run.

use windlass_kernel::{AgentKey, NewItem, RunId, Timestamp};

use crate::store::{MessageId, NewMessage};

/// A report from outside the owner of the run: the result of a call, its deadline, or an instruction for the active run.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// The agent whose inbox gets the report.
    pub agent: AgentKey,
    /// The run that the report is for.
    pub run: RunId,
    /// The inbox message: `tool_result` or `timeout`, with the number of its call, or `steer`.
    pub message: NewMessage,
    /// The content of the result or the instruction, which is stored with the message.
    pub content: NewItem,
    /// The time of the report.
    pub now: Timestamp,
}

/// The outcome of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The report waits in the inbox for the owner.
    Recorded(MessageId),
    /// The report came too late to have an effect. It is stored all the same.
    Late(MessageId),
    /// The same report is stored already.
    Duplicate(MessageId),
    /// The run does not exist.
    UnknownRun,
    /// The run is not active, so that it takes no instructions. Nothing was stored.
    NotActive,
}
