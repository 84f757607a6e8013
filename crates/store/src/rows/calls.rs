//! The row of a call, and the changes of its status.

use windlass_kernel::{AgentKey, CallNumber, EffectClass, ItemId, Route, RunId, Timestamp, ToolName};
use windlass_ports::CallStatus;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRow {
    /// The agent of the run.
    pub agent: AgentKey,
    /// The run that made the call.
    pub run: RunId,
    /// The number of the call in that run.
    pub call: CallNumber,
    /// The iteration that made the call.
    pub iteration: u32,
    /// The name of the tool.
    pub tool: ToolName,
    /// Who executes the call.
    pub route: Route,
    /// What repeating the call would do.
    pub effect: EffectClass,
    /// The status.
    pub status: CallStatus,
    /// When it was made. Calls are claimed in this order.
    pub created_at: Timestamp,
    /// When the wait for the result ends.
    pub deadline: Timestamp,
    /// The item with the call's content.
    pub item: ItemId,
    /// The item with the result.
    pub result: Option<ItemId>,
    /// The worker that holds it or held it last.
    pub worker: Option<String>,
    /// The end of that worker's lease.
    pub lease_until: Option<Timestamp>,
    /// How often a server started it or a worker claimed it.
    pub attempt: u32,
    /// The hash of the key of the claim that holds it.
    pub claim_key: Option<String>,
    /// How often it was repeated after a reported failure.
    pub retry: u32,
}

impl CallRow {
    /// Changes the status. A call that the server starts again has one attempt more; claims count the other attempts. Every change ends the
    /// lease: its end and its key are cleared. The last worker stays recorded, unless the call waits for another one.
    pub fn move_on(&mut self, moved: CallMove) {
        self.status = moved.status;
        self.result = moved.result.or(self.result);
        self.deadline = moved.deadline.unwrap_or(self.deadline);
        self.item = moved.item.unwrap_or(self.item);
        self.retry = moved.retry.unwrap_or(self.retry);
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

/// A change of a call's status. Claims are not made with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallMove {
    /// The new status.
    pub status: CallStatus,
    /// The item of the result, if there is one now.
    pub result: Option<ItemId>,
    /// The new deadline, if it changes.
    pub deadline: Option<Timestamp>,
    /// The item with other arguments, if a person changed them.
    pub item: Option<ItemId>,
    /// The number of the repetition that comes next, if the call is repeated.
    pub retry: Option<u32>,
}

impl CallMove {
    /// This change and a later one, merged.
    pub fn then(self, later: CallMove) -> CallMove {
        CallMove {
            status: later.status,
            result: later.result.or(self.result),
            deadline: later.deadline.or(self.deadline),
            item: later.item.or(self.item),
            retry: later.retry.or(self.retry),
        }
    }
}
