//! Deltas, over a connection of their own: all waiting batches are one statement, so that a thousand streams need no more round trips than
//! one, and no agent's commits wait behind them.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::{mpsc, oneshot};
use windlass_kernel::AgentKey;
use windlass_ports::{DeltaBatch, ErrorDetail, StoreError};

use super::{
    columns::{Columns, Text, int},
    fetch::delta_rows,
    member::gone,
    pg_error::PgError,
    readers::ReadConnection,
    session::{Connector, Session},
};
use crate::{rows::Result, verbs};

/// Batches that may wait. Beyond them, senders wait.
const WAITING_MAX: usize = 1_024;

/// The most batches in one statement.
const BATCH_MAX: usize = 256;

/// The sender's side of the queue.
pub(super) struct Deltas {
    queue: mpsc::Sender<DeltaRequest>,
}

struct DeltaRequest {
    deltas: DeltaBatch,
    reply: oneshot::Sender<Result<()>>,
}

impl Deltas {
    /// Starts the task that has the connection. It ends when all senders are dropped and everything sent is written.
    pub(super) fn start(connector: Connector) -> Self {
        let (queue, mut waiting) = mpsc::channel(WAITING_MAX);
        let link = ReadConnection::new(connector);
        tokio::spawn(async move {
            let mut later = VecDeque::new();
            while let Some(batch) = next_batch(&mut waiting, &mut later).await {
                store_all(&link, batch).await;
            }
        });
        Deltas { queue }
    }

    /// Stores a batch of deltas. Returns when they are on disk.
    pub(super) async fn append_deltas(&self, deltas: DeltaBatch) -> Result<()> {
        verbs::check_chunks(&deltas)?;
        let (reply, answer) = oneshot::channel();
        self.queue.send(DeltaRequest { deltas, reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// All waiting batches, by agent, because all servers lock heads in that order. There is at most one batch per agent, because a statement
/// does not see its own writes; the others come with the next statement.
async fn next_batch(
    waiting: &mut mpsc::Receiver<DeltaRequest>,
    later: &mut VecDeque<DeltaRequest>,
) -> Option<BTreeMap<AgentKey, DeltaRequest>> {
    let mut batch = BTreeMap::new();
    let mut put = |request: DeltaRequest, later: &mut VecDeque<DeltaRequest>| {
        if batch.len() == BATCH_MAX || batch.contains_key(&request.deltas.agent) {
            later.push_back(request);
        } else {
            batch.insert(request.deltas.agent.clone(), request);
        }
        batch.len() < BATCH_MAX && later.len() < BATCH_MAX
    };
    let mut has_room = true;
    if later.is_empty() {
        has_room = put(waiting.recv().await?, later);
    }
    for request in std::mem::take(later) {
        has_room = put(request, later);
    }
    while has_room && let Ok(request) = waiting.try_recv() {
        has_room = put(request, later);
    }
    Some(batch)
}

/// Stores the batches and answers their senders. The same deltas again change nothing, so that a lost connection leaves no doubt.
async fn store_all(link: &ReadConnection, batch: BTreeMap<AgentKey, DeltaRequest>) {
    let (deltas, replies): (Vec<_>, Vec<_>) = batch.into_values().map(|request| (request.deltas, request.reply)).unzip();
    let outcomes = match store_batches(link, &deltas).await {
        Ok(outcomes) => outcomes,
        // A batch that the database can't store must not make the others fail.
        Err(StoreError::Corrupt(_)) if deltas.len() > 1 => {
            let mut outcomes = Vec::with_capacity(deltas.len());
            for alone in &deltas {
                let outcome_of_one = store_batches(link, std::slice::from_ref(alone)).await;
                outcomes.push(outcome_of_one.and_then(|mut outcome| outcome.pop().unwrap_or_else(|| Err(gone()))));
            }
            outcomes
        }
        Err(StoreError::Corrupt(what)) => deltas.iter().map(|_| Err(StoreError::Corrupt(what.clone()))).collect(),
        Err(error) => {
            let cause = ErrorDetail::of(error.to_string(), error);
            deltas.iter().map(|_| Err(StoreError::Unavailable(cause.clone()))).collect()
        }
    };
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // The sender may be gone; the deltas are stored all the same.
        let _ = reply.send(outcome);
    }
}

async fn store_batches(link: &ReadConnection, deltas: &[DeltaBatch]) -> Result<Vec<Result<()>>> {
    link.ask(|session| async move { append_deltas(&session, deltas).await }).await
}

/// Stores the batches that follow the stored chunks of their run, and gives the outcome of each.
async fn append_deltas(session: &Session, deltas: &[DeltaBatch]) -> Result<Vec<Result<()>>, PgError> {
    let tenants: Vec<Text<'_>> = deltas.iter().map(|deltas| Text(deltas.agent.tenant.as_str())).collect();
    let agents: Vec<Text<'_>> = deltas.iter().map(|deltas| Text(deltas.agent.agent.as_str())).collect();
    let runs: Vec<&[u8]> = deltas.iter().map(|deltas| deltas.run.as_bytes().as_slice()).collect();
    let epochs: Vec<i64> = deltas.iter().map(|deltas| int(deltas.epoch.0)).collect();
    let firsts: Vec<i64> = deltas.iter().map(|deltas| i64::from(deltas.first)).collect();
    let counts: Vec<i64> = deltas.iter().map(|deltas| deltas.pieces.0.len() as i64).collect();
    let pieces: Vec<String> = deltas.iter().map(|deltas| deltas.pieces.encode()).collect();
    let texts: Vec<&[u8]> = deltas.iter().map(|deltas| deltas.text.as_bytes()).collect();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [&tenants, &agents, &runs, &epochs, &firsts, &counts, &pieces, &texts];
    // For each batch that is not fenced, the number of chunks before it; and the number of rows that were stored for all.
    let mut stored_before: Vec<Option<u64>> = vec![None; deltas.len()];
    let mut stored = 0;
    for row in session.client.query(&session.statements.append_deltas, &params).await? {
        let columns = Columns::of(row);
        let place = columns.count()? as usize - 1;
        stored_before[place] = Some(columns.count()?);
        stored = columns.count()?;
    }
    let continues = |(deltas, stored_before): (&DeltaBatch, &Option<u64>)| *stored_before == Some(deltas.first.into());
    let continuing = deltas.iter().zip(&stored_before).filter(|both| continues(*both) && !both.0.pieces.is_empty()).count() as u64;
    let mut outcomes = Vec::with_capacity(deltas.len());
    for (deltas, stored_before) in deltas.iter().zip(&stored_before) {
        outcomes.push(match stored_before {
            None => Err(StoreError::Fenced),
            // Fewer rows than expected: a connection that was lost has stored some of them just now.
            Some(_) if continues((deltas, stored_before)) && stored == continuing => Ok(()),
            Some(_) => verbs::check_same(&verbs::join_deltas(delta_rows(session, deltas.run).await?), deltas),
        });
    }
    Ok(outcomes)
}
