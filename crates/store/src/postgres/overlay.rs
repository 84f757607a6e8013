//! The transaction overlay: verbs read the database's answers from it, and write their changes to it.
//!
//! A verb runs from start to end without waiting. A question without an answer is recorded as missing, and ends that run of the verb; the
//! caller fetches the missing answers and runs the verb again (optimistic re-execution). A verb's own writes are laid over the answers, so
//! that it reads its own writes.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use windlass_kernel::{AgentKey, BoxId, CallNumber, ItemId, Manifest, RunId, Tenant, Timestamp, ToolName};
use windlass_ports::{CallStatus, Lineage, MessageId, MessageKind, MessageStatus, NodeId, OutboxRow, Page, StoreError};

use super::{
    question::{Answer, Question},
    write_set::{CallWrite, MessageWrite, WriteSet},
};
use crate::rows::{BoxRow, CallRow, DeltaRow, HeadRow, ItemRow, JournalRow, MessageRow, Reads, Result, RunBrief, RunRow, Segment};

/// The answers of the database so far.
pub(super) type Answers = BTreeMap<Question, Answer>;

/// What one run of a verb reads and writes.
pub(super) struct TransactionOverlay<'a> {
    answers: &'a Answers,
    /// Runs of tenants that earlier verbs of the same transaction began or ended.
    opened: &'a BTreeMap<Tenant, i64>,
    /// Inbox numbers that were reserved for this verb.
    pub(super) numbers: &'a [u64],
    /// Answers that this verb may assume where the database has given none.
    assumed: &'a [(Question, Answer)],
    missing: RefCell<Vec<Question>>,
    granted: RefCell<Vec<Question>>,
    pub(super) write_set: WriteSet,
}

impl<'a> TransactionOverlay<'a> {
    pub(super) fn new(answers: &'a Answers, opened: &'a BTreeMap<Tenant, i64>, numbers: &'a [u64]) -> Self {
        TransactionOverlay {
            answers,
            opened,
            numbers,
            assumed: &[],
            missing: RefCell::default(),
            granted: RefCell::default(),
            write_set: WriteSet::default(),
        }
    }

    pub(super) fn assuming(self, assumed: &'a [(Question, Answer)]) -> Self {
        TransactionOverlay { assumed, ..self }
    }

    /// The missing questions, the assumed answers that were used, and the writes. If there are missing questions, the rest has no meaning.
    pub(super) fn into_parts(self) -> (Vec<Question>, Vec<Question>, WriteSet) {
        (self.missing.into_inner(), self.granted.into_inner(), self.write_set)
    }

    pub(super) fn ask(&self, question: Question) -> Result<Answer> {
        if let Some(answer) = self.answers.get(&question) {
            return Ok(answer.clone());
        }
        if let Some((_, answer)) = self.assumed.iter().find(|(assumed, _)| *assumed == question) {
            self.granted.borrow_mut().push(question);
            return Ok(answer.clone());
        }
        self.missing.borrow_mut().push(question);
        // The caller looks at the missing questions first, so that this error is never reported.
        Err(StoreError::Unavailable("a question without an answer".into()))
    }

    /// The calls of a run after the writes so far. The answer only has the calls of some status.
    fn calls_now(&self, run: RunId, answer: Vec<CallRow>) -> Result<BTreeMap<CallNumber, CallRow>> {
        let mut calls: BTreeMap<CallNumber, CallRow> = answer.into_iter().map(|row| (row.call, row)).collect();
        for ((_, number), write) in self.write_set.calls_of(run) {
            match write {
                CallWrite::Inserted(row) | CallWrite::Updated(row) => drop(calls.insert(*number, row.clone())),
                CallWrite::Moved(moved) => match calls.get_mut(number) {
                    Some(row) => row.move_on(*moved),
                    None => drop(self.call(run, *number)?.map(|row| calls.insert(*number, row))),
                },
            }
        }
        Ok(calls)
    }

    fn run_now(&self, mut row: RunRow) -> RunRow {
        if let Some(write) = self.write_set.runs.get(&row.brief.run) {
            write.apply(&mut row);
        }
        row
    }
}

impl Reads for TransactionOverlay<'_> {
    fn head(&self, agent: &AgentKey) -> Result<Option<HeadRow>> {
        if self.write_set.gone_heads.contains(agent) {
            return Ok(None);
        }
        match self.write_set.heads.get(agent) {
            Some(written) => Ok(Some(written.head.clone())),
            None => self.ask(Question::Head(agent.clone()))?.head(),
        }
    }

    fn run(&self, run: RunId) -> Result<Option<RunRow>> {
        match self.write_set.new_runs.get(&run) {
            Some(row) => Ok(Some(row.clone())),
            None => Ok(self.ask(Question::Run(run))?.run()?.map(|row| self.run_now(*row))),
        }
    }

    fn run_brief(&self, run: RunId) -> Result<Option<RunBrief>> {
        if let Some(row) = self.write_set.new_runs.get(&run) {
            return Ok(Some(row.brief.clone()));
        }
        let mut found = self.ask(Question::RunBrief(run))?.brief()?;
        if let (Some(brief), Some(write)) = (&mut found, self.write_set.runs.get(&run)) {
            write.apply_brief(brief);
        }
        Ok(found)
    }

    fn run_by_dedupe(&self, tenant: &Tenant, key: &str) -> Result<Option<RunBrief>> {
        self.ask(Question::RunByDedupe(tenant.clone(), key.to_owned()))?.brief()
    }

    fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunBrief>> {
        self.ask(Question::RunTaking(tenant.clone(), run))?.brief()
    }

    fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunRow>> {
        Ok(self.ask(Question::RunFrom(agent.clone(), ordinal))?.run()?.map(|row| *row))
    }

    fn next_queued(&self, agent: &AgentKey, above: u64) -> Result<Option<RunBrief>> {
        self.ask(Question::NextQueued(agent.clone(), above))?.brief()
    }

    fn lineage(&self, run: RunId) -> Result<Option<Lineage>> {
        self.ask(Question::Lineage(run))?.lineage()
    }

    fn manifest(&self, tenant: &Tenant, hash: &[u8; 32]) -> Result<Option<Arc<Manifest>>> {
        self.ask(Question::Manifest(tenant.clone(), *hash))?.manifest()
    }

    fn open_runs(&self, tenant: &Tenant) -> Result<u32> {
        let stored = i64::from(self.ask(Question::OpenRuns(tenant.clone()))?.count()?);
        let change = |changes: &BTreeMap<Tenant, i64>| changes.get(tenant).copied().unwrap_or(0);
        Ok(u32::try_from(stored + change(self.opened) + change(&self.write_set.open_runs)).unwrap_or(0))
    }

    fn journal(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalRow>> {
        self.ask(Question::Journal { run, from, limit })?.journal()
    }

    fn deltas(&self, run: RunId) -> Result<Vec<DeltaRow>> {
        self.ask(Question::Deltas(run))?.deltas()
    }

    fn message(&self, agent: &AgentKey, message: MessageId) -> Result<Option<MessageRow>> {
        match self.write_set.messages.get(&message) {
            Some(MessageWrite::Inserted(whose, row)) => Ok(Some(row.clone()).filter(|_| whose == agent)),
            Some(MessageWrite::Changed(whose, change)) => {
                let mut found = self.ask(Question::Message(agent.clone(), message))?.message()?;
                found.as_mut().filter(|_| whose == agent).into_iter().for_each(|row| change.apply(row));
                Ok(found)
            }
            None => self.ask(Question::Message(agent.clone(), message))?.message(),
        }
    }

    fn report(&self, run: RunId, call: CallNumber, kind: MessageKind, retry: u32) -> Result<Option<MessageId>> {
        match self.write_set.last_inserted(|_, row| (row.run, row.call, row.kind, row.retry) == (Some(run), Some(call), kind, retry)) {
            Some(written) => Ok(Some(written)),
            None => self.ask(Question::Report(run, call, kind, retry))?.number(),
        }
    }

    fn last_message(&self, agent: &AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber>) -> Result<Option<MessageId>> {
        match self.write_set.last_inserted(|whose, row| whose == agent && row.run == Some(run) && row.call == call && row.kind == kind) {
            Some(written) => Ok(Some(written)),
            None => self.ask(Question::LastMessage { agent: agent.clone(), run, kind, call })?.number(),
        }
    }

    fn pending(&self, agent: &AgentKey) -> Result<Vec<(MessageId, MessageRow)>> {
        let stored = self.ask(Question::Pending(agent.clone()))?.messages()?;
        let mut rows: BTreeMap<MessageId, MessageRow> = stored.into_iter().collect();
        for (id, write) in &self.write_set.messages {
            match write {
                MessageWrite::Inserted(whose, row) if whose == agent => drop(rows.insert(*id, row.clone())),
                MessageWrite::Changed(whose, change) if whose == agent => match rows.get_mut(id) {
                    Some(row) => change.apply(row),
                    None => drop(self.message(agent, *id)?.map(|row| rows.insert(*id, row))),
                },
                MessageWrite::Inserted(..) | MessageWrite::Changed(..) => {}
            }
        }
        Ok(rows.into_iter().filter(|(_, row)| row.status == MessageStatus::Pending).collect())
    }

    fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<(MessageId, MessageRow)>> {
        self.ask(Question::Inbox { agent: agent.clone(), after: page.after, limit: page.limit })?.messages()
    }

    fn call(&self, run: RunId, call: CallNumber) -> Result<Option<CallRow>> {
        let write = self.write_set.calls.get(&(run, call));
        if let Some(CallWrite::Inserted(row) | CallWrite::Updated(row)) = write {
            return Ok(Some(row.clone()));
        }
        let mut found = self.ask(Question::Call(run, call))?.calls()?.pop();
        if let (Some(row), Some(CallWrite::Moved(moved))) = (&mut found, write) {
            row.move_on(*moved);
        }
        Ok(found)
    }

    fn calls(&self, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallRow>> {
        self.ask(Question::Calls { run, from, limit })?.calls()
    }

    fn open_calls(&self, run: RunId) -> Result<Vec<CallNumber>> {
        let is_open = |row: &CallRow| !matches!(row.status, CallStatus::Applied | CallStatus::Expired | CallStatus::Dropped);
        let calls = self.calls_now(run, self.ask(Question::OpenCalls(run))?.calls()?)?;
        Ok(calls.into_iter().filter(|(_, row)| is_open(row)).map(|(number, _)| number).collect())
    }

    fn claims(&self, run: RunId) -> Result<Vec<(CallNumber, Timestamp)>> {
        let calls = self.calls_now(run, self.ask(Question::Claims(run))?.calls()?)?;
        let held = calls.into_iter().filter(|(_, row)| row.status == CallStatus::Claimed);
        Ok(held.filter_map(|(number, row)| Some((number, row.lease_until?))).collect())
    }

    fn waiting_calls(&self, tenant: &Tenant, tool: &ToolName, now: Timestamp, limit: usize) -> Result<Vec<CallRow>> {
        self.ask(Question::WaitingCalls { tenant: tenant.clone(), tool: tool.clone(), now, limit })?.calls()
    }

    fn calls_by_key(&self, tenant: &Tenant, key: &str) -> Result<Vec<CallRow>> {
        self.ask(Question::CallsByKey(tenant.clone(), key.to_owned()))?.calls()
    }

    fn item(&self, tenant: &Tenant, item: ItemId) -> Result<Option<ItemRow>> {
        self.ask(Question::Item(tenant.clone(), item))?.item()
    }

    fn find_box(&self, id: BoxId) -> Result<Option<BoxRow>> {
        let bound = self.write_set.conversations.bound.iter().rev();
        match self.write_set.boxes.iter().chain(bound).find(|made| made.id == id) {
            Some(made) => Ok(Some(made.clone())),
            None => self.ask(Question::Box(id))?.found_box(),
        }
    }

    fn box_length(&self, id: BoxId) -> Result<u32> {
        let written =
            self.write_set.box_rows.iter().filter(|(made, ..)| *made == id).map(|(_, position, _)| position + 1).max().unwrap_or(0);
        let is_made = self.write_set.boxes.iter().any(|made| made.id == id);
        let stored = if is_made { 0 } else { self.ask(Question::BoxLength(id))?.count()? };
        Ok(stored.max(u32::try_from(written).unwrap_or(0)))
    }

    fn box_item_ids(&self, id: BoxId, below: u32) -> Result<Vec<ItemId>> {
        let is_made = self.write_set.boxes.iter().any(|made| made.id == id);
        let mut items = if is_made { Vec::new() } else { self.ask(Question::BoxItemIds(id, below))?.item_ids()? };
        let mut written: Vec<(i64, ItemId)> =
            self.write_set.box_rows.iter().filter(|(made, ..)| *made == id).map(|(_, position, item)| (*position, *item)).collect();
        written.sort_unstable();
        items.extend(written.into_iter().filter(|(position, _)| *position < below.into()).map(|(_, item)| item));
        Ok(items)
    }

    fn content_bytes(&self, segments: &[Segment]) -> Result<u64> {
        self.ask(Question::ContentBytes(segments.to_vec()))?.bytes()
    }

    fn box_items(&self, id: BoxId, from: i64, below: i64, limit: usize) -> Result<Vec<(i64, ItemRow)>> {
        self.ask(Question::BoxItems { id, from, below, limit })?.items()
    }

    fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>> {
        self.ask(Question::Due(now, limit))?.agents()
    }

    fn lives(&self, node: NodeId) -> Result<bool> {
        self.ask(Question::Lives(node))?.yes()
    }

    fn orphans(&self, node: NodeId, after: Option<&AgentKey>, limit: usize) -> Result<Vec<AgentKey>> {
        self.ask(Question::Orphans { node, after: after.cloned(), limit })?.agents()
    }

    fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>> {
        self.ask(Question::Outbox(limit))?.outbox()
    }
}
