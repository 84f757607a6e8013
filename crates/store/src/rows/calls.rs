//! A call as a row, and how it moves on.

use windlass_kernel::{AgentKey, CallNumber, EffectClass, ItemId, Route, RunId, Timestamp, ToolName};
use windlass_ports::CallStatus;

/// A call, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// Whose call.
    pub agent: AgentKey,
    /// Which run.
    pub run: RunId,
    /// Its number.
    pub call: CallNumber,
    /// The lap.
    pub iteration: u32,
    /// What is called.
    pub tool: ToolName,
    /// Who runs it.
    pub route: Route,
    /// What a second start would do.
    pub effect: EffectClass,
    /// How far it is.
    pub status: CallStatus,
    /// When it was made: the order in which it is given out.
    pub created_at: Timestamp,
    /// When its result is given up.
    pub deadline: Timestamp,
    /// Its content.
    pub item: ItemId,
    /// Its result.
    pub result: Option<ItemId>,
    /// Who holds it, or held it last.
    pub worker: Option<String>,
    /// Until when it is held.
    pub lease_until: Option<Timestamp>,
    /// How often it was started by a server or claimed by a worker.
    pub attempt: u32,
    /// The hash of the key of the claim that holds it.
    pub claim_key: Option<String>,
}

impl CallRow {
    /// Moves the call on. A call that the server starts again has one attempt more; claims count the others. No hold outlives a move: its
    /// end and its key go; the last worker stays on record, unless the call waits for another one.
    pub fn move_on(&mut self, moved: CallMove) {
        self.status = moved.status;
        self.result = moved.result.or(self.result);
        self.deadline = moved.deadline.unwrap_or(self.deadline);
        self.lease_until = None;
        self.claim_key = None;
        if moved.status == CallStatus::Started {
            self.attempt += 1;
        }
        if moved.status == CallStatus::Waiting {
            self.worker = None;
        }
    }
}

/// How a call moves on. It is claimed by other means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallMove {
    /// To where.
    pub status: CallStatus,
    /// Its result, if there is one now.
    pub result: Option<ItemId>,
    /// Its new deadline, if it has one.
    pub deadline: Option<Timestamp>,
}

impl CallMove {
    /// This move and a later one as one.
    pub fn then(self, later: CallMove) -> CallMove {
        CallMove { status: later.status, result: later.result.or(self.result), deadline: later.deadline.or(self.deadline) }
    }
}
