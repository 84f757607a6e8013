//! Crash points: places at which a test can have the process killed. In production they cost one comparison.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use windlass_ports::{Abandoned, CommitKind, Found, Query, ReaderRecord, Store, StoreError, Verb, Written};

/// The kinds of effects that have a point before and after them.
const EFFECTS: [&str; 5] = ["model_call", "tool_start", "child_start", "publish", "ring"];

/// Called at every point with `commit` or `effect`, the kind, and `before` or `after`.
type Watcher = dyn Fn(&str, &str, &str) + Send + Sync;

/// Kills this process when a chosen point is reached for the n-th time. Cheap to clone.
#[derive(Clone, Default)]
pub struct CrashPoints {
    watcher: Option<Arc<Watcher>>,
}

struct Chosen {
    name: String,
    nth: u64,
    reached: AtomicU64,
}

impl Chosen {
    fn reach(&self, what: &str, kind: &str, when: &str) {
        let is_it = self.name.split('.').eq([what, kind, when]);
        if is_it && self.reached.fetch_add(1, Ordering::SeqCst) + 1 == self.nth {
            // SIGKILL cannot be handled, so nothing is flushed or released on the way out: that is the point.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }
}

/// The name of a crash point that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no crash point {0:?}; `windlass crash-points` lists them; the form is NAME or NAME:N with N from 1")]
pub struct UnknownPoint(String);

impl CrashPoints {
    /// The names of all points.
    pub fn names() -> Vec<String> {
        let commits = CommitKind::ALL.iter().map(|kind| format!("commit.{}", kind.as_str()));
        let effects = EFFECTS.iter().map(|effect| format!("effect.{effect}"));
        commits.chain(effects).flat_map(|name| [format!("{name}.before"), format!("{name}.after")]).collect()
    }

    /// Reads `<point>[:n]`.
    pub fn parse(text: &str) -> Result<Self, UnknownPoint> {
        let (name, nth) = match text.split_once(':') {
            Some((name, nth)) => (name, nth.parse().ok().filter(|n| *n > 0)),
            None => (text, Some(1)),
        };
        match nth {
            Some(nth) if Self::names().iter().any(|known| known == name) => {
                let chosen = Chosen { name: name.to_owned(), nth, reached: AtomicU64::new(0) };
                Ok(CrashPoints { watcher: Some(Arc::new(move |what, kind, when| chosen.reach(what, kind, when))) })
            }
            Some(_) | None => Err(UnknownPoint(text.to_owned())),
        }
    }

    /// Calls a simulation's watcher at every point. The watcher may end the simulated process.
    pub fn watched(watcher: impl Fn(&str, &str, &str) + Send + Sync + 'static) -> Self {
        CrashPoints { watcher: Some(Arc::new(watcher)) }
    }

    /// The store, with a point before and after every commit. Without a point to watch it is the same store.
    pub(crate) fn around(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        match self.watcher {
            Some(_) => Arc::new(WatchedStore { store, points: self.clone() }),
            None => store,
        }
    }

    pub(crate) fn before_effect(&self, effect: &str) {
        self.reach("effect", effect, "before");
    }

    pub(crate) fn after_effect(&self, effect: &str) {
        self.reach("effect", effect, "after");
    }

    fn reach(&self, what: &str, kind: &str, when: &str) {
        if let Some(watcher) = &self.watcher {
            watcher(what, kind, when);
        }
    }
}

/// A store whose commits have crash points.
struct WatchedStore {
    store: Arc<dyn Store>,
    points: CrashPoints,
}

#[async_trait]
impl Store for WatchedStore {
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        let Some(kind) = verb.kind() else { return self.store.write(verb).await };
        self.points.reach("commit", kind.as_str(), "before");
        let written = self.store.write(verb).await;
        if may_have_committed(kind, &written) {
            self.points.reach("commit", kind.as_str(), "after");
        }
        written
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        self.store.read(query).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.store.record_reader(record);
    }
}

/// Whether the point after a commit is reached. It is not if the commit failed, or if there was nothing to claim or to abandon.
fn may_have_committed(kind: CommitKind, written: &Result<Written, StoreError>) -> bool {
    match written {
        Ok(Written::ClaimCalls(calls)) => !calls.is_empty(),
        Ok(Written::Abandon(abandoned)) => matches!(abandoned, Abandoned::Done { .. }),
        Ok(_) => true,
        // A run whose answer was lost may be stored, and the next owner finds it: a crash here must find it too.
        Err(_) => kind == CommitKind::Enqueue,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use windlass_kernel::{Tenant, Timestamp};
    use windlass_store::{MemoryStore, StoreOptions};

    use super::*;

    #[test]
    fn every_commit_and_effect_has_a_point_before_and_after() {
        let names = CrashPoints::names();
        assert_eq!(names.len(), 2 * (CommitKind::ALL.len() + EFFECTS.len()));
        assert!(names.contains(&"commit.suspend.before".to_owned()) && names.contains(&"effect.tool_start.after".to_owned()));
    }

    #[tokio::test]
    async fn a_watched_store_has_a_point_before_and_after_each_verb_with_a_kind() {
        let reached: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = reached.clone();
        let points = CrashPoints::watched(move |what, kind, when| seen.lock().unwrap().push(format!("{what}.{kind}.{when}")));
        let store = points.around(Arc::new(MemoryStore::new(StoreOptions::default())));
        let run = windlass_kernel::RunId::from_slice(&[7; 16]).unwrap();
        store.erase(Tenant::from("acme"), run).await.unwrap();
        store.empty_log(Timestamp(0)).await.unwrap();
        store.published(vec![1]).await.unwrap();
        assert_eq!(*reached.lock().unwrap(), ["commit.erase.before", "commit.erase.after"]);
    }

    #[test]
    fn the_point_after_a_commit_is_not_reached_if_nothing_was_committed() {
        let is_reached = |kind, written: Result<Written, StoreError>| may_have_committed(kind, &written);
        assert!(!is_reached(CommitKind::Claim, Ok(Written::ClaimCalls(Vec::new()))));
        assert!(!is_reached(CommitKind::Abandon, Ok(Written::Abandon(Abandoned::NotQuarantined))));
        assert!(is_reached(CommitKind::Abandon, Ok(Written::Abandon(Abandoned::Done { next_leased: false }))));
        assert!(!is_reached(CommitKind::Suspend, Err(StoreError::Fenced)));
        assert!(is_reached(CommitKind::Enqueue, Err(StoreError::Unavailable("the answer was lost".into()))));
    }

    #[test]
    fn an_unknown_point_or_count_is_refused() {
        for text in ["", "commit.suspend", "commit.suspend.before:0", "commit.suspend.before:x", "nowhere"] {
            assert!(CrashPoints::parse(text).is_err(), "{text}");
        }
    }
}
