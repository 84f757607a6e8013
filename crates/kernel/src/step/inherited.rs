//! Calls that a run leaves to the next run of its conversation: those that it hands back, and those that it inherits.

use bytes::Bytes;

use super::Draft;
use crate::{
    budget::{self, Spent},
    content::{self, ClientAnswer, ItemKind},
    event::{EndReason, Event},
    ids::CallNumber,
    input::{InheritedCall, RequestedCall},
    manifest::{Manifest, Route},
    policy::Refusal,
};

impl Draft<'_, '_> {
    /// Makes calls of an earlier run of the conversation before the model is asked: the model waits for their results. A call that its
    /// client had to approve is made only if the client did.
    pub(super) fn inherit_calls(&mut self, left: &[InheritedCall]) {
        let requested: Vec<RequestedCall> = left.iter().map(|call| call.requested.clone()).collect();
        let mut planned = self.policy.plan(self.run(), self.manifest, &requested);
        for (plan, call) in planned.iter_mut().zip(left) {
            plan.refused = unapproved(self.manifest, call).or(plan.refused.take()).or_else(|| moved(self.manifest, call));
        }
        let breach = budget::before_calls(self.run(), &self.manifest.budgets, Spent::default(), self.wanted(&planned), self.moment.now);
        if let Some(breach) = breach.filter(|_| !self.manifest.budgets_park) {
            return self.breach(breach);
        }
        let (mut calls, mut items) = (Vec::with_capacity(planned.len()), Vec::with_capacity(planned.len()));
        for (index, (plan, call)) in planned.iter().zip(left).enumerate() {
            let number = self.call_number(index);
            let taken = InheritedCall { requested: plan.requested.clone(), ..call.clone() };
            items.push(self.append_new(ItemKind::Call, content::inherited_call(number, &taken)));
            calls.push(self.planned_call(number, plan));
        }
        let tainted = left.iter().any(|call| call.tainted);
        self.record(Event::CallsInherited { at: self.moment.now, calls: calls.clone(), tainted });
        // The calls are made and wait, unstarted, for a higher limit.
        breach.into_iter().for_each(|breach| self.breach(breach));
        self.begin_calls(&calls, &items, planned);
    }

    /// The content of the calls in a reply that ends the run. Those that the client has to approve are marked.
    pub(super) fn handed_back(&self, calls: &[RequestedCall], reason: &EndReason) -> Vec<Bytes> {
        let planned = self.policy.plan(self.run(), self.manifest, calls);
        let content = |(index, (plan, requested))| {
            let (plan, requested): (&crate::policy::Planned, &RequestedCall) = (plan, requested);
            let number: CallNumber = self.call_number(index);
            let asks = *reason == EndReason::RequiresAction && plan.asks_client(self.manifest);
            if asks { content::asking_call(number, &plan.requested) } else { content::call(number, requested) }
        };
        planned.iter().zip(calls).enumerate().map(content).collect()
    }
}

/// Why an inherited call is not made although this run has a tool of that name: it is another tool than that of the earlier run.
fn moved(manifest: &Manifest, call: &InheritedCall) -> Option<Refusal> {
    let tool = manifest.tool(&call.requested.tool)?;
    let is_other = call.approval.as_ref().is_some_and(|approval| approval.address != manifest.address(&call.requested.tool));
    let message = match (tool.route, is_other) {
        (Route::Client, _) => "the tool of this call is a function of the client now; it was not made. Call the tool again if it is needed",
        (Route::InProcess | Route::External | Route::Child | Route::Person, true) => {
            "the user approved this call for another tool server; it was not made. Call the tool again if it is needed"
        }
        (Route::InProcess | Route::External | Route::Child | Route::Person, false) => return None,
    };
    Some(Refusal { code: "another_tool", message: message.to_owned() })
}

/// Why an inherited call is not made, as far as its client's approval decides that.
fn unapproved(manifest: &Manifest, call: &InheritedCall) -> Option<Refusal> {
    let refusal = |code, message: &str| Some(Refusal { code, message: message.to_owned() });
    match call.approval.as_ref().map(|approval| &approval.answer) {
        Some(ClientAnswer::Approved) => None,
        Some(ClientAnswer::Rejected { reason }) if reason.is_empty() => refusal("rejected", "the user rejected this call; it was not made"),
        Some(ClientAnswer::Rejected { reason }) => {
            Some(Refusal { code: "rejected", message: format!("the user rejected this call; it was not made. They say: {reason}") })
        }
        Some(ClientAnswer::Missing) => refusal("no_approval", "no approval given for this call; it was not made"),
        // The earlier request wanted no approval of it, and this one does.
        None if manifest.needs_client_approval(&call.requested.tool) => refusal(
            "no_approval",
            "this call now needs an approval, which was not asked for; it was not made. Call the tool again to have it asked for",
        ),
        None => None,
    }
}
