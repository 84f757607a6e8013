//! The one writer. It takes whatever waits, applies it in one transaction, and answers after the flush.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use windlass_ports::StoreError;

use super::{columns::fault, folding::Folding, statements::SqliteRows};
use crate::rows::Outcome;

/// Requests that may wait; more make their senders wait.
const WAITING_MAX: usize = 1_024;

/// Requests that share a transaction at the most.
const GROUP_MAX: usize = 256;

/// Words alone are not committed sooner after the last commit began. A thousand streams would have a commit each, of which one
/// in a hundred and fifty does as well; and whoever reads along cannot tell.
const DELTA_PAUSE: Duration = Duration::from_millis(3);

/// The way to the writer thread.
pub(super) struct Writer {
    /// `None` once the store is being dropped.
    queue: Option<mpsc::Sender<Box<dyn Member>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. It holds the lock until the connection is closed.
    pub(super) fn start(mut rows: SqliteRows, mut folding: Folding, lock: File) -> std::io::Result<Self> {
        let (queue, mut waiting) = mpsc::channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("windlass-writer".into()).spawn(move || {
            write_all(&mut rows, &mut folding, &mut waiting);
            drop(folding);
            drop(rows);
            drop(lock);
        })?;
        Ok(Writer { queue: Some(queue), thread: Some(thread) })
    }

    /// Has a verb applied. The answer comes after its transaction is on disk.
    pub(super) async fn write<T, F>(&self, verb: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: Fn(&mut SqliteRows) -> Outcome<T> + Send + 'static,
    {
        self.send(verb, false).await
    }

    /// The same for what may wait a moment for company.
    pub(super) async fn write_later<T, F>(&self, verb: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: Fn(&mut SqliteRows) -> Outcome<T> + Send + 'static,
    {
        self.send(verb, true).await
    }

    async fn send<T, F>(&self, verb: F, may_wait: bool) -> Outcome<T>
    where
        T: Send + 'static,
        F: Fn(&mut SqliteRows) -> Outcome<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let member = Request { verb, may_wait, outcome: None, reply };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(Box::new(member)).await.map_err(|_| gone())?;
        if !may_wait && let Some(thread) = &self.thread {
            // It may be asleep, with nothing but words to write.
            thread.thread().unpark();
        }
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // What was sent is still written, and the lock is free when this returns.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the writer is gone".into())
}

/// One request of a group. It can be applied again after a rollback.
pub(super) trait Member: Send {
    /// Applies the verb and keeps what came of it. False if the transaction must be rolled back.
    fn apply(&mut self, rows: &mut SqliteRows) -> bool;
    /// Whether it may wait for company.
    fn may_wait(&self) -> bool;
    /// Replaces what came of it: the transaction around it failed.
    fn fail(&mut self, error: StoreError);
    /// Tells whoever asked.
    fn answer(self: Box<Self>);
}

struct Request<T, F> {
    verb: F,
    may_wait: bool,
    outcome: Option<Outcome<T>>,
    reply: oneshot::Sender<Outcome<T>>,
}

impl<T: Send, F: Fn(&mut SqliteRows) -> Outcome<T> + Send> Member for Request<T, F> {
    fn apply(&mut self, rows: &mut SqliteRows) -> bool {
        // A panic in one verb must not end the writer: its transaction is rolled back like any other failure.
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.verb)(rows)))
            .unwrap_or_else(|_| Err(StoreError::Corrupt("a verb panicked in the writer".into())));
        // A guard that fails has written nothing, so the group goes on.
        let may_stand = match &outcome {
            Ok(_) | Err(StoreError::Fenced) => true,
            Err(StoreError::Unavailable(_) | StoreError::Corrupt(_)) => false,
        };
        self.outcome = Some(outcome);
        may_stand
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn fail(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // Whoever asked may be gone; what is written is written.
        let _ = self.reply.send(self.outcome.unwrap_or_else(|| Err(gone())));
    }
}

fn write_all(rows: &mut SqliteRows, folding: &mut Folding, waiting: &mut mpsc::Receiver<Box<dyn Member>>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    let mut next_words = Instant::now();
    while let Some(first) = waiting.blocking_recv() {
        group.push(first);
        gather(&mut group, waiting, next_words);
        next_words = Instant::now() + DELTA_PAUSE;
        apply_group(rows, &mut group);
        group.drain(..).for_each(|member| member.answer());
        rows.fold(folding);
    }
}

/// Takes whatever waits: what came while the last group was written is the next group. Nothing but words is waited with, and
/// only until their time has come or something else has.
fn gather(group: &mut Vec<Box<dyn Member>>, waiting: &mut mpsc::Receiver<Box<dyn Member>>, next_words: Instant) {
    let mut may_wait = group.iter().all(|member| member.may_wait());
    loop {
        while group.len() < GROUP_MAX
            && let Ok(next) = waiting.try_recv()
        {
            may_wait &= next.may_wait();
            group.push(next);
        }
        let pause = next_words.saturating_duration_since(Instant::now());
        if !may_wait || pause.is_zero() || group.len() == GROUP_MAX || waiting.is_closed() {
            return;
        }
        std::thread::park_timeout(pause);
    }
}

/// Applies a group in one transaction; if that fails, each member in one of its own, so that none can hurt another.
pub(super) fn apply_group(rows: &mut SqliteRows, group: &mut [Box<dyn Member>]) {
    let is_done = group.len() > 1 && apply_together(rows, group);
    if !is_done {
        group.iter_mut().for_each(|member| apply_alone(rows, member.as_mut()));
    }
}

fn apply_together(rows: &mut SqliteRows, group: &mut [Box<dyn Member>]) -> bool {
    let is_written = rows.begin().is_ok() && group.iter_mut().all(|member| member.apply(rows)) && rows.commit().is_ok();
    if !is_written {
        rows.roll_back();
    }
    is_written
}

fn apply_alone(rows: &mut SqliteRows, member: &mut dyn Member) {
    if let Err(error) = rows.begin() {
        return member.fail(fault(error));
    }
    if !member.apply(rows) {
        return rows.roll_back();
    }
    if let Err(error) = rows.commit() {
        rows.roll_back();
        member.fail(fault(error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;
    use windlass_kernel::{ItemId, ItemKind, NewItem, Tenant};
    use windlass_ports::NodeId;

    use super::*;
    use crate::{
        rows::{Reads, Rows},
        sqlite::statements::Manifests,
    };

    fn rows() -> SqliteRows {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../../migrations/0001_init.sql")).unwrap();
        let index = super::super::deltas::scan(&connection).unwrap();
        SqliteRows::new(connection, NodeId(1), Manifests::default(), Some(index))
    }

    fn tenant() -> Tenant {
        "acme".into()
    }

    fn item(number: u8, length: usize) -> NewItem {
        NewItem { id: ItemId::from_slice(&[number; 16]).unwrap(), kind: ItemKind::Thought, content: vec![number; length].into() }
    }

    type Answer = oneshot::Receiver<Outcome<()>>;

    fn member(verb: impl Fn(&mut SqliteRows) -> Outcome<()> + Send + 'static) -> (Box<dyn Member>, Answer) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Request { verb, may_wait: false, outcome: None, reply }), answer)
    }

    fn stores(number: u8, length: usize) -> (Box<dyn Member>, Answer) {
        member(move |rows| rows.insert_item(&tenant(), &item(number, length)))
    }

    fn apply(rows: &mut SqliteRows, members: Vec<(Box<dyn Member>, Answer)>) -> Vec<Outcome<()>> {
        let (mut group, answers): (Vec<_>, Vec<_>) = members.into_iter().unzip();
        apply_group(rows, &mut group);
        group.into_iter().for_each(|member| member.answer());
        answers.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect()
    }

    fn stored(rows: &SqliteRows) -> Vec<bool> {
        (0..4).map(|number| rows.item(&tenant(), item(number, 0).id).unwrap().is_some()).collect()
    }

    #[test]
    fn a_bad_member_does_not_hurt_its_group() {
        let mut rows = rows();
        let half = member(|rows| {
            rows.insert_item(&tenant(), &item(1, 1))?;
            rows.insert_item(&tenant(), &item(0, 1))
        });
        let outcomes = apply(&mut rows, vec![stores(0, 1), half, stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Corrupt(_)), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
    }

    #[test]
    fn a_fenced_member_lets_its_group_stand() {
        let mut rows = rows();
        let applied = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&applied);
        let counting = member(move |_| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        });
        let outcomes = apply(&mut rows, vec![stores(0, 1), member(|_| Err(StoreError::Fenced)), counting]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Fenced), Ok(())]), "{outcomes:?}");
        assert_eq!(applied.load(std::sync::atomic::Ordering::Relaxed), 1, "nothing was applied twice");
    }

    /// How long a group with these members waits whose time has come in a second, while others arrive.
    fn waits(members: Vec<bool>, arriving: impl FnOnce(mpsc::Sender<Box<dyn Member>>) + Send + 'static) -> Duration {
        let (queue, mut waiting) = mpsc::channel(WAITING_MAX);
        let mut group: Vec<Box<dyn Member>> = members.into_iter().map(waiter).collect();
        let (since, waiter) = (Instant::now(), std::thread::current());
        let sender = std::thread::spawn(move || {
            arriving(queue);
            waiter.unpark();
        });
        gather(&mut group, &mut waiting, since + Duration::from_secs(1));
        let waited = since.elapsed();
        sender.join().unwrap();
        waited
    }

    fn waiter(may_wait: bool) -> Box<dyn Member> {
        let (reply, _) = oneshot::channel();
        Box::new(Request { verb: |_: &mut SqliteRows| Ok(()), may_wait, outcome: None, reply })
    }

    #[test]
    fn words_wait_for_company_and_transitions_for_nobody() {
        let nobody = |queue: mpsc::Sender<Box<dyn Member>>| {
            std::thread::sleep(Duration::from_millis(1_100));
            drop(queue);
        };
        assert!(waits(vec![true, true], nobody) >= Duration::from_secs(1));
        assert!(waits(vec![true, false], |queue| drop(queue.blocking_send(waiter(true)))) < Duration::from_millis(900));
        let later = |may_wait| {
            move |queue: mpsc::Sender<Box<dyn Member>>| {
                std::thread::sleep(Duration::from_millis(20));
                drop(queue.blocking_send(waiter(may_wait)));
                if may_wait {
                    std::thread::sleep(Duration::from_millis(1_100));
                }
            }
        };
        assert!(waits(vec![true], later(false)) < Duration::from_millis(900), "a transition ends the wait");
        assert!(waits(vec![true], later(true)) >= Duration::from_secs(1), "more words do not");
        let crowd = |queue: mpsc::Sender<Box<dyn Member>>| (0..GROUP_MAX).for_each(|_| drop(queue.blocking_send(waiter(true))));
        assert!(waits(vec![true], crowd) < Duration::from_millis(900), "a full group goes");
    }

    #[test]
    fn a_panic_is_one_members_own() {
        let mut rows = rows();
        let outcomes = apply(&mut rows, vec![stores(0, 1), member(|_| panic!("on purpose")), stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Corrupt(_)), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
    }

    #[test]
    fn a_full_disk_is_told_and_survived() {
        let mut rows = rows();
        rows.one("PRAGMA max_page_count = 60", [], |_| Ok(())).unwrap();
        let outcomes = apply(&mut rows, vec![stores(0, 1), stores(1, 1 << 20), stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Unavailable(_)), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
        rows.one("PRAGMA max_page_count = 6000", [], |_| Ok(())).unwrap();
        let outcomes = apply(&mut rows, vec![stores(1, 1 << 20)]);
        assert!(matches!(outcomes[..], [Ok(())]), "{outcomes:?}");
    }

    #[test]
    fn a_manifest_of_a_group_that_was_rolled_back_is_stored_again() {
        let mut rows = rows();
        let pinned = crate::conformance::fixtures::manifest();
        let kept = Arc::clone(&pinned);
        let keeps = member(move |rows| rows.keep_manifest(&kept));
        let fails = member(|_| Err(StoreError::Corrupt("on purpose".into())));
        apply(&mut rows, vec![keeps, fails]);
        assert!(rows.manifest(&pinned.hash).unwrap().is_some());
    }
}
