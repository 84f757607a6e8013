//! Clients that read responses from this process.
//!
//! A create request is *open* from the commit that starts its run until its client has the answer. What becomes of the client is
//! recorded with the next commit (`Store::record_reader`); `repeats.rs` decides from these records whether a repeated request joins
//! the run of the first one. A run that is not stored is stopped when its last reader has gone and none comes back in time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use windlass_kernel::{AgentKey, RunId, Tenant};
use windlass_ports::{OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};

use crate::{api::Stop, engine::Engine, repeats::LostRequests};

/// A connection that broke is noticed a moment later: a repeated request waits this long for the earlier reader to disappear.
const GRACE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// The readers of this process, and the open requests that repeated requests may join.
#[derive(Default)]
pub(crate) struct Readers {
    by_run: Mutex<BTreeMap<RunId, ReaderCount>>,
    /// Keys of requests that are about to read: one request at a time may join a run.
    joining: Mutex<BTreeSet<(Tenant, String)>>,
    /// Requests whose client closed its connection, oldest first, each with when it is forgotten.
    left: Mutex<VecDeque<(Instant, OpenRequest)>>,
    /// Requests that lost servers left open.
    pub lost: Mutex<LostRequests>,
    /// Whether the requests of servers that were lost before this one started are known.
    pub loaded: watch::Sender<bool>,
}

#[derive(Default)]
struct ReaderCount {
    readers: usize,
    /// How often the last reader has left.
    departures: u64,
    /// Whether one of the readers got the last event.
    is_served: bool,
}

/// What happens to a run whose last reader leaves before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It continues: the response is stored, and can be read later.
    GoesOn,
    /// It is stopped when no reader comes back within the join window.
    Stops,
}

/// The exclusive right to join a run, or to start one under a key. Held until the request has its reader.
pub struct JoinGuard {
    engine: Engine,
    key: (Tenant, String),
}

impl Drop for JoinGuard {
    fn drop(&mut self) {
        lock(&self.engine.inner().readers.joining).remove(&self.key);
    }
}

/// One reader of a run. Dropping it records whether the client left or had its answer.
pub struct ReaderGuard {
    engine: Engine,
    agent: AgentKey,
    run: RunId,
    unread: Unread,
    /// The open request that this reader waits for an answer to.
    request: Option<RequestHash>,
    is_served: bool,
}

impl Engine {
    /// Registers a reader of a run. `request` is the open request whose client it is, if a repetition of it may join the run.
    pub fn attend(&self, agent: &AgentKey, run: RunId, unread: Unread, request: Option<RequestHash>) -> ReaderGuard {
        lock(&self.inner().readers.by_run).entry(run).or_default().readers += 1;
        ReaderGuard { engine: self.clone(), agent: agent.clone(), run, unread, request, is_served: false }
    }

    /// Waits for the reader of a run that is not stored and that was read at a lost process. Stops the run if none comes within the join
    /// window.
    pub fn expect_reader(&self, agent: &AgentKey, run: RunId) {
        match lock(&self.inner().readers.by_run).entry(run) {
            // A reader is here, or is expected already.
            Entry::Occupied(_) => return,
            Entry::Vacant(unread) => drop(unread.insert(ReaderCount { departures: 1, ..ReaderCount::default() })),
        }
        self.stop_unread_later(agent, run, 1);
    }

    /// Reserves the right to join under a key. `None` if another request has it.
    pub fn reserve_join(&self, tenant: &Tenant, key: &str) -> Option<JoinGuard> {
        let key = (tenant.clone(), key.to_owned());
        let is_first = lock(&self.inner().readers.joining).insert(key.clone());
        is_first.then(|| JoinGuard { engine: self.clone(), key })
    }

    /// Waits until the run has no reader. False if one stays.
    pub async fn wait_until_unread(&self, run: RunId) -> bool {
        let unread = async {
            while lock(&self.inner().readers.by_run).get(&run).is_some_and(|count| count.readers > 0) {
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(GRACE, unread).await.is_ok()
    }

    /// Stops a run after the join window, unless a reader has come since the last one left for the `departures`-th time.
    fn stop_unread_later(&self, agent: &AgentKey, run: RunId, departures: u64) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (engine, agent) = (self.clone(), agent.clone());
        let window = Duration::from_millis(self.settings().join_ms);
        runtime.spawn(async move {
            tokio::time::sleep(window).await;
            if !engine.inner().readers.forget_unread(run, departures) {
                return;
            }
            let stop = Stop { agent, run, reason: "its client went away".into(), epoch: None, source: None, key: None };
            if let Err(error) = engine.stop(stop).await {
                tracing::debug!(%run, %error, "a response without a reader had ended before it could be stopped");
            }
        });
    }
}

impl Readers {
    /// Forgets a run without a reader. False if one has come since the last one left.
    fn forget_unread(&self, run: RunId, departures: u64) -> bool {
        let mut by_run = lock(&self.by_run);
        let is_unread = by_run.get(&run).is_some_and(|count| count.readers == 0 && count.departures == departures);
        if is_unread {
            by_run.remove(&run);
        }
        is_unread
    }

    /// Records that a request's client closed its connection: until `until` a repetition that is marked as a retry may join.
    pub fn keep_left(&self, request: OpenRequest, until: Instant) {
        lock(&self.left).push_back((until, request));
    }

    /// Whether the list of requests whose client left has this one. For requests of lost servers, which may be read more than once.
    pub fn has_left(&self, request: &OpenRequest) -> bool {
        lock(&self.left).iter().any(|(_, left)| left.run == request.run)
    }

    /// Records that a request has a reader again: it is neither lost nor left any more.
    pub fn forget(&self, request: &OpenRequest) {
        lock(&self.left).retain(|(_, left)| left.run != request.run);
        lock(&self.lost).remove(request);
    }

    /// Removes and returns the requests whose join window is over.
    pub fn expired(&self, now: Instant) -> Vec<OpenRequest> {
        let mut left = lock(&self.left);
        let mut expired = Vec::new();
        while let Some((_, request)) = left.pop_front_if(|(until, _)| *until <= now) {
            expired.push(request);
        }
        drop(left);
        expired.extend(lock(&self.lost).expired(now));
        expired
    }
}

impl ReaderGuard {
    /// Records that the client has its whole answer.
    pub fn served(&mut self) {
        self.is_served = true;
        if let Some(count) = lock(&self.engine.inner().readers.by_run).get_mut(&self.run) {
            count.is_served = true;
        }
    }

    /// Records the outcome for the client. A connection that this server cuts because it stops leaves the request open: the client did
    /// not choose to leave, and its next request joins the run at the next server.
    fn record(&mut self) {
        let Some(hash) = self.request.take() else { return };
        let inner = self.engine.inner();
        let request = OpenRequest { tenant: self.agent.tenant.clone(), hash, run: self.run, node: inner.node, left_at: None };
        let outcome = match (self.is_served, self.engine.is_draining()) {
            (true, _) => ReaderOutcome::Closed,
            (false, true) => return,
            (false, false) => {
                let now = self.engine.now();
                let until = Instant::now() + Duration::from_millis(inner.settings.join_ms);
                inner.readers.keep_left(OpenRequest { left_at: Some(now), ..request.clone() }, until);
                ReaderOutcome::Left(now)
            }
        };
        inner.store.record_reader(ReaderRecord { request, outcome });
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.record();
        let mut by_run = lock(&self.engine.inner().readers.by_run);
        let Some(count) = by_run.get_mut(&self.run) else { return };
        count.readers -= 1;
        if count.readers > 0 {
            return;
        }
        if self.unread == Unread::GoesOn || count.is_served {
            by_run.remove(&self.run);
            return;
        }
        count.departures += 1;
        let departures = count.departures;
        drop(by_run);
        self.engine.stop_unread_later(&self.agent, self.run, departures);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
