//! A verb on its way to a writer, with what is known about it before it runs.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tokio::sync::oneshot;
use windlass_kernel::{AgentKey, CallNumber, ConversationId, InterruptUpdate, ItemId, NewItem, RunId, Tenant};
use windlass_ports::{
    Commit, ConversationChange, GivenUp, MessageId, MessageKind, NewPack, NewReport, NewRun, StoreError, Verb, child_head, codec,
    conversation_agent, parent_head,
};

use super::{
    overlay::TransactionOverlay,
    question::{Answer, Question},
};
use crate::{rows::Result, verbs};

/// What a verb will need, so that it is fetched before the verb runs. Anything that is missing here is only fetched later.
#[derive(Default)]
pub(super) struct Wants {
    /// The heads that it locks, its own one first. Empty for a verb that discovers its agents while it runs.
    pub(super) agents: Vec<AgentKey>,
    /// The questions that it will ask besides that for the head.
    pub(super) questions: Vec<Question>,
    /// Questions whose answer is almost always that a key of its own is free. In a group this is assumed if the verb goes on to insert the
    /// key: an existing key makes the group fail, and then each verb asks for itself. If a verb does not insert the key, the question is
    /// asked after all.
    pub(super) assumed: Vec<(Question, Answer)>,
    /// The number of messages that it stores at most.
    pub(super) numbers: usize,
    /// Locks that keep the manifests of new runs from being deleted.
    pub(super) pins: Vec<i64>,
    /// Hashes of its new content. The caller computes them, so that the writer need not do so under its locks.
    pub(super) hashes: BTreeMap<ItemId, [u8; 16]>,
    /// The bytes of its content.
    pub(super) bytes: usize,
}

impl Wants {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a verb that is not listed knows its agents only while it runs, or has no writer")]
    pub(super) fn of(verb: &Verb) -> Self {
        match verb {
            Verb::Enqueue(new) => Wants::of_enqueue(new),
            Verb::Commit(guard, commit) => Wants::of_commit(&guard.agent, commit),
            Verb::Withdraw(agent, commit) => Wants::of_withdraw(agent, commit),
            Verb::Report(report) => Wants::of_report(report),
            Verb::RenewCalls(_, calls) | Verb::ReleaseCalls(_, calls) => Wants::of_calls(calls),
            Verb::Pack(pack) => Wants::of_pack(pack),
            Verb::Quarantine(agent, ..) => Wants::of_agent(agent),
            Verb::Abandon(_, given_up) => Wants::of_abandon(given_up),
            Verb::Converse(tenant, id, change, _) => Wants::of_conversation(&conversation_agent(tenant, *id), *id, change),
            Verb::Refuse(agent, message, _) => Wants::of_refuse(agent, *message),
            _ => Wants::default(),
        }
    }

    /// Its parent stands in the row of the run, so that it discovers the head of the parent while it runs.
    fn of_abandon(given_up: &GivenUp) -> Self {
        let numbers = 2 + given_up.children.len();
        Wants { numbers, ..Wants::default().with_items(std::slice::from_ref(&given_up.deliverable)) }
    }

    fn of_agent(agent: &AgentKey) -> Self {
        Wants { agents: vec![agent.clone()], ..Wants::default() }
    }

    fn of_enqueue(new: &NewRun) -> Self {
        let mut wants = Wants::of_agent(&new.agent).with_items(&new.context.items);
        let tenant = &new.agent.tenant;
        wants.questions.extend(new.dedupe.iter().map(|key| Question::RunByDedupe(tenant.clone(), codec::key_hash(tenant, key))));
        wants.questions.push(Question::OpenRuns(tenant.clone()));
        wants.questions.extend(new.takes.map(|left| Question::RunTaking(tenant.clone(), left)));
        wants.assumed.push((Question::RunBrief(new.run), Answer::Brief(None)));
        wants.questions.extend(new.context.parent.iter().flat_map(|range| [Question::Box(range.id), Question::BoxLength(range.id)]));
        wants.questions.extend(new.conversation.map(|asked| Question::Conversation(asked.id)));
        if let Some(parent) = &new.state.parent {
            wants.agents.push(parent_head(tenant, parent));
            wants.questions.push(Question::Call(parent.run, parent.call));
        }
        wants.numbers = 1;
        wants.pins.push(pin(tenant, &new.manifest.hash));
        match &new.enter {
            Some(enter) => wants.with_commit(&new.agent, enter),
            None => wants,
        }
    }

    fn of_commit(agent: &AgentKey, commit: &Commit) -> Self {
        let mut wants = Wants::of_agent(agent).with_commit(agent, commit);
        wants.questions.extend(commit.consumed.iter().map(|id| Question::Message(agent.clone(), *id)));
        if !commit.state.has_ended() && verbs::may_be_claimed(commit) {
            wants.questions.push(Question::Claims(commit.run));
        }
        // The row of an interrupt has the name of the run's agent.
        let is_opened = |update: &InterruptUpdate| matches!(update, InterruptUpdate::Opened(_));
        wants.questions.extend(commit.interrupts.iter().any(is_opened).then_some(Question::RunBrief(commit.run)));
        wants
    }

    fn of_withdraw(agent: &AgentKey, commit: &Commit) -> Self {
        let mut wants = Wants::of_agent(agent).with_commit(agent, commit);
        wants.questions.extend([Question::Run(commit.run), Question::OpenCalls(commit.run), Question::Pending(agent.clone())]);
        wants
    }

    fn of_report(report: &NewReport) -> Self {
        let mut wants = Wants::of_agent(&report.agent).with_items(std::slice::from_ref(&report.content));
        wants.questions.push(Question::RunBrief(report.run));
        wants
            .questions
            .extend(report.message.call.map(|call| Question::Report(report.run, call, report.message.kind, report.message.retry)));
        wants.numbers = 1;
        wants
    }

    fn of_refuse(agent: &AgentKey, message: MessageId) -> Self {
        let mut wants = Wants::of_agent(agent);
        wants.questions.push(Question::Message(agent.clone(), message));
        wants
    }

    fn of_conversation(agent: &AgentKey, id: ConversationId, change: &ConversationChange) -> Self {
        let mut wants = match change {
            ConversationChange::Begin { items, .. } | ConversationChange::Add { items, .. } => Wants::of_agent(agent).with_items(items),
            ConversationChange::Describe { .. } | ConversationChange::Remove { .. } | ConversationChange::End => Wants::of_agent(agent),
        };
        wants.questions.push(Question::Conversation(id));
        wants
    }

    fn of_calls(calls: &[(RunId, CallNumber)]) -> Self {
        Wants { questions: calls.iter().map(|(run, call)| Question::Call(*run, *call)).collect(), ..Wants::default() }
    }

    fn of_pack(pack: &NewPack) -> Self {
        let mut wants = Wants::default().with_items(&pack.items);
        wants.questions.extend(
            pack.key.iter().map(|request| Question::RecordedAnswer(pack.tenant.clone(), codec::key_hash(&pack.tenant, &request.key))),
        );
        wants.questions.extend(pack.from.iter().flat_map(|range| [Question::Box(range.id), Question::BoxLength(range.id)]));
        wants
    }

    fn with_items(mut self, items: &[NewItem]) -> Self {
        self.hashes.extend(items.iter().map(|item| (item.id, codec::content_hash(&item.content))));
        self.bytes += items.iter().map(|item| item.content.len()).sum::<usize>();
        self
    }

    fn with_commit(self, agent: &AgentKey, commit: &Commit) -> Self {
        let mut wants = self.with_items(&commit.items);
        let requests = commit.messages.iter().filter_map(|message| message.key.as_ref());
        wants
            .questions
            .extend(requests.map(|request| Question::RecordedAnswer(agent.tenant.clone(), codec::key_hash(&agent.tenant, &request.key))));
        wants.assumed.extend(reports(commit.run, commit).map(|report| (report, Answer::Number(None))));
        wants.numbers += commit.messages.len() + commit.stops.len() + usize::from(commit.report.is_some());
        if let Some(report) = &commit.report {
            wants.agents.push(parent_head(&agent.tenant, &report.parent));
            wants.questions.push(Question::Report(report.parent.run, report.parent.call, MessageKind::ToolResult, 0));
        }
        wants.agents.extend(commit.stops.iter().map(|child| child_head(&agent.tenant, *child)));
        wants
    }
}

/// The number of the lock that pins a tenant's manifest. Two manifests with the same number only wait for each other.
pub(super) fn pin(tenant: &Tenant, hash: &[u8; 32]) -> i64 {
    let half = codec::content_hash(&[hash.as_slice(), tenant.as_str().as_bytes()].concat());
    half.iter().take(8).fold(0, |number, byte| (number << 8) | i64::from(*byte))
}

/// The questions whether the messages of a commit are stored already.
fn reports(run: RunId, commit: &Commit) -> impl Iterator<Item = Question> {
    commit.messages.iter().filter_map(move |message| Some(Question::Report(run, message.call?, message.kind, message.retry)))
}

/// One request of a group. It can be applied repeatedly, and is until all its questions are answered.
pub(super) trait Member: Send {
    /// What it will need.
    fn wants(&self) -> &Wants;
    /// Runs the verb on an overlay and keeps the outcome.
    fn apply(&mut self, overlay: &mut TransactionOverlay<'_>);
    /// The state of the verb after the last run.
    fn state(&self) -> VerbState;
    /// Replaces the outcome, because the transaction around it failed.
    fn fail(&mut self, error: StoreError);
    /// Sends the outcome to the caller.
    fn answer(self: Box<Self>);
}

/// The state of a verb after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbState {
    /// The verb has ended, and takes effect with its writes.
    Done,
    /// Its guard failed: it writes nothing, and the other verbs of the group continue.
    Fenced,
    /// It failed, and the transaction must be rolled back.
    Failed,
}

pub(super) struct Request<T, F> {
    wants: Wants,
    verb: F,
    outcome: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Request<T, F> {
    pub(super) fn new(wants: Wants, verb: F, reply: oneshot::Sender<Result<T>>) -> Self {
        Request { wants, verb, outcome: None, reply }
    }
}

impl<T: Send, F: Fn(&mut TransactionOverlay<'_>) -> Result<T> + Send> Member for Request<T, F> {
    fn wants(&self) -> &Wants {
        &self.wants
    }

    fn apply(&mut self, overlay: &mut TransactionOverlay<'_>) {
        // A panic in one verb must not end the writer: its transaction is rolled back as after any other failure.
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.verb)(overlay)))
            .unwrap_or_else(|_| Err(StoreError::Corrupt("a verb panicked in the writer".into())));
        self.outcome = Some(outcome);
    }

    fn state(&self) -> VerbState {
        match &self.outcome {
            Some(Ok(_)) => VerbState::Done,
            Some(Err(StoreError::Fenced)) => VerbState::Fenced,
            Some(Err(StoreError::Unavailable(_) | StoreError::Corrupt(_))) | None => VerbState::Failed,
        }
    }

    fn fail(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // The caller may be gone; the verb is applied all the same.
        let _ = self.reply.send(self.outcome.unwrap_or_else(|| Err(gone())));
    }
}

pub(super) fn gone() -> StoreError {
    StoreError::Unavailable("the writer is gone".into())
}
