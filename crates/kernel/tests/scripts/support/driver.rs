//! Drives one run as the engine would, and checks the laws of the kernel after every step.

use std::collections::{BTreeMap, BTreeSet};

use windlass_kernel::{
    AfterExecution, Answer, Below, BoxId, BoxRange, CallNumber, ChunkLengths, Decision, Event, Failure, FailureCause, InheritedCall, Input,
    ItemId, ItemKind, LostModelCall, Manifest, Moment, Opening, Reply, Report, ReportCause, RequestedCall, Run, RunId, Spent, StreamedText,
    TaskStatus, Timestamp, Transition,
    content::{ClientApproval, Reasoning},
    fold, step,
};

use super::{
    laws,
    script::{LeftCall, ScriptedCall, ScriptedInput},
    setup::Setup,
};

/// The length of the output box when the run begins: it need not be empty.
pub const OUTPUT_BEFORE: u32 = 3;

/// The provider's id of every call of every script: the kernel must not depend on it.
const PROVIDER_ID: &str = "toolu_same";

/// A run, its whole journal, and every item that it stored.
pub struct Driver {
    pub manifest: Manifest,
    pub run: Run,
    pub now: Timestamp,
    pub journal: Vec<Event>,
    pub appended: Vec<ItemId>,
    pub kinds: BTreeMap<ItemId, ItemKind>,
    /// How often each call would have been handed to an executor so far.
    pub starts: BTreeMap<CallNumber, u32>,
    /// The calls that the run inherited with their client's approval.
    pub client_approved: BTreeSet<CallNumber>,
    fresh: u128,
}

impl Driver {
    pub fn new(setup: Setup) -> Self {
        let boxed = |id: u128, length| BoxRange { id: BoxId(uuid::Uuid::from_u128(id)), length };
        let accepted = Event::Accepted {
            origin: setup.origin,
            context: boxed(1, 2),
            output: boxed(2, OUTPUT_BEFORE),
            caller: None,
            parent: setup.parent.map(Box::new),
        };
        let run = fold([&accepted]).expect("accepted begins a run");
        Driver {
            manifest: setup.manifest,
            run,
            now: Timestamp(0),
            journal: vec![accepted],
            appended: Vec::new(),
            kinds: BTreeMap::new(),
            starts: BTreeMap::new(),
            client_approved: BTreeSet::new(),
            fresh: 0,
        }
    }

    /// Applies one input as a committed transition. Panics if it breaks a law.
    pub fn take(&mut self, input: Input) -> Transition {
        let before = self.run.clone();
        let mut fresh = self.fresh;
        let mut next = || {
            fresh += 1;
            item_id(fresh)
        };
        let made = step(&before, &self.manifest, input.clone(), &mut Moment { now: self.now, fresh: &mut next });
        self.fresh = fresh;
        self.kinds.extend(made.items.iter().map(|item| (item.id, item.kind)));
        self.journal.extend(made.events.iter().cloned());
        self.appended.extend(&made.appended);
        self.run = made.run.clone();
        laws::hold(self, &before, &input, &made);
        made
    }

    /// Makes the kernel's input of a script's line. Calls `name` for every stored result, with its label.
    pub fn input(&mut self, input: ScriptedInput, name: &mut dyn FnMut(ItemId, String)) -> Input {
        let mut stored = |driver: &mut Self, call: CallNumber| {
            let item = driver.store(ItemKind::Result);
            name(item, format!("result {}", call.0));
            item
        };
        match input {
            ScriptedInput::Entered(action) => Input::Entered(action.map(requested).map_or(Opening::Ask, Opening::Act)),
            ScriptedInput::Reply { text, calls, usage } => {
                Input::Replied(Reply { text, calls: calls.into_iter().map(requested).collect(), usage, ..Reply::default() })
            }
            ScriptedInput::Failed { code, retry_ms, spent, streamed } => {
                let retry_at = retry_ms.map(|ms| self.now.plus_ms(ms));
                Input::AttemptFailed(failure(&code, retry_at, spent, self::streamed(streamed)))
            }
            ScriptedInput::Report { call, status, after, below } => {
                let below = below.map(|lost| Below { lost, ..Below::default() });
                let (retry, item) = (self.retry(call), stored(self, call));
                Input::Reported(Report { below, ..report(call, retry, ReportCause::Tool, status, item, after) })
            }
            ScriptedInput::Begun(call) => Input::ChildBegun(call),
            ScriptedInput::Stale(call) => {
                let (retry, item) = (self.retry(call).saturating_sub(1), stored(self, call));
                Input::Reported(report(call, retry, ReportCause::Tool, TaskStatus::Success, item, None))
            }
            ScriptedInput::RetryDue(call) => Input::RetryDue(call),
            ScriptedInput::Timeout(call) => {
                let (retry, item) = (self.retry(call), stored(self, call));
                Input::Reported(report(call, retry, ReportCause::Deadline, TaskStatus::Timeout, item, None))
            }
            ScriptedInput::LeaseEnded(call) => Input::LeaseEnded(call),
            ScriptedInput::Stop { reason, streamed } => Input::Stopped { reason, streamed: self::streamed(streamed) },
            ScriptedInput::Reasoned(thought) => Input::Reasoned { reasoning: reasoning(thought), chunks: ChunkLengths(vec![0]) },
            ScriptedInput::Thoughtful { before, text, between, calls } => Input::Replied(thoughtful(before, text, between, calls)),
            ScriptedInput::Cut { text, lost } => Input::Cut { streamed: streamed(Some(text)), spent: Spent { lost, ..Spent::default() } },
            ScriptedInput::Quiet => Input::Heartbeat,
            ScriptedInput::TakeOver(left) => Input::Entered(Opening::InheritCalls(left.into_iter().enumerate().map(inherited).collect())),
            ScriptedInput::TakenOver { lost, streamed } => Input::OwnerChanged(LostModelCall { streamed: self::streamed(streamed), lost }),
            ScriptedInput::Panicked => Input::Panicked,
            ScriptedInput::Record { call, status } => {
                let item = stored(self, call);
                self.answer(Some(call), None, Decision::Record { status, item })
            }
            ScriptedInput::Say(call) => {
                let item = stored(self, call);
                self.answer(Some(call), None, Decision::Answer { item })
            }
            ScriptedInput::Release(call) => self.answer(Some(call), None, Decision::Release),
            ScriptedInput::Tell(call) => self.answer(Some(call), None, Decision::Tell),
            ScriptedInput::Resume => self.answer(None, None, Decision::Resume),
            ScriptedInput::Raise(limit) => self.answer(None, None, Decision::Raise { limit }),
            ScriptedInput::EndByAnswer => self.answer(None, None, Decision::End),
            ScriptedInput::Approve { call, by } => self.answer(Some(call), by, Decision::Approve),
            ScriptedInput::ApproveUnseen(call) => self.approve_unseen(call),
            ScriptedInput::Edit { call, by, is_seen } => {
                let item = self.store(ItemKind::Call);
                name(item, format!("edited call {}", call.0));
                let interrupt = self.number_of(Some(call));
                let shows = if is_seen { self.run.interrupt(interrupt).and_then(|open| open.shows) } else { Some(item) };
                Input::Answered(Answer { interrupt, shows, by: by.map(Into::into), decision: Decision::Edit { item } })
            }
            ScriptedInput::Reject { call, comment } => self.answer(Some(call), None, Decision::Reject { comment }),
            ScriptedInput::Steer => {
                let item = self.store(ItemKind::Instruction);
                name(item, "instruction".to_owned());
                Input::Steered(item)
            }
            ScriptedInput::InterruptTimeout(call) => Input::InterruptTimedOut(self.number_of(Some(call))),
        }
    }

    /// An approval by a person who saw something else than the interrupt shows.
    fn approve_unseen(&self, call: CallNumber) -> Input {
        let interrupt = self.number_of(Some(call));
        Input::Answered(Answer { interrupt, shows: Some(item_id(u128::MAX)), by: None, decision: Decision::Approve })
    }

    /// The answer of a person who saw what the interrupt shows.
    fn answer(&self, call: Option<CallNumber>, by: Option<String>, decision: Decision) -> Input {
        let interrupt = self.number_of(call);
        let shows = self.run.interrupt(interrupt).and_then(|open| open.shows);
        Input::Answered(Answer { interrupt, shows, by: by.map(Into::into), decision })
    }

    /// The number of the call's repetition that is in progress.
    fn retry(&self, call: CallNumber) -> u32 {
        self.run.call(call).map_or(0, |call| call.retry)
    }

    /// The number of the open interrupt that holds this call, or the run. Zero, which no interrupt has, if nothing is held.
    fn number_of(&self, call: Option<CallNumber>) -> u64 {
        self.run.interrupts.iter().find(|open| open.call == call).map_or(0, |open| open.number)
    }

    /// Stores an item from outside. Results and edited calls are stored before the kernel hears of them, so that it does not give them their
    /// ids.
    fn store(&mut self, kind: ItemKind) -> ItemId {
        self.fresh += 1;
        let item = item_id(self.fresh);
        self.kinds.insert(item, kind);
        item
    }
}

/// A call that an earlier run left, under the numbers from 3 on.
fn inherited((index, left): (usize, LeftCall)) -> InheritedCall {
    let run = RunId(uuid::Uuid::nil());
    InheritedCall {
        number: CallNumber(index as u32 + 3),
        requested: requested(left.call),
        approval: left.answer.map(|answer| ClientApproval { run, address: left.address, answer }),
        tainted: left.tainted,
    }
}

fn failure(code: &str, retry_at: Option<Timestamp>, spent: Spent, streamed: StreamedText) -> Failure {
    let (message, cause) = (format!("{code} it was"), FailureCause::Other);
    Failure { message, code: code.into(), cause, retry_after_ms: None, retry_at, fallback: None, spent, streamed }
}

fn thoughtful(before: String, text: String, between: String, calls: Vec<ScriptedCall>) -> Reply {
    Reply {
        reasoning: reasoning(before),
        chunks: ChunkLengths(vec![0, text.len() as u32]),
        text,
        afterthoughts: reasoning(between),
        calls: calls.into_iter().map(requested).collect(),
        ..Reply::default()
    }
}

/// Text that was streamed in one chunk.
fn streamed(text: Option<String>) -> StreamedText {
    text.map_or_else(StreamedText::default, |text| StreamedText { chunks: ChunkLengths(vec![text.len() as u32]), text })
}

/// One piece of reasoning with a summary; none if the summary is empty.
fn reasoning(summary: String) -> Vec<Reasoning> {
    let thought = Reasoning { summary: vec![summary], ..Reasoning::default() };
    if thought.is_empty() { Vec::new() } else { vec![thought] }
}

/// The id of the item with this number.
pub fn item_id(number: u128) -> ItemId {
    ItemId(uuid::Uuid::from_u128(number))
}

fn report(call: CallNumber, retry: u32, cause: ReportCause, status: TaskStatus, item: ItemId, after: Option<AfterExecution>) -> Report {
    Report { call, retry, cause, status, item, after, below: None }
}

fn requested(wanted: ScriptedCall) -> RequestedCall {
    RequestedCall { provider_id: PROVIDER_ID.into(), tool: wanted.tool, arguments: wanted.arguments }
}
