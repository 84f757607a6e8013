//! A store with the faults that a test sets. It records all commits and who sent them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use async_trait::async_trait;
use windlass_kernel::{AgentKey, Event, RunId, Timestamp};
use windlass_ports::{Commit, CommitKind, Committed, Found, Guard, NodeId, Query, ReaderRecord, Store, StoreError, Verb, Written};
use windlass_store::conformance::Full;

/// The next faults.
#[derive(Default)]
pub struct Faults {
    /// This many commits are refused.
    pub refuse_commits: usize,
    /// One commit is refused, after this many others.
    pub refuse_after: Option<usize>,
    /// This many commits are applied, but the answer is lost.
    pub lose_answers: usize,
    /// This many enqueues are applied, but the answer is lost.
    pub lose_enqueues: usize,
    /// This many loads of an agent fail.
    pub refuse_loads: usize,
    /// These runs cannot be erased.
    pub keep: Vec<RunId>,
    /// All reads and writes fail.
    pub is_down: bool,
    /// All heartbeats fail.
    pub lose_heartbeats: bool,
    /// The next commit of this agent panics.
    pub panic_at: Option<AgentKey>,
}

/// A commit that reached the store.
#[derive(Clone, Debug)]
pub struct Seen {
    pub agent: AgentKey,
    pub node: NodeId,
    pub kind: CommitKind,
    pub events: Vec<Event>,
    /// `None` if it was fenced or refused.
    pub done: Option<Committed>,
    pub is_fenced: bool,
}

/// A real store with faults in front of it.
pub struct Faulty {
    inner: Arc<dyn Full>,
    pub faults: Mutex<Faults>,
    /// Whether heartbeats reach the real store.
    pub keeps_leases: AtomicBool,
    seen: Mutex<Vec<Seen>>,
    /// The durable writes so far, in order.
    writes: Mutex<Vec<&'static str>>,
    /// The time of the last request to empty the log.
    pub emptied_at: Mutex<Option<Timestamp>>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Full>) -> Self {
        Faulty {
            inner,
            faults: Mutex::default(),
            keeps_leases: AtomicBool::new(false),
            seen: Mutex::default(),
            writes: Mutex::default(),
            emptied_at: Mutex::default(),
        }
    }

    /// The durable writes so far, without heartbeats. A claim that finds nothing writes nothing.
    pub fn writes(&self) -> Vec<&'static str> {
        self.writes.lock().unwrap().clone()
    }

    fn wrote(&self, what: &'static str) {
        self.writes.lock().unwrap().push(what);
    }

    /// Every commit that reached the store so far.
    pub fn commits(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The kinds of an agent's applied commits, in order.
    pub fn kinds(&self, agent: &AgentKey) -> Vec<CommitKind> {
        self.commits().iter().filter(|seen| seen.agent == *agent && seen.done.is_some()).map(|seen| seen.kind).collect()
    }

    pub fn fault(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap());
    }

    fn up(&self) -> Result<(), StoreError> {
        match self.faults.lock().unwrap().is_down {
            true => Err(unavailable()),
            false => Ok(()),
        }
    }

    fn is_next_refused(&self) -> bool {
        let mut faults = self.faults.lock().unwrap();
        match faults.refuse_after {
            Some(0) => faults.refuse_after.take().is_some(),
            Some(more) => faults.refuse_after.replace(more - 1).is_none(),
            None => false,
        }
    }

    fn take(&self, count: impl FnOnce(&mut Faults) -> &mut usize) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let left = count(&mut faults);
        let is_due = *left > 0;
        *left = left.saturating_sub(1);
        is_due
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("the test says so".into())
}

#[async_trait]
impl Store for Faulty {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no test has faults of the other verbs")]
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        self.up()?;
        let name = verb.name();
        match verb {
            Verb::Commit(guard, commit) => return self.commit_with_faults(guard, *commit).await.map(Written::Commit),
            Verb::Erase(_, run) if self.faults.lock().unwrap().keep.contains(&run) => {
                return Err(StoreError::Corrupt("the test says so".into()));
            }
            Verb::Beat(..) if self.faults.lock().unwrap().lose_heartbeats => return Err(unavailable()),
            // Unless a test is about leases, a process that has ended is known to be lost at once.
            Verb::Beat(..) if !self.keeps_leases.load(SeqCst) => return Ok(Written::Beat(Vec::new())),
            Verb::EmptyLog(now) => *self.emptied_at.lock().unwrap() = Some(now),
            _ => {}
        }
        let written = self.inner.write(verb).await;
        match &written {
            Ok(Written::ClaimCalls(claimed)) if claimed.is_empty() => {}
            Ok(Written::Beat(_) | Written::EmptyLog(_) | Written::FlushReaders(_)) => {}
            Ok(Written::Enqueue(_)) if self.take(|faults| &mut faults.lose_enqueues) => {
                self.wrote(name);
                return Err(unavailable());
            }
            Ok(_) | Err(_) => self.wrote(name),
        }
        written
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        self.up()?;
        if matches!(query, Query::Load(_)) && self.take(|faults| &mut faults.refuse_loads) {
            return Err(unavailable());
        }
        self.inner.read(query).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.inner.record_reader(record);
    }
}

impl Faulty {
    async fn commit_with_faults(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let panics = self.faults.lock().unwrap().panic_at.take_if(|agent| *agent == guard.agent).is_some();
        assert!(!panics, "the store panics because the test says so");
        if self.take(|faults| &mut faults.refuse_commits) || self.is_next_refused() {
            return Err(unavailable());
        }
        let (agent, node, kind, events) = (guard.agent.clone(), commit.node, commit.kind, commit.events.clone());
        let done = self.inner.commit(guard, commit).await;
        self.wrote("commit");
        let is_fenced = matches!(done, Err(StoreError::Fenced));
        self.seen.lock().unwrap().push(Seen { agent, node, kind, events, done: done.as_ref().ok().cloned(), is_fenced });
        if done.is_ok() && self.take(|faults| &mut faults.lose_answers) { Err(unavailable()) } else { done }
    }
}
