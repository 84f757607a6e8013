//! A policy decides what a lap does; the kernel does the rest.

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
    /// Tell the model what is missing, and ask it once more.
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

/// A call the policy has looked at.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    /// What the model asked for.
    pub requested: RequestedCall,
    /// Why it is not made, if so.
    pub refused: Option<Refusal>,
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

/// What the deliverable says.
#[derive(Debug, PartialEq)]
pub(crate) enum Delivery {
    /// Words.
    Text(String),
    /// Content that is encoded already.
    Encoded(bytes::Bytes),
}

/// One loop's way of deciding. Stateless: everything it may look at is in its arguments.
pub(crate) trait Policy {
    /// The model answered.
    fn replied(&self, run: &Run, manifest: &Manifest, reply: &Reply) -> Move;
    /// Which of these calls may be made.
    fn plan(&self, run: &Run, manifest: &Manifest, calls: &[RequestedCall]) -> Vec<Planned>;
    /// All results of the lap are in.
    fn next(&self, run: &Run, manifest: &Manifest) -> Next;
    /// What the end looks like when a budget is used up.
    fn breached(&self, budget: crate::budget::Breach) -> Ending;
}

/// The policy of that name.
pub(crate) fn policy(name: PolicyName) -> &'static dyn Policy {
    match name {
        PolicyName::Respond => &respond::Respond,
    }
}

/// What a tool's declared way becomes when a result asks for another.
pub(crate) fn effective(declared: AfterExecution, wished: Option<AfterExecution>) -> AfterExecution {
    wished.unwrap_or(declared)
}
