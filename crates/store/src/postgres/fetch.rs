//! Sends questions to the database: all questions of a kind are one statement, and all statements are sent together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures_util::future::join_all;
use tokio_postgres::{Statement, types::ToSql};
use windlass_kernel::{BoxId, ItemId, Manifest, RunId};
use windlass_ports::{MessageId, NodeId, OutboxRow, codec};

use super::{
    answers,
    columns::{Columns, Text, int, limit as as_limit},
    conversations, interrupts, lists,
    pg_error::PgError,
    question::{Answer, Question},
    requests,
    session::Session,
};
use crate::rows::{BoxRow, DeltaRow, Result};

/// The most decoded manifests in the cache. There are few, and all runs of an agent share one.
const MANIFESTS_MAX: usize = 256;

/// The cache of decoded manifests, shared by all connections.
pub(super) type Manifests = Arc<Mutex<BTreeMap<[u8; 32], Arc<Manifest>>>>;

/// What is read for a question about a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The box alone.
    Box,
    /// All boxes that must be read before it, too: a verb that reads one parent reads all of them.
    Chain,
    /// And their items.
    ChainAndItems,
}

pub(super) type Answered = Result<Vec<(Question, Answer)>, PgError>;

/// Answers questions. Everything is sent before the first answer is awaited.
pub(super) async fn fetch(session: &Session, questions: BTreeSet<Question>, depth: Depth) -> Answered {
    let mut kinds: Vec<Vec<Question>> = Vec::new();
    for question in questions {
        // They are sorted, so that those of a kind are adjacent.
        match kinds.last_mut().filter(|kind| std::mem::discriminant(&kind[0]) == std::mem::discriminant(&question)) {
            Some(kind) => kind.push(question),
            None => kinds.push(vec![question]),
        }
    }
    let answered = join_all(kinds.into_iter().map(|kind| answer(session, kind, depth))).await;
    let mut all = Vec::new();
    for answers in answered {
        all.extend(answers?);
    }
    if depth == Depth::ChainAndItems {
        let ids = segments(&all);
        all.extend(Box::pin(fetch(session, ids, Depth::Box)).await?);
    }
    Ok(all)
}

/// One field of every question of a kind.
macro_rules! column {
    ($kind:expr, $pattern:pat => $value:expr) => {
        $kind.iter().filter_map(|question| if let $pattern = question { Some($value) } else { None }).collect::<Vec<_>>()
    };
}

/// Answers questions of one kind.
async fn answer(session: &Session, kind: Vec<Question>, depth: Depth) -> Answered {
    match kind[0] {
        Question::Head(_) => heads(session, kind).await,
        Question::RunBrief(_) => briefs(session, kind).await,
        Question::RunByDedupe(..) => by_dedupe(session, kind).await,
        Question::RunTaking(..) => taking(session, kind).await,
        Question::NextQueued(..) => next_queued(session, kind).await,
        Question::OpenRuns(_) => open_runs(session, kind).await,
        Question::Message(..) => messages(session, kind).await,
        Question::Report(..) => reports(session, kind).await,
        Question::Pending(_) => pending(session, kind).await,
        Question::Call(..) => call(session, kind).await,
        Question::OpenCalls(_) => calls_of_runs(session, &session.statements.open_calls, kind).await,
        Question::Claims(_) => calls_of_runs(session, &session.statements.claims, kind).await,
        Question::Item(..) => items(session, kind).await,
        Question::Box(_) if depth == Depth::Box => boxes(session, kind).await,
        Question::Box(_) => chains(session, kind).await,
        Question::BoxLength(_) => box_lengths(session, kind).await,
        Question::BoxItemIds(..) => box_item_ids(session, kind).await,
        Question::Lives(_) => lives(session, kind).await,
        Question::Run(_) => runs(session, kind).await,
        Question::Lineage(_) => lineages(session, kind).await,
        Question::Manifest(..) => manifests(session, kind).await,
        Question::RunFrom(..) => run_from(session, kind).await,
        Question::Journal { .. } => journal(session, kind).await,
        Question::Deltas(_) => deltas(session, kind).await,
        Question::LastMessage { .. } => last_message(session, kind).await,
        Question::Inbox { .. } => inbox(session, kind).await,
        Question::Calls { .. } => calls(session, kind).await,
        Question::WaitingCalls { .. } => waiting_calls(session, kind).await,
        Question::CallsByKey(..) => calls_by_key(session, kind).await,
        Question::ContentBytes(_) => content_bytes(session, kind).await,
        Question::BoxItems { .. } => box_items(session, kind).await,
        Question::Due(..) => due(session, kind).await,
        Question::Orphans { .. } => orphans(session, kind).await,
        Question::Outbox(_) => outbox(session, kind).await,
        Question::Conversation(_) => conversations::rows(session, kind).await,
        Question::ConversationParts(_) => conversations::parts(session, kind).await,
        Question::RecordedAnswer(..) => answers::rows(session, kind).await,
        Question::OpenRequests(..) => requests::rows(session, kind).await,
        Question::Interrupts(..) => interrupts::listed(session, kind).await,
        Question::Interrupt(..) => interrupts::by_id(session, kind).await,
        Question::Runs(..) => lists::runs(session, kind).await,
        Question::AgentNames { .. } => lists::agent_names(session, kind).await,
        Question::Instruction(..) => lists::instructions(session, kind).await,
    }
}

/// The rows of a statement for many keys, by key.
pub(super) async fn keyed<T>(
    session: &Session,
    statement: &Statement,
    params: &[&(dyn ToSql + Sync)],
    keys: usize,
    read: impl Fn(&Columns) -> Result<T>,
) -> Result<Vec<Vec<T>>, PgError> {
    let rows = session.client.query(statement, params).await?;
    let mut found: Vec<Vec<T>> = (0..keys).map(|_| Vec::new()).collect();
    for row in rows {
        let columns = Columns::of(row);
        // Keys are counted from 1.
        let key = columns.count()? as usize - 1;
        found[key].push(read(&columns)?);
    }
    Ok(found)
}

pub(super) fn first<T>(kind: Vec<Question>, found: Vec<Vec<T>>, answer: impl Fn(Option<T>) -> Answer) -> Answered {
    Ok(kind.into_iter().zip(found).map(|(question, mut rows)| (question, answer(rows.pop()))).collect())
}

pub(super) fn all<T>(kind: Vec<Question>, found: Vec<Vec<T>>, answer: impl Fn(Vec<T>) -> Answer) -> Answered {
    Ok(kind.into_iter().zip(found).map(|(question, rows)| (question, answer(rows))).collect())
}

async fn heads(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::Head(agent) => Text(agent.tenant.as_str()));
    let agents = column!(kind, Question::Head(agent) => Text(agent.agent.as_str()));
    let found = keyed(session, &session.statements.heads, &[&tenants, &agents], kind.len(), Columns::head).await?;
    first(kind, found, Answer::Head)
}

/// Heads, locked until the transaction ends. The questions are sorted, so that servers can't deadlock.
pub(super) async fn lock_heads(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::Head(agent) => Text(agent.tenant.as_str()));
    let agents = column!(kind, Question::Head(agent) => Text(agent.agent.as_str()));
    let found = keyed(session, &session.statements.lock_heads, &[&tenants, &agents], kind.len(), Columns::head).await?;
    first(kind, found, Answer::Head)
}

/// Reserves inbox numbers, in order. The same statement pins manifests: none of them is deleted until the transaction ends.
pub(super) async fn numbers(session: &Session, count: usize, pins: &[i64]) -> Result<Vec<u64>, PgError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let rows = session.client.query(&session.statements.numbers, &[&as_limit(count), &pins]).await?;
    rows.into_iter().map(|row| Ok(Columns::of(row).count()?)).collect()
}

async fn briefs(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::RunBrief(run) => run.as_bytes().as_slice());
    let found = keyed(session, &session.statements.briefs, &[&ids], kind.len(), Columns::brief).await?;
    first(kind, found, Answer::Brief)
}

async fn by_dedupe(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::RunByDedupe(tenant, _) => Text(tenant.as_str()));
    let keys = column!(kind, Question::RunByDedupe(_, key) => Text(key));
    let found = keyed(session, &session.statements.runs_by_dedupe, &[&tenants, &keys], kind.len(), Columns::brief).await?;
    first(kind, found, Answer::Brief)
}

async fn taking(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::RunTaking(tenant, _) => Text(tenant.as_str()));
    let runs = column!(kind, Question::RunTaking(_, run) => run.as_bytes().as_slice());
    let found = keyed(session, &session.statements.runs_taking, &[&tenants, &runs], kind.len(), Columns::brief).await?;
    first(kind, found, Answer::Brief)
}

async fn next_queued(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::NextQueued(agent, _) => Text(agent.tenant.as_str()));
    let agents = column!(kind, Question::NextQueued(agent, _) => Text(agent.agent.as_str()));
    let above = column!(kind, Question::NextQueued(_, above) => int(*above));
    let found = keyed(session, &session.statements.next_queued, &[&tenants, &agents, &above], kind.len(), Columns::brief).await?;
    first(kind, found, Answer::Brief)
}

async fn open_runs(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::OpenRuns(tenant) => Text(tenant.as_str()));
    let found = keyed(session, &session.statements.open_runs, &[&tenants], kind.len(), Columns::number).await?;
    // Slots are read one after the other, so that the sum may be slightly wrong.
    first(kind, found, |open| Answer::Count(u32::try_from(open.unwrap_or(0).max(0)).unwrap_or(u32::MAX)))
}

async fn messages(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::Message(agent, _) => Text(agent.tenant.as_str()));
    let agents = column!(kind, Question::Message(agent, _) => Text(agent.agent.as_str()));
    let ids = column!(kind, Question::Message(_, id) => int(id.0));
    let found = keyed(session, &session.statements.messages, &[&tenants, &agents, &ids], kind.len(), Columns::message).await?;
    first(kind, found, |row| Answer::Message(row.map(|(_, row)| row)))
}

async fn reports(session: &Session, kind: Vec<Question>) -> Answered {
    let runs = column!(kind, Question::Report(run, ..) => run.as_bytes().as_slice());
    let calls = column!(kind, Question::Report(_, call, ..) => i64::from(call.0));
    let kinds = column!(kind, Question::Report(_, _, kind, _) => kind.as_str());
    let retries = column!(kind, Question::Report(.., retry) => i64::from(*retry));
    let found = keyed(session, &session.statements.reports, &[&runs, &calls, &kinds, &retries], kind.len(), Columns::count).await?;
    first(kind, found, |number| Answer::Number(number.map(MessageId)))
}

async fn pending(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::Pending(agent) => Text(agent.tenant.as_str()));
    let agents = column!(kind, Question::Pending(agent) => Text(agent.agent.as_str()));
    let found = keyed(session, &session.statements.pending, &[&tenants, &agents], kind.len(), Columns::message).await?;
    all(kind, found, Answer::Messages)
}

async fn call(session: &Session, kind: Vec<Question>) -> Answered {
    let runs = column!(kind, Question::Call(run, _) => run.as_bytes().as_slice());
    let calls = column!(kind, Question::Call(_, call) => i64::from(call.0));
    let found = keyed(session, &session.statements.call, &[&runs, &calls], kind.len(), Columns::call).await?;
    all(kind, found, Answer::Calls)
}

async fn calls_of_runs(session: &Session, statement: &Statement, kind: Vec<Question>) -> Answered {
    let runs = column!(kind, Question::OpenCalls(run) | Question::Claims(run) => run.as_bytes().as_slice());
    let found = keyed(session, statement, &[&runs], kind.len(), Columns::call).await?;
    all(kind, found, Answer::Calls)
}

async fn items(session: &Session, kind: Vec<Question>) -> Answered {
    let tenants = column!(kind, Question::Item(tenant, _) => Text(tenant.as_str()));
    let ids = column!(kind, Question::Item(_, id) => id.as_bytes().as_slice());
    let found = keyed(session, &session.statements.items, &[&tenants, &ids], kind.len(), Columns::item).await?;
    first(kind, found, Answer::Item)
}

async fn boxes(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::Box(id) => id.as_bytes().as_slice());
    let found = keyed(session, &session.statements.boxes, &[&ids], kind.len(), Columns::found_box).await?;
    first(kind, found, Answer::Box)
}

async fn chains(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::Box(id) => id.as_bytes().as_slice());
    let rows = session.client.query(&session.statements.box_chains, &[&ids]).await?;
    let mut found: BTreeMap<BoxId, BoxRow> = BTreeMap::new();
    for row in rows {
        let row = Columns::of(row).found_box()?;
        found.insert(row.id, row);
    }
    let unknown = kind.iter().filter(|question| !matches!(question, Question::Box(id) if found.contains_key(id))).cloned();
    let mut answers: Vec<_> = unknown.map(|question| (question, Answer::Box(None))).collect();
    answers.extend(found.into_values().map(|row| (Question::Box(row.id), Answer::Box(Some(row)))));
    Ok(answers)
}

/// The next questions of a verb that reads these boxes.
fn segments(answers: &[(Question, Answer)]) -> BTreeSet<Question> {
    let parent = |answer: &Answer| if let Answer::Box(Some(row)) = answer { row.parent.filter(|_| row.inherited == 0) } else { None };
    answers.iter().filter_map(|(_, answer)| parent(answer)).map(|range| Question::BoxItemIds(range.id, range.length)).collect()
}

async fn box_lengths(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::BoxLength(id) => id.as_bytes().as_slice());
    let found = keyed(session, &session.statements.box_lengths, &[&ids], kind.len(), Columns::count).await?;
    first(kind, found, |length| Answer::Count(u32::try_from(length.unwrap_or(0)).unwrap_or(u32::MAX)))
}

async fn box_item_ids(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::BoxItemIds(id, _) => id.as_bytes().as_slice());
    let below = column!(kind, Question::BoxItemIds(_, below) => i64::from(*below));
    let read = |columns: &Columns| columns.id(ItemId::from_slice);
    let found = keyed(session, &session.statements.box_item_ids, &[&ids, &below], kind.len(), read).await?;
    all(kind, found, Answer::ItemIds)
}

async fn lives(session: &Session, kind: Vec<Question>) -> Answered {
    let nodes = column!(kind, Question::Lives(NodeId(node)) => int(*node));
    let found = keyed(session, &session.statements.lives, &[&nodes], kind.len(), Columns::yes).await?;
    first(kind, found, |lives| Answer::Yes(lives == Some(true)))
}

async fn runs(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::Run(run) => run.as_bytes().as_slice());
    let found = keyed(session, &session.statements.runs, &[&ids], kind.len(), Columns::run).await?;
    first(kind, found, |row| Answer::Run(row.map(Box::new)))
}

async fn lineages(session: &Session, kind: Vec<Question>) -> Answered {
    let ids = column!(kind, Question::Lineage(run) => run.as_bytes().as_slice());
    let found = keyed(session, &session.statements.lineages, &[&ids], kind.len(), Columns::lineage).await?;
    first(kind, found, Answer::Lineage)
}

/// Manifests never change, so that a cached one is not read again.
async fn manifests(session: &Session, kind: Vec<Question>) -> Answered {
    let decoded = |hash: &[u8; 32]| session.manifests.lock().ok()?.get(hash).cloned();
    let known = column!(kind, Question::Manifest(_, hash) => decoded(hash));
    if known.iter().all(Option::is_some) {
        return Ok(kind.into_iter().zip(known).map(|(question, manifest)| (question, Answer::Manifest(manifest))).collect());
    }
    let hashes = column!(kind, Question::Manifest(_, hash) => hash.as_slice());
    let read = |columns: &Columns| Ok(Arc::new(codec::decode_manifest(&columns.content()?)?));
    let tenants = column!(kind, Question::Manifest(tenant, _) => Text(tenant.as_str()));
    let found = keyed(session, &session.statements.manifests, &[&tenants, &hashes], kind.len(), read).await?;
    if let Ok(mut kept) = session.manifests.lock() {
        if kept.len() >= MANIFESTS_MAX {
            kept.clear();
        }
        let hashes = column!(kind, Question::Manifest(_, hash) => *hash);
        kept.extend(hashes.into_iter().zip(&found).filter_map(|(hash, rows)| Some((hash, rows.first()?.clone()))));
    }
    first(kind, found, Answer::Manifest)
}

/// Answers kinds of questions that are rarely asked together, one after the other.
macro_rules! singly {
    ($kind:expr, $pattern:pat => $answer:expr) => {{
        let mut answers = Vec::new();
        for question in $kind {
            if let $pattern = &question {
                let answer = $answer;
                answers.push((question, answer));
            }
        }
        Ok(answers)
    }};
}

async fn run_from(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::RunFrom(agent, ordinal) => {
        let params: [&(dyn ToSql + Sync); 3] = [&Text(agent.tenant.as_str()), &Text(agent.agent.as_str()), &int(*ordinal)];
        Answer::Run(rows(session, &session.statements.run_from, &params, Columns::run).await?.pop().map(Box::new))
    })
}

async fn journal(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Journal { run, from, limit } => {
        let params: [&(dyn ToSql + Sync); 3] = [&run.as_bytes().as_slice(), &int(*from), &as_limit(*limit)];
        let journal_batches = rows(session, &session.statements.journal, &params, Columns::journal_batch).await?;
        Answer::Journal(journal_batches.into_iter().flatten().filter(|row| row.number >= *from).take(*limit).collect())
    })
}

async fn deltas(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Deltas(run) => Answer::Deltas(delta_rows(session, *run).await?))
}

/// A run's deltas, in their order.
pub(super) async fn delta_rows(session: &Session, run: RunId) -> Result<Vec<DeltaRow>, PgError> {
    rows(session, &session.statements.deltas, &[&run.as_bytes().as_slice()], Columns::delta).await
}

async fn last_message(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::LastMessage { agent, run, kind, call } => {
        let (tenant, name) = (Text(agent.tenant.as_str()), Text(agent.agent.as_str()));
        let call = call.map(|call| i64::from(call.0));
        let params: [&(dyn ToSql + Sync); 5] = [&tenant, &name, &run.as_bytes().as_slice(), &kind.as_str(), &call];
        Answer::Number(rows(session, &session.statements.last_message, &params, Columns::count).await?.pop().map(MessageId))
    })
}

async fn inbox(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Inbox { agent, after, limit } => {
        let (tenant, name) = (Text(agent.tenant.as_str()), Text(agent.agent.as_str()));
        let params: [&(dyn ToSql + Sync); 4] = [&tenant, &name, &int(*after), &as_limit(*limit)];
        Answer::Messages(rows(session, &session.statements.inbox, &params, Columns::message).await?)
    })
}

async fn calls(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Calls { run, from, limit } => {
        let params: [&(dyn ToSql + Sync); 3] = [&run.as_bytes().as_slice(), &i64::from(from.0), &as_limit(*limit)];
        Answer::Calls(rows(session, &session.statements.calls, &params, Columns::call).await?)
    })
}

async fn waiting_calls(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::WaitingCalls { tenant, tool, now, limit } => {
        let params: [&(dyn ToSql + Sync); 4] = [&Text(tenant.as_str()), &Text(tool.as_str()), &now.0, &as_limit(*limit)];
        Answer::Calls(rows(session, &session.statements.waiting_calls, &params, Columns::call).await?)
    })
}

async fn calls_by_key(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::CallsByKey(tenant, key) => {
        let params: [&(dyn ToSql + Sync); 2] = [&Text(tenant.as_str()), &Text(key)];
        let mut calls = rows(session, &session.statements.calls_by_key, &params, Columns::call).await?;
        calls.sort_unstable_by_key(|row| (row.run, row.call));
        Answer::Calls(calls)
    })
}

async fn content_bytes(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::ContentBytes(segments) => {
        let ids: Vec<&[u8]> = segments.iter().map(|segment| segment.id.as_bytes().as_slice()).collect();
        let (from, below): (Vec<i64>, Vec<i64>) = segments.iter().map(|segment| (segment.from, segment.below)).unzip();
        let found = rows(session, &session.statements.content_bytes, &[&ids, &from, &below], Columns::count).await?;
        Answer::Bytes(found.first().copied().unwrap_or(0))
    })
}

async fn box_items(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::BoxItems { id, from, below, limit } => {
        let params: [&(dyn ToSql + Sync); 4] = [&id.as_bytes().as_slice(), from, below, &as_limit(*limit)];
        let read = |columns: &Columns| Ok((columns.number()?, columns.item()?));
        Answer::Items(rows(session, &session.statements.box_items, &params, read).await?)
    })
}

async fn due(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Due(now, limit) => {
        Answer::Agents(rows(session, &session.statements.due, &[&now.0, &as_limit(*limit)], Columns::agent).await?)
    })
}

async fn orphans(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Orphans { node, after, limit } => {
        // No agent has an empty name, so that the first page begins after the empty name.
        let (tenant, name) = after.as_ref().map_or(("", ""), |after| (after.tenant.as_str(), after.agent.as_str()));
        let params: [&(dyn ToSql + Sync); 4] = [&Text(tenant), &Text(name), &int(node.0), &as_limit(*limit)];
        Answer::Agents(rows(session, &session.statements.orphans, &params, Columns::agent).await?)
    })
}

async fn outbox(session: &Session, kind: Vec<Question>) -> Answered {
    singly!(kind, Question::Outbox(limit) => Answer::Outbox(outbox_rows(session, *limit).await?))
}

/// The oldest rows of the outbox.
pub(super) async fn outbox_rows(session: &Session, limit: usize) -> Result<Vec<OutboxRow>, PgError> {
    rows(session, &session.statements.outbox, &[&as_limit(limit)], Columns::outbox).await
}

/// The rows of a statement for one key.
pub(super) async fn rows<T>(
    session: &Session,
    statement: &Statement,
    params: &[&(dyn ToSql + Sync)],
    read: impl Fn(&Columns) -> Result<T>,
) -> Result<Vec<T>, PgError> {
    let rows = session.client.query(statement, params).await?;
    rows.into_iter().map(|row| Ok(read(&Columns::of(row))?)).collect()
}
