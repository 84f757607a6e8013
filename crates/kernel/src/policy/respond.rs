//! `respond`: infer, run the calls, feed the results back, until the model answers.

use serde_json::value::RawValue;

use super::{Delivery, Ending, Move, Next, Planned, Policy, Refusal};
use crate::{
    budget::Breach,
    content::{self, Deliverable, DeliveredField},
    event::{EndReason, TaskStatus},
    input::{Finish, Reply, RequestedCall},
    manifest::{AfterExecution, Manifest, Route, ToolChoice},
    question,
    run::{OpenCall, Origin, Progress, Run},
    submit::{self, SUBMIT_RESULT},
};

pub(super) struct Respond;

impl Policy for Respond {
    fn replied(&self, run: &Run, manifest: &Manifest, reply: &Reply) -> Move {
        if reply.calls.is_empty() {
            let required = submit::required(&manifest.result_fields);
            if !required.is_empty() {
                return Move::Remind(format!("hand in the result by calling {SUBMIT_RESULT}; required fields: {}", required.join(", ")));
            }
            return match reply.finish {
                Finish::Done => finish(TaskStatus::Success, EndReason::Answered, Delivery::Text(reply.text.clone())),
                cut @ (Finish::OutOfTokens | Finish::Filtered) => {
                    finish(TaskStatus::Partial, EndReason::CutShort(cut), Delivery::Text(reply.text.clone()))
                }
            };
        }
        if manifest.choice == ToolChoice::None {
            // The request forbids calls: none is run, and they are stored beside the text.
            return finish(TaskStatus::Success, EndReason::Answered, Delivery::Text(String::new()));
        }
        if reply.calls.iter().any(|call| call.tool == SUBMIT_RESULT) {
            return submit_result(manifest, &reply.calls);
        }
        let planned = self.plan(run, manifest, &reply.calls);
        // One call that the client makes or approves hands the whole iteration back, so that the client never sees a half-executed set of
        // calls.
        let hands_back = |plan: &Planned| plan.asks_client(manifest) || (plan.refused.is_none() && is_clients(manifest, &plan.requested));
        if planned.iter().any(hands_back) {
            return finish(TaskStatus::Success, EndReason::RequiresAction, Delivery::Text(reply.text.clone()));
        }
        Move::Act(planned)
    }

    fn plan(&self, run: &Run, manifest: &Manifest, calls: &[RequestedCall]) -> Vec<Planned> {
        let numbers = u64::from(run.calls_used) + 1..;
        calls.iter().zip(numbers).map(|(call, number)| plan(manifest, call, number)).collect()
    }

    fn next(&self, run: &Run, _manifest: &Manifest) -> Next {
        match run.origin {
            Origin::Action => Next::Finish(deliver_results(run.calls())),
            Origin::Turn if run.calls().iter().any(terminates) => Next::Finish(deliver_results(run.calls())),
            Origin::Turn => Next::Iterate,
        }
    }

    fn breached(&self, breach: Breach) -> Ending {
        Ending {
            status: TaskStatus::Partial,
            reason: EndReason::Budget(breach.kind),
            deliverable: Delivery::Text(format!(
                "stopped by the budget: {} would be {}, {} allowed",
                breach.kind.as_str(),
                breach.observed,
                breach.limit
            )),
        }
    }
}

/// Checks the call that would be the run's `number`-th.
fn plan(manifest: &Manifest, call: &RequestedCall, number: u64) -> Planned {
    let mut requested = call.clone();
    // Some models write nothing where a tool takes no arguments.
    if requested.arguments.trim().is_empty() {
        requested.arguments = "{}".to_owned();
    }
    let refused = refusal(manifest, &requested, number);
    Planned { requested, refused }
}

fn refusal(manifest: &Manifest, call: &RequestedCall, number: u64) -> Option<Refusal> {
    let Some(tool) = manifest.tool(&call.tool) else {
        let known: Vec<&str> = manifest.tools.iter().map(|tool| tool.name.as_str()).collect();
        let message = format!("there is no tool {:?}; there are: {}", call.tool, known.join(", "));
        return Some(Refusal { code: "unknown_tool", message });
    };
    if !manifest.allowed.is_empty() && !manifest.allowed.contains(&tool.name) {
        let allowed: Vec<&str> = manifest.allowed.iter().map(|name| name.as_str()).collect();
        let message = format!("the tool {:?} may not be called now; these may: {}", call.tool, allowed.join(", "));
        return Some(Refusal { code: "tool_not_allowed", message });
    }
    // The client checks the arguments of its own functions, and its calls are not counted.
    if tool.route == Route::Client {
        return None;
    }
    if let Some(max) = manifest.calls_max.filter(|max| number > u64::from(*max)) {
        let message = format!("no more calls: {max} were allowed; answer with what you have");
        return Some(Refusal { code: "max_tool_calls", message });
    }
    let message = match tool.route {
        Route::Person => question::mistake(&call.arguments)?,
        Route::InProcess | Route::External | Route::Client | Route::Child if is_object(&call.arguments) => return None,
        Route::InProcess | Route::External | Route::Client | Route::Child => {
            "the arguments are not a JSON object; call again with one".to_owned()
        }
    };
    Some(Refusal { code: "bad_arguments", message })
}

fn is_clients(manifest: &Manifest, call: &RequestedCall) -> bool {
    manifest.tool(&call.tool).is_some_and(|tool| tool.route == Route::Client)
}

fn is_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(arguments).is_ok()
}

/// The built-in call that ends a run: it must be alone in its iteration and have every required field.
fn submit_result(manifest: &Manifest, calls: &[RequestedCall]) -> Move {
    let refusal = match calls {
        [only] => match submit::deliverable(&manifest.result_fields, &only.arguments) {
            Ok(deliverable) => return finish(TaskStatus::Success, EndReason::Answered, Delivery::Encoded(deliverable)),
            Err(message) => ("bad_result", message),
        },
        _ => ("submit_alone", format!("{SUBMIT_RESULT} must be the only call; nothing was run")),
    };
    let refused =
        |call: &RequestedCall| Planned { requested: call.clone(), refused: Some(Refusal { code: refusal.0, message: refusal.1.clone() }) };
    Move::Act(calls.iter().map(refused).collect())
}

fn terminates(call: &OpenCall) -> bool {
    matches!(call.progress, Progress::Received { after: AfterExecution::Terminate, .. })
}

/// The results are the deliverable: fields with the names of the tools that point at stored items. The status of the run is that of its
/// first terminating result that is no success.
fn deliver_results(calls: &[OpenCall]) -> Ending {
    let ends_run = |call: &&OpenCall| terminates(call) || !calls.iter().any(terminates);
    let received = calls.iter().filter(ends_run).filter_map(|call| match call.progress {
        Progress::Received { item, status, .. } => Some((call, item, status)),
        Progress::Open | Progress::Begun => None,
    });
    let mut status = TaskStatus::Success;
    let mut fields = Vec::new();
    for (call, item, outcome) in received {
        if status == TaskStatus::Success {
            status = outcome;
        }
        fields.push(DeliveredField { name: call.tool.to_string(), value: None, item_id: Some(item) });
    }
    let deliverable = Delivery::Encoded(content::encode(&Deliverable::Fields(fields)));
    Ending { status, reason: EndReason::Terminated, deliverable }
}

fn finish(status: TaskStatus, reason: EndReason, deliverable: Delivery) -> Move {
    Move::Finish(Ending { status, reason, deliverable })
}
