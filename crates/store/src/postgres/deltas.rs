//! Deltas, over a connection of their own: all waiting batches are one statement, so that a thousand streams need no more round trips than
//! one, and no agent's commits wait behind them.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::{mpsc, oneshot};
use windlass_kernel::AgentKey;
use windlass_ports::{Announcement, StoreError};

use super::{
    columns::{Columns, Text, int},
    fetch::delta_rows,
    member::gone,
    readers::Link,
    session::{Connector, Session},
    pg_error::PgError,
};
use crate::{rows::Result, verbs};

/// Batches that may wait. Beyond them, senders wait.
const WAITING_MAX: usize = 1_024;

/// The most batches in one statement.
const BATCH_MAX: usize = 256;

/// The sender's side of the queue.
pub(super) struct Deltas {
    queue: mpsc::Sender<Request>,
}

struct Request {
    words: Announcement,
    reply: oneshot::Sender<Result<()>>,
}

impl Deltas {
    /// Starts the task that has the connection. It ends when all senders are dropped and everything sent is written.
    pub(super) fn start(connector: Connector) -> Self {
        let (queue, mut waiting) = mpsc::channel(WAITING_MAX);
        let link = Link::new(connector);
        tokio::spawn(async move {
            let mut later = VecDeque::new();
            while let Some(batch) = next_batch(&mut waiting, &mut later).await {
                keep_all(&link, batch).await;
            }
        });
        Deltas { queue }
    }

    /// Stores a batch of deltas. Returns when they are on disk.
    pub(super) async fn announce(&self, words: Announcement) -> Result<()> {
        verbs::check_pieces(&words)?;
        let (reply, answer) = oneshot::channel();
        self.queue.send(Request { words, reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// All waiting batches, by agent, because all servers lock heads in that order. There is at most one batch per agent, because a statement
/// does not see its own writes; the others come with the next statement.
async fn next_batch(waiting: &mut mpsc::Receiver<Request>, later: &mut VecDeque<Request>) -> Option<BTreeMap<AgentKey, Request>> {
    let mut batch = BTreeMap::new();
    let mut put = |request: Request, later: &mut VecDeque<Request>| {
        if batch.len() == BATCH_MAX || batch.contains_key(&request.words.agent) {
            later.push_back(request);
        } else {
            batch.insert(request.words.agent.clone(), request);
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
async fn keep_all(link: &Link, batch: BTreeMap<AgentKey, Request>) {
    let (words, replies): (Vec<_>, Vec<_>) = batch.into_values().map(|request| (request.words, request.reply)).unzip();
    let outcomes = match keep(link, &words).await {
        Ok(outcomes) => outcomes,
        // A batch that the database can't store must not make the others fail.
        Err(StoreError::Corrupt(_)) if words.len() > 1 => {
            let mut outcomes = Vec::with_capacity(words.len());
            for alone in &words {
                let kept = keep(link, std::slice::from_ref(alone)).await;
                outcomes.push(kept.and_then(|mut outcome| outcome.pop().unwrap_or_else(|| Err(gone()))));
            }
            outcomes
        }
        Err(StoreError::Corrupt(what)) => words.iter().map(|_| Err(StoreError::Corrupt(what.clone()))).collect(),
        Err(error) => words.iter().map(|_| Err(StoreError::Unavailable(error.to_string()))).collect(),
    };
    for (reply, outcome) in replies.into_iter().zip(outcomes) {
        // The sender may be gone; the deltas are stored all the same.
        let _ = reply.send(outcome);
    }
}

async fn keep(link: &Link, words: &[Announcement]) -> Result<Vec<Result<()>>> {
    link.ask(|session| async move { announce(&session, words).await }).await
}

/// Stores the batches that follow the stored chunks of their run, and gives the outcome of each.
async fn announce(session: &Session, words: &[Announcement]) -> Result<Vec<Result<()>>, PgError> {
    let tenants: Vec<Text<'_>> = words.iter().map(|words| Text(words.agent.tenant.as_str())).collect();
    let agents: Vec<Text<'_>> = words.iter().map(|words| Text(words.agent.agent.as_str())).collect();
    let runs: Vec<&[u8]> = words.iter().map(|words| words.run.as_bytes().as_slice()).collect();
    let epochs: Vec<i64> = words.iter().map(|words| int(words.epoch.0)).collect();
    let firsts: Vec<i64> = words.iter().map(|words| i64::from(words.first)).collect();
    let counts: Vec<i64> = words.iter().map(|words| words.pieces.0.len() as i64).collect();
    let pieces: Vec<String> = words.iter().map(|words| words.pieces.encode()).collect();
    let texts: Vec<&[u8]> = words.iter().map(|words| words.text.as_bytes()).collect();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [&tenants, &agents, &runs, &epochs, &firsts, &counts, &pieces, &texts];
    // For each batch that is not fenced, the number of chunks before it; and the number of rows that were stored for all.
    let mut standing: Vec<Option<u64>> = vec![None; words.len()];
    let mut stored = 0;
    for row in session.client.query(&session.statements.announce, &params).await? {
        let columns = Columns::of(row);
        let place = columns.count()? as usize - 1;
        standing[place] = Some(columns.count()?);
        stored = columns.count()?;
    }
    let continues = |(words, standing): (&Announcement, &Option<u64>)| *standing == Some(words.first.into());
    let continuing = words.iter().zip(&standing).filter(|both| continues(*both) && !both.0.pieces.is_empty()).count() as u64;
    let mut outcomes = Vec::with_capacity(words.len());
    for (words, standing) in words.iter().zip(&standing) {
        outcomes.push(match standing {
            None => Err(StoreError::Fenced),
            // Fewer rows than expected: a connection that was lost has stored some of them just now.
            Some(_) if continues((words, standing)) && stored == continuing => Ok(()),
            Some(_) => verbs::check_same(&verbs::said(delta_rows(session, words.run).await?), words),
        });
    }
    Ok(outcomes)
}
