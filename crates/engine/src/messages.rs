//! The commands and events of the agents API, as a projection of the journal.
//!
//! Nothing is stored twice: the events that a reader of `…/events` gets and the messages published from the outbox are both made here
//! from journal entries. Their ids are the same however often they are made.

use serde_json::{Value, json};
use uuid::Uuid;
use windlass_kernel::{AgentName, CallKey, CallNumber, Cause, Event, HeadStatus, Interrupt, OpenCall, Route, RunId, TaskStatus};
use windlass_ports::{JournalEntry, Published, RunView, Subject};

/// The id of an iteration, in the format of the agents API.
pub fn step_id(run: RunId, iteration: u32) -> String {
    format!("step_{}_{iteration}", run.0.simple())
}

/// The run whose iteration has that id. `None` if the id is not in our format.
pub fn run_of_step(step: &str) -> Option<RunId> {
    let (run, iteration) = step.strip_prefix("step_")?.split_once('_')?;
    let is_iteration = iteration.parse::<u32>().is_ok() && run.len() == 32;
    Uuid::try_parse(run).ok().filter(|_| is_iteration).map(RunId)
}

/// The messages that one journal entry causes: doorbells and tool commands first, then step, task and state events.
pub fn project(run: &RunView, entry: &JournalEntry) -> Vec<Published> {
    let mut made = Projection { run, entry, messages: Vec::new() };
    made.event();
    made.messages
}

struct Projection<'a> {
    run: &'a RunView,
    entry: &'a JournalEntry,
    messages: Vec<Published>,
}

impl Projection<'_> {
    fn event(&mut self) {
        match &self.entry.event {
            Event::Accepted { .. } => {
                self.send(Subject::Wakeup(self.agent()), json!({ "agent_id": self.run.agent_id() }));
            }
            Event::IterationStarted { iteration, .. } => {
                self.step(*iteration, "started");
                self.state(HeadStatus::Running, json!({ "activity": "thinking", "waiting_tool_count": 0 }));
            }
            Event::ActionStarted { call, .. } => {
                self.step(1, "started");
                self.calls(1, std::slice::from_ref(call));
            }
            Event::CallsInherited { calls, .. } => self.calls(0, calls),
            Event::Replied { iteration, calls, .. } if calls.is_empty() => self.step(*iteration, "completed"),
            Event::Replied { iteration, calls, .. } => self.calls(*iteration, calls),
            Event::AttemptFailed { retry_at: None, .. } => {}
            Event::AttemptFailed { code, retry_at: Some(_), fallback, .. } => {
                let mut activity = json!({ "activity": "thinking", "retrying_after": code });
                if let Some(fallback) = fallback {
                    activity["fallback"] = fallback.as_str().into();
                }
                self.state(HeadStatus::Running, activity);
            }
            Event::Resolved { deadline: None, .. } => {}
            Event::Reported { .. } | Event::LeaseEnded { .. } | Event::CallReleased { .. } | Event::Resolved { .. } => {
                self.state(HeadStatus::Suspended, json!({ "activity": "awaiting_tool_result" }));
            }
            Event::Interrupted(interrupt) => self.interrupted(interrupt),
            Event::CallParked { call } => self.call_held(*call, "awaiting_tool_result"),
            Event::Parked { reason } => self.state(HeadStatus::Suspended, json!({ "activity": "awaiting_tool_result", "parked": reason })),
            Event::Ended { status, .. } => self.ended(*status),
            Event::Leased
            | Event::ChildBegun { .. }
            | Event::Cut { .. }
            | Event::Reasoned { .. }
            | Event::Compacting { .. }
            | Event::Compacted { .. }
            | Event::Heartbeat
            | Event::Approved { .. }
            | Event::Edited { .. }
            | Event::Unparked
            | Event::OwnerChanged { .. }
            | Event::Ignored { .. }
            | Event::Steered { .. }
            | Event::CallRetried { .. }
            | Event::BudgetBreached { .. } => {}
        }
    }

    fn interrupted(&mut self, interrupt: &Interrupt) {
        match (interrupt.call, interrupt.cause) {
            (Some(call), Cause::Approval) => self.call_held(call, "awaiting_approval"),
            (Some(call), Cause::Question) => self.call_held(call, "awaiting_answer"),
            (Some(call), _) => self.call_held(call, "awaiting_tool_result"),
            (None, cause) => self.state(HeadStatus::Suspended, json!({ "activity": "awaiting_tool_result", "parked": cause })),
        }
    }

    fn call_held(&mut self, call: CallNumber, activity: &str) {
        let key = CallKey { run: self.run.id, call };
        self.state(HeadStatus::Suspended, json!({ "activity": activity, "parked_tool_call_id": key.to_string() }));
    }

    fn calls(&mut self, iteration: u32, calls: &[OpenCall]) {
        // The kernel has already refused a call of a tool that is not in the manifest, and the name of such a tool may be anything.
        let known = |call: &&OpenCall| self.run.manifest.tool(call.tool.as_str()).is_some();
        let commands: Vec<&OpenCall> = calls.iter().filter(known).filter(|call| call.route == Route::External).collect();
        let current = calls.iter().find(known).map(|call| call.tool.clone());
        for call in commands {
            self.command(iteration, call);
        }
        self.step(iteration, "executing");
        let in_process = calls.iter().any(|call| call.route == Route::InProcess);
        let activity = if in_process { "executing_tool" } else { "awaiting_tool_result" };
        let metadata = json!({ "activity": activity, "current_tool": current, "waiting_tool_count": calls.len() });
        self.state(HeadStatus::Suspended, metadata);
    }

    /// Sends a command with pointers only: the service claims the call and reads its arguments from the item.
    fn command(&mut self, iteration: u32, call: &OpenCall) {
        let body = json!({
            "tool_name": call.tool,
            "tool_call_id": CallKey { run: self.run.id, call: call.call }.to_string(),
            "agent_id": self.run.agent_id(),
            "agent_turn_id": self.run.id,
            "turn_epoch": self.entry.epoch,
            "step_id": step_id(self.run.id, iteration),
            "after_execution": call.after,
        });
        self.send(Subject::Tool(call.tool.clone()), body);
    }

    fn ended(&mut self, status: TaskStatus) {
        // The event has no summary and no fields: readers read the deliverable itself.
        let body = json!({
            "agent_turn_id": self.run.id,
            "status": status,
            "output_box_id": self.run.state.output.id,
            "deliverable_card_id": self.run.deliverable,
        });
        self.send(Subject::Task(self.agent()), body);
        self.state(HeadStatus::Idle, json!({}));
    }

    fn step(&mut self, iteration: u32, phase: &str) {
        let body = json!({ "agent_turn_id": self.run.id, "step_id": step_id(self.run.id, iteration), "phase": phase });
        self.send(Subject::Step(self.agent()), body);
    }

    fn state(&mut self, status: HeadStatus, metadata: Value) {
        let body = json!({
            "agent_id": self.run.agent_id(),
            "agent_turn_id": self.run.id,
            "status": status,
            "turn_epoch": self.entry.epoch,
            "updated_at": self.entry.at,
            "output_box_id": self.run.state.output.id,
            "metadata": metadata,
        });
        self.send(Subject::State(self.agent()), body);
    }

    fn agent(&self) -> AgentName {
        self.run.agent_id().clone()
    }

    fn send(&mut self, subject: Subject, body: Value) {
        self.messages.push(Published {
            tenant: self.run.agent.tenant.clone(),
            subject,
            body,
            id: format!("{}.{}.{}", self.run.id, self.entry.number, self.messages.len()),
            run: self.run.id,
            trace: self.run.lineage.trace,
            parent_step: self.run.lineage.parent_step.clone(),
        });
    }
}
