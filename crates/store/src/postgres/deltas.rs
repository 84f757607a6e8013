//! Announced words, over a connection of their own: whatever waits is one statement, so that a thousand streams are no more round
//! trips than one, and no agent's commits stand behind them.

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
    trouble::Trouble,
};
use crate::{rows::Outcome, verbs};

/// Announcements that may wait; more make their senders wait.
const WAITING_MAX: usize = 1_024;

/// Announcements that share a statement at the most.
const BATCH_MAX: usize = 256;

/// The way to the connection.
pub(super) struct Deltas {
    queue: mpsc::Sender<Request>,
}

struct Request {
    words: Announcement,
    reply: oneshot::Sender<Outcome<()>>,
}

impl Deltas {
    /// Starts the task that has the connection. It ends when nobody can send any more and everything sent is written.
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

    /// Keeps words. The answer comes after they are on disk.
    pub(super) async fn announce(&self, words: Announcement) -> Outcome<()> {
        verbs::check_pieces(&words)?;
        let (reply, answer) = oneshot::channel();
        self.queue.send(Request { words, reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// Whatever waits, by agent: heads are locked in that order by everybody. At most one announcement of an agent, for a statement does
/// not see what it stores itself; the others come with the next batches.
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

/// Has a batch stored and tells whoever asked. The same words again change nothing, so a lost connection is no riddle.
async fn keep_all(link: &Link, batch: BTreeMap<AgentKey, Request>) {
    let (words, replies): (Vec<_>, Vec<_>) = batch.into_values().map(|request| (request.words, request.reply)).unzip();
    let outcomes = match keep(link, &words).await {
        Ok(outcomes) => outcomes,
        // What the database cannot take of one must not hurt the others.
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
        // Whoever asked may be gone; what is written is written.
        let _ = reply.send(outcome);
    }
}

async fn keep(link: &Link, words: &[Announcement]) -> Outcome<Vec<Outcome<()>>> {
    link.ask(|session| async move { announce(&session, words).await }).await
}

/// Stores what continues the words that stand, and says of each what became of it.
async fn announce(session: &Session, words: &[Announcement]) -> Result<Vec<Outcome<()>>, Trouble> {
    let tenants: Vec<Text<'_>> = words.iter().map(|words| Text(words.agent.tenant.as_str())).collect();
    let agents: Vec<Text<'_>> = words.iter().map(|words| Text(words.agent.agent.as_str())).collect();
    let runs: Vec<&[u8]> = words.iter().map(|words| words.run.as_bytes().as_slice()).collect();
    let epochs: Vec<i64> = words.iter().map(|words| int(words.epoch.0)).collect();
    let firsts: Vec<i64> = words.iter().map(|words| i64::from(words.first)).collect();
    let counts: Vec<i64> = words.iter().map(|words| words.pieces.0.len() as i64).collect();
    let pieces: Vec<String> = words.iter().map(|words| words.pieces.encode()).collect();
    let texts: Vec<&[u8]> = words.iter().map(|words| words.text.as_bytes()).collect();
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [&tenants, &agents, &runs, &epochs, &firsts, &counts, &pieces, &texts];
    // For each that is not fenced: how many pieces stood before, and how many rows were stored for all.
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
            // Fewer rows than should be: a connection that was lost has stored some of them just now.
            Some(_) if continues((words, standing)) && stored == continuing => Ok(()),
            Some(_) => verbs::check_same(&verbs::said(delta_rows(session, words.run).await?), words),
        });
    }
    Ok(outcomes)
}
