//! A policy decides what an iteration does; the kernel does the rest.

mod respond;

use crate::{
    event::{EndReason, TaskStatus},
    input::{Reply, RequestedCall},
    manifest::{AfterExecution, Manifest, PolicyName},
    run::Run,
};

/// What a run does with a reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Move {
    /// Make these calls. A call that may not be made is answered at once with an error the model can read.
    Act(Vec<Planned>),
    /// Give the model an instruction that says what is missing, and ask it again.
    Remind(String),
    /// End, with this deliverable.
    Finish(Ending),
}

/// What a run does once the results of an iteration are in.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Ask the model, in a new iteration.
    Iterate,
    /// End, with this deliverable.
    Finish(Ending),
}

/// A call that the policy has checked.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    /// The call as the model requested it.
    pub requested: RequestedCall,
    /// Why it is not made, if so.
    pub refused: Option<Refusal>,
}

impl Planned {
    /// Whether the call may be made, but only with the client's approval.
    pub fn asks_client(&self, manifest: &Manifest) -> bool {
        self.refused.is_none() && manifest.needs_client_approval(&self.requested.tool)
    }
}

/// Why a call is not made.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub message: String,
}

/// How a run ends.
#[derive(Debug, PartialEq)]
pub(crate) struct Ending {
    pub status: TaskStatus,
    pub reason: EndReason,
    pub deliverable: Delivery,
}

/// The content of a deliverable.
#[derive(Debug, PartialEq)]
pub(crate) enum Delivery {
    /// Plain text.
    Text(String),
    /// Content that is encoded already.
    Encoded(bytes::Bytes),
}

/// The decisions of one kind of loop. Stateless: all that a decision depends on is in its arguments.
pub(crate) trait Policy {
    /// Decides what follows a reply of the model.
    fn replied(&self, run: &Run, manifest: &Manifest, reply: &Reply) -> Move;
    /// Decides which of these calls may be made.
    fn plan(&self, run: &Run, manifest: &Manifest, calls: &[RequestedCall]) -> Vec<Planned>;
    /// Decides what follows when all results of the iteration are in.
    fn next(&self, run: &Run, manifest: &Manifest) -> Next;
    /// How the run ends when a budget is exceeded.
    fn breached(&self, budget: crate::budget::Breach) -> Ending;
}

/// The policy of that name.
pub(crate) fn policy(name: PolicyName) -> &'static dyn Policy {
    match name {
        PolicyName::Respond => &respond::Respond,
    }
}

/// What follows a result: what the result asks for, or else what its tool declares.
pub(crate) fn effective(declared: AfterExecution, wished: Option<AfterExecution>) -> AfterExecution {
    wished.unwrap_or(declared)
}
