//! The transcript: one line for each line of the script.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use windlass_kernel::{
    AfterExecution, CallNumber, Effect, Event, HeadStatus, Interrupt, ItemId, ItemKind, ModelCallId, NewItem, OpenCall, Phase, Purpose,
    Run, Transition, newly_outstanding, outstanding,
};

use super::{driver::Driver, script::Question};

/// The transcript so far, and the label of each item.
#[derive(Default)]
pub struct Transcript {
    pub text: String,
    names: BTreeMap<ItemId, String>,
}

impl Transcript {
    /// Labels a stored item. A second item with the same label gets an apostrophe behind it.
    pub fn name(&mut self, item: ItemId, label: String) {
        let taken = self.names.values().filter(|name| name.trim_end_matches('\'') == label).count();
        self.names.insert(item, label + &"'".repeat(taken));
    }

    /// Adds a line that did not touch the run.
    pub fn note(&mut self, line: &str, answer: &str) {
        self.text += &format!("{line}{}{answer}\n", if answer.is_empty() { "" } else { " " });
    }

    /// Adds a line that gave the run an input.
    pub fn happened(&mut self, line: &str, before: &Run, made: &Transition) {
        for item in &made.items {
            let name = self.describe(item);
            self.names.insert(item.id, name);
        }
        let events: Vec<String> = made.events.iter().map(event).collect();
        self.text += &format!("{line} -> {}", events.join(", "));
        let owed = newly_outstanding(before, &made.run);
        if !owed.is_empty() {
            self.text += &format!(" [{}]", effects(&owed));
        }
        for item in &made.appended {
            let name = self.names.get(item).map_or("an unknown item", String::as_str);
            self.text += &format!(" +{name}");
        }
        if !made.stops.is_empty() {
            self.text += &format!(" stops {}", made.stops.len());
        }
        if let Some(report) = &made.report {
            let content = made.items.iter().find(|item| item.id == report.item).map(|item| String::from_utf8_lossy(&item.content));
            self.text += &format!(" reports {} of {} tokens", content.unwrap_or_default(), report.below.tokens());
        }
        self.text += &format!(" = {}\n", status(&made.run));
    }

    fn describe(&self, item: &NewItem) -> String {
        let content = || serde_json::from_slice::<Value>(&item.content).expect("items are JSON");
        match item.kind {
            ItemKind::Thought => match content()["reasoning"][0]["summary"][0].as_str() {
                Some(thought) => format!("reasoning {thought}"),
                None => format!("thought {}", content()["text"]),
            },
            ItemKind::Call => {
                let content = content();
                let arguments = content["arguments"].as_str().filter(|arguments| *arguments != "{}");
                let asks = if content["asks_client"] == true { " asks the client" } else { "" };
                format!("call {}{}{asks}", content["call"], arguments.map_or(String::new(), |arguments| format!("({arguments})")))
            }
            ItemKind::Result => {
                let content = content();
                if let Some(text) = content["result"].as_str() {
                    return format!("result {} {text}", content["call"]);
                }
                let error = &content["result"]["error"];
                format!(
                    "result {} {}: {}",
                    content["call"],
                    error["code"].as_str().unwrap_or("?"),
                    error["message"].as_str().unwrap_or("?")
                )
            }
            ItemKind::Deliverable => {
                let text = String::from_utf8(item.content.to_vec()).expect("items are UTF-8");
                let short = |name: &str| name.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
                let named = self.names.iter().fold(text, |text, (id, name)| text.replace(&id.to_string(), &short(name)));
                format!("deliverable {named}")
            }
            ItemKind::Instruction => match content().get("summary") {
                Some(summary) => format!("summary {summary}"),
                None => format!("reminder {}", content()["text"]),
            },
            ItemKind::ResultFields => panic!("the kernel made a {}", item.kind.as_str()),
        }
    }
}

/// The run's answer to a question of the script.
pub fn answer(question: Question, driver: &Driver) -> String {
    match question {
        Question::Owed => effects(&outstanding(&driver.run)),
        Question::Expired => list(driver.run.expired(driver.now).iter().map(|call| call.0.to_string())),
        Question::Usage => {
            let Run { usage, lost, .. } = &driver.run;
            let lost = if *lost > 0 { format!(", {lost} lost") } else { String::new() };
            format!("{}+{}{lost}", usage.tokens_in, usage.tokens_out)
        }
        Question::Head => driver.run.head_status().as_str().to_owned(),
        Question::Iteration => driver.run.iteration.to_string(),
    }
}

fn event(event: &Event) -> String {
    let detail = match event {
        Event::Reasoned { chunks, .. } => format!("after {} signs", chunks.0.len()),
        Event::Leased | Event::Heartbeat | Event::Unparked | Event::OwnerChanged { .. } | Event::Steered { .. } => {
            return event.kind().to_owned();
        }
        Event::Accepted { origin, .. } => spell(origin),
        Event::IterationStarted { iteration, .. } | Event::Compacting { iteration } | Event::Compacted { iteration, .. } => {
            iteration.to_string()
        }
        Event::ActionStarted { call, .. } => numbered(call),
        Event::AttemptFailed { code, .. } => code.to_string(),
        Event::Replied { calls, .. } if calls.is_empty() => return event.kind().to_owned(),
        Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } => list(calls.iter().map(numbered)),
        Event::Cut { resumes: true, .. } => "resumes".to_owned(),
        Event::Cut { resumes: false, .. } => "ends".to_owned(),
        Event::Reported { call, status, after, .. } => format!("{} {}{}", call.0, status.as_str(), ending(*after)),
        Event::LeaseEnded { call } | Event::ChildBegun { call } | Event::CallParked { call } => call.0.to_string(),
        Event::CallRetried { call, retry, at, .. } => format!("{} for the {retry}. time at {}", call.0, at.0),
        Event::Interrupted(interrupt) => interrupted(interrupt),
        Event::Approved { by, .. } => format!("by {by}"),
        Event::Edited { call, by, .. } => format!("{} by {by}", call.0),
        Event::Resolved { verdict, by, deadline, raised, .. } => {
            let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            let raised = raised.map_or(String::new(), |raised| format!(" {} to {}", raised.kind.as_str(), raised.limit));
            format!("{}{by}{raised}{}", verdict.as_str(), deadline.map_or(String::new(), |at| format!(" until {}", at.0)))
        }
        Event::CallReleased { call, deadline } => format!("{} until {}", call.0, deadline.0),
        Event::Parked { reason } => spell(reason),
        Event::Ignored { input, call, reason } => format!("{}{}: {}", spell(input), call.map_or(String::new(), about), spell(reason)),
        Event::BudgetBreached { breach } => format!("{} {} of {}", breach.kind.as_str(), breach.observed, breach.limit),
        Event::Ended { status, reason } => format!("{} {}", status.as_str(), spell(reason)),
    };
    format!("{}({detail})", event.kind())
}

fn numbered(call: &OpenCall) -> String {
    format!("{} {}", call.call.0, call.tool)
}

fn interrupted(interrupt: &Interrupt) -> String {
    let call = interrupt.call.map_or(String::new(), about);
    let until = interrupt.until.map_or(String::new(), |at| format!(" until {}", at.0));
    let needs = if interrupt.needs > 1 { format!(" needs {}", interrupt.needs) } else { String::new() };
    format!("{}{call}{until}{needs}", interrupt.cause.as_str())
}

fn about(call: CallNumber) -> String {
    format!(" {}", call.0)
}

fn ending(after: AfterExecution) -> &'static str {
    match after {
        AfterExecution::Suspend => "",
        AfterExecution::Terminate => " terminate",
    }
}

fn effects(owed: &[Effect]) -> String {
    list(owed.iter().map(|effect| match effect {
        Effect::CallModel { id: ModelCallId { iteration, purpose, attempt }, not_before } => {
            let what = if *purpose == Purpose::Summary { " summary" } else { "" };
            let again = if *attempt > 1 { format!(" try {attempt}") } else { String::new() };
            format!("call_model {iteration}{what}{again}{}", not_before.map_or(String::new(), |at| format!(" at {}", at.0)))
        }
        Effect::StartTool { call } => format!("start_tool {}", call.0),
        Effect::StartChild { call } => format!("start_child {}", call.0),
    }))
}

fn status(run: &Run) -> String {
    let mut text = run.head_status().as_str().to_owned();
    if let Phase::Waiting { .. } = run.phase {
        let until = run.resume_deadline().map_or(" without deadline".to_owned(), |at| format!(" until {}", at.0));
        text += &format!(", waits for {}{until}", run.waiting_count());
    }
    if let Some(hold) = run.hold() {
        text += &format!(", held by {}", hold.cause.as_str());
    }
    assert_eq!(run.head_status() == HeadStatus::Idle, run.has_ended(), "idle is what an ended run leaves behind");
    text
}

fn list(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
}

/// An enum in the spelling of the journal: `stopped`, `budget calls`.
fn spell(value: &impl Serialize) -> String {
    match serde_json::to_value(value).expect("plain data") {
        Value::String(word) => word,
        Value::Object(map) => list(map.iter().map(|(key, value)| format!("{key} {}", value.as_str().unwrap_or("?")))),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => other.to_string(),
    }
}
