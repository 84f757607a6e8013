//! Writers: each takes the waiting requests, applies them in one transaction, and answers after the flush.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use windlass_ports::StoreError;

use super::{
    group::{Ending, Opening, WriteConnection},
    member::{Member, Request, Wants, gone},
    overlay::TransactionOverlay,
    pg_error::PgError,
};
use crate::{
    measured::Measured,
    records::Records,
    rows::{RequestRows, Result},
};

/// Requests that may wait. Beyond them, senders wait.
const WAITING_MAX: usize = 1_024;

/// The most requests in a transaction, and the most content.
const GROUP_MAX: usize = 256;
const GROUP_BYTES_MAX: usize = 32 << 20;

/// How often a writer yields to other tasks before it takes its next group.
const YIELDS_MAX: usize = 8;

/// How often a group with a conflict is attempted before its members are applied one by one.
const GROUP_ATTEMPTS: u32 = 3;

/// The most attempts for one verb, and their longest time.
const ATTEMPTS_MAX: u32 = 40;
const PATIENCE: Duration = Duration::from_secs(20);

/// The most attempts for a verb whose key exists already: the next attempt sees who has it.
const KEY_EXISTS_ATTEMPTS: u32 = 3;

/// The pause after an attempt with a conflict. It grows with every attempt.
const PAUSE: Duration = Duration::from_millis(1);

/// The sender's side of a writer's queue.
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Member>>,
}

impl Writer {
    /// Starts a writer for verbs that know their agent. It ends when all senders are dropped and everything sent is written.
    pub(super) fn start(mut connection: WriteConnection, records: Records, measured: Measured) -> Self {
        let (queue, mut waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            let mut later = VecDeque::new();
            while let Some(mut group) = next_group(&mut waiting, &mut later).await {
                group.extend(recording(&records));
                let started = measured.start();
                apply_group(&mut connection, &mut group).await;
                let answered = group.len();
                measured.committed(answered, started);
                group.into_iter().for_each(|member| member.answer());
                yield_to_senders(&waiting, answered).await;
            }
        });
        Writer { queue }
    }

    /// Starts a writer for verbs that discover their agents while they run.
    pub(super) fn start_roaming(mut connection: WriteConnection) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Box<dyn Member>>(WAITING_MAX);
        tokio::spawn(async move {
            while let Some(member) = waiting.recv().await {
                let mut alone = [member];
                apply_alone(&mut connection, &mut alone).await;
                alone.into_iter().for_each(|member| member.answer());
            }
        });
        Writer { queue }
    }

    /// Applies a verb. Returns when its transaction is on disk. Once it is sent it is applied, whether or not the caller still waits for
    /// the answer.
    pub(super) async fn write<T, F>(&self, wants: Wants, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut TransactionOverlay<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Box::new(Request::new(wants, verb, reply))).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// The member of a group that writes the records that were added since the last one. If it fails, the records are lost, which they may be.
fn recording(records: &Records) -> Option<Box<dyn Member>> {
    let records = records.take()?;
    let verb = move |rows: &mut TransactionOverlay<'_>| records.iter().try_for_each(|record| rows.record_reader(record));
    let (reply, _) = oneshot::channel();
    Some(Box::new(Request::new(Wants::default(), verb, reply)))
}

/// Gives the callers that were just answered time to send their next requests. Many of them have their next commit ready as soon as they
/// have run: without this there would be two groups, one at the database while the other one computes, each half as large. There is no
/// timer: if the processor has nothing else to do, this returns at once.
async fn yield_to_senders(waiting: &mpsc::Receiver<Box<dyn Member>>, answered: usize) {
    if answered == 1 {
        return;
    }
    for _ in 0..YIELDS_MAX {
        if waiting.len() >= answered {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The waiting requests, in the order of their arrival. There is no timer, so that a single request never waits. There is at most one verb
/// per agent, because a verb reads its own writes but not those of another verb; the others come with the next groups.
async fn next_group(waiting: &mut mpsc::Receiver<Box<dyn Member>>, later: &mut VecDeque<Box<dyn Member>>) -> Option<Vec<Box<dyn Member>>> {
    let mut group = Group::default();
    for member in std::mem::take(later) {
        group.take(member, later);
    }
    if group.members.is_empty() {
        group.take(waiting.recv().await?, later);
    }
    while group.has_room() && later.len() < GROUP_MAX {
        let Ok(member) = waiting.try_recv() else { break };
        group.take(member, later);
    }
    Some(group.members)
}

#[derive(Default)]
struct Group {
    members: Vec<Box<dyn Member>>,
    agents: BTreeSet<windlass_kernel::AgentKey>,
    bytes: usize,
}

impl Group {
    fn has_room(&self) -> bool {
        self.members.len() < GROUP_MAX && self.bytes < GROUP_BYTES_MAX
    }

    fn take(&mut self, member: Box<dyn Member>, later: &mut VecDeque<Box<dyn Member>>) {
        let agents = &member.wants().agents;
        let is_first = agents.iter().all(|agent| !self.agents.contains(agent));
        // A verb that has to wait keeps its agents: a later verb of one of them must not overtake it.
        self.agents.extend(agents.iter().cloned());
        if !is_first || !self.has_room() {
            later.push_back(member);
            return;
        }
        self.bytes += member.wants().bytes;
        self.members.push(member);
    }
}

/// Applies a group in one transaction. If that fails, each member gets a transaction of its own, so that none makes another fail. The same
/// happens when the connection was lost: each verb recognises what it has already done.
async fn apply_group(connection: &mut WriteConnection, group: &mut [Box<dyn Member>]) {
    if group.len() > 1 && apply_together(connection, group).await {
        return;
    }
    for index in 0..group.len() {
        if !apply_alone(connection, &mut group[index..=index]).await {
            let unreachable = || StoreError::Unavailable("the database cannot be reached".into());
            return group[index + 1..].iter_mut().for_each(|member| member.fail(unreachable()));
        }
    }
}

async fn apply_together(connection: &mut WriteConnection, group: &mut [Box<dyn Member>]) -> bool {
    for attempts in 1..=GROUP_ATTEMPTS {
        if connection.ready().await.is_err() {
            return false;
        }
        match connection.transact(group, Opening::of(group)).await {
            Ok(Ending::Written) => return true,
            Err(PgError::Again(_)) => tokio::time::sleep(PAUSE * attempts).await,
            Ok(Ending::Refused | Ending::Unlocked) | Err(PgError::Lost(_) | PgError::KeyExists(_) | PgError::Failed(_)) => return false,
        }
    }
    false
}

/// Applies one verb until it is done or can't be. False if the server can't be reached.
async fn apply_alone(connection: &mut WriteConnection, alone: &mut [Box<dyn Member>]) -> bool {
    let (mut key_existed, since) = (0, Instant::now());
    for attempts in 1..=ATTEMPTS_MAX {
        if let Err(pg_error) = connection.ready().await {
            alone.iter_mut().for_each(|member| member.fail(StoreError::Unavailable("the database cannot be reached".into())));
            tracing::error!(error = %pg_error.into_error(), "the database cannot be reached");
            return false;
        }
        let pg_error = match attempt(connection, alone).await {
            Ok(Ending::Written | Ending::Refused) => return true,
            Ok(Ending::Unlocked) => PgError::Again("what was about to be changed has changed".into()),
            Err(pg_error) => pg_error,
        };
        key_existed += u32::from(matches!(pg_error, PgError::KeyExists(_)));
        let is_last = attempts == ATTEMPTS_MAX
            || since.elapsed() > PATIENCE
            || key_existed == KEY_EXISTS_ATTEMPTS
            || matches!(pg_error, PgError::Failed(_));
        if is_last {
            let error = pg_error.into_error();
            let failure = || match &error {
                StoreError::Corrupt(what) => StoreError::Corrupt(what.clone()),
                StoreError::Unavailable(what) => StoreError::Unavailable(what.clone()),
                StoreError::Fenced => StoreError::Fenced,
            };
            alone.iter_mut().for_each(|member| member.fail(failure()));
            return true;
        }
        tracing::debug!(tries = attempts, trouble = %pg_error.into_error(), "a transaction is tried again");
        tokio::time::sleep(PAUSE * attempts).await;
    }
    true
}

/// One attempt. A verb that does not know its agents is run without a transaction first, to discover its reads: then these heads are locked
/// and read again. If it reads another head under the locks, it starts over.
async fn attempt(connection: &mut WriteConnection, alone: &mut [Box<dyn Member>]) -> Result<Ending, PgError> {
    let mut opening = Opening::of(alone);
    if opening.heads.is_empty()
        && let [member] = alone
    {
        let (learned, is_idle) = connection.discover_reads(member.as_mut()).await?;
        if is_idle {
            return Ok(Ending::Written);
        }
        opening = learned;
    }
    connection.transact(alone, opening).await
}
