//! The one writer. It takes the waiting requests, applies them in one transaction, and answers after the flush.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    thread::JoinHandle,
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use windlass_ports::{NodeId, ReaderRecord, StoreError};

use super::{
    checkpointer::Checkpointer,
    columns::fault,
    deltas::Index,
    group_commit::{Deferrable, GROUP_MAX, GroupCommit, WakeThreshold},
    prepared::StatementCache,
    statements::{Manifests, SqliteRows},
    truncation::Truncation,
};
use crate::{
    measured::Measured,
    records::Records,
    rows::{RequestRows, Result},
};

/// Requests that may wait. Beyond them, senders wait.
const WAITING_MAX: usize = 1_024;

/// The sender's side of the writer's queue.
pub(super) struct Writer {
    /// `None` once the store is being dropped.
    queue: Option<mpsc::Sender<Box<dyn Member>>>,
    threshold: WakeThreshold,
    /// Records for the next commit.
    records: Records,
    thread: Option<JoinHandle<()>>,
}

/// What the writer's thread needs.
pub(super) struct WriterState {
    pub(super) connection: Connection,
    pub(super) node: NodeId,
    pub(super) manifests: Manifests,
    pub(super) index: Index,
    pub(super) truncation: Truncation,
    /// Held until the connection is closed.
    pub(super) lock: File,
}

/// The rows that the writer changes.
pub(super) type WriterRows<'c> = SqliteRows<StatementCache<'c>>;

impl Writer {
    /// Starts the thread.
    pub(super) fn start(state: WriterState, mut checkpointer: Checkpointer, measured: Measured) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let threshold = WakeThreshold::default();
        let mut group_commit = GroupCommit::new(waiting, threshold.clone());
        let records = Records::default();
        let recorded = records.clone();
        let thread = std::thread::Builder::new().name("windlass-writer".into()).spawn(move || {
            let WriterState { connection, node, manifests, index, truncation, lock } = state;
            let mut rows = SqliteRows::new(StatementCache::over(&connection), node, manifests, Some(index));
            rows.truncation = truncation;
            write_all(&mut rows, &mut checkpointer, &mut group_commit, &recorded, &measured);
            drop(checkpointer);
            rows.empty_log();
            drop(rows);
            drop(connection);
            drop(lock);
        })?;
        Ok(Writer { queue: Some(queue), threshold, records, thread: Some(thread) })
    }

    /// Adds a record, which is written with the next commit.
    pub(super) fn record(&self, record: ReaderRecord) {
        self.records.push(record);
    }

    /// Applies a verb. Returns when its transaction is on disk. A deferrable request may wait for others.
    pub(super) async fn write<T, F>(&self, is_deferrable: bool, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&mut WriterRows<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let member = Request { verb, is_deferrable, outcome: None, reply };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(Box::new(member)).await.map_err(|_| gone())?;
        if !is_deferrable && let Some(thread) = &self.thread {
            self.threshold.wake(thread.thread(), queue.max_capacity() - queue.capacity());
        }
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // Everything that was sent is still written, and the lock is free when this returns.
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
pub(super) trait Member: Deferrable + Send {
    /// Applies the verb and keeps the outcome. False if the transaction must be rolled back.
    fn apply(&mut self, rows: &mut WriterRows<'_>) -> bool;
    /// Replaces the outcome, because the transaction around it failed.
    fn fail(&mut self, error: StoreError);
    /// Sends the outcome to the caller.
    fn answer(self: Box<Self>);
}

impl Deferrable for Box<dyn Member> {
    fn is_deferrable(&self) -> bool {
        self.as_ref().is_deferrable()
    }
}

struct Request<T, F> {
    verb: F,
    is_deferrable: bool,
    outcome: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Deferrable for Request<T, F> {
    fn is_deferrable(&self) -> bool {
        self.is_deferrable
    }
}

impl<T: Send, F: Fn(&mut WriterRows<'_>) -> Result<T> + Send> Member for Request<T, F> {
    fn apply(&mut self, rows: &mut WriterRows<'_>) -> bool {
        // A panic in one verb must not end the writer: its transaction is rolled back as after any other failure.
        let changes_before = rows.connection().total_changes();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.verb)(rows)))
            .unwrap_or_else(|_| Err(StoreError::Corrupt("a verb panicked in the writer".into())));
        let may_stand = match &outcome {
            Ok(_) => true,
            // A verb decides before it writes, so a fenced one has written nothing, and the group continues. If a verb breaks this rule, its
            // writes do not stay.
            Err(StoreError::Fenced) => rows.connection().total_changes() == changes_before,
            Err(StoreError::Unavailable(_) | StoreError::Corrupt(_)) => false,
        };
        self.outcome = Some(outcome);
        may_stand
    }

    fn fail(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // The caller may be gone; the verb is applied all the same.
        let _ = self.reply.send(self.outcome.unwrap_or_else(|| Err(gone())));
    }
}

fn write_all(
    rows: &mut WriterRows<'_>,
    checkpointer: &mut Checkpointer,
    group_commit: &mut GroupCommit<Box<dyn Member>>,
    records: &Records,
    measured: &Measured,
) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while group_commit.begin(&mut group) {
        group.extend(recording(records));
        let started = measured.start();
        apply_group(rows, &mut group, |group| group_commit.wait_for_more(group));
        measured.committed(group.len(), started);
        group_commit.answered(&group);
        group.drain(..).for_each(|member| member.answer());
        rows.checkpoint(checkpointer);
        rows.empty_log_if_asked();
    }
}

/// The member of a group that writes the records that were added since the last one. If it fails, the records are lost, which they may be.
fn recording(records: &Records) -> Option<Box<dyn Member>> {
    let records = records.take()?;
    let verb = move |rows: &mut WriterRows<'_>| records.iter().try_for_each(|record| rows.record_reader(record));
    let (reply, _) = oneshot::channel();
    Some(Box::new(Request { verb, is_deferrable: true, outcome: None, reply }))
}

type Group = Vec<Box<dyn Member>>;

/// Applies a group in one transaction, with the requests that join it meanwhile. If that fails, each member gets a transaction of its own,
/// so that none makes another fail.
fn apply_group(rows: &mut WriterRows<'_>, group: &mut Group, wait_for_more: impl FnMut(&mut Group) -> bool) {
    if !apply_together(rows, group, wait_for_more) {
        rows.roll_back();
        group.iter_mut().for_each(|member| apply_alone(rows, member.as_mut()));
    }
}

fn apply_together(rows: &mut WriterRows<'_>, group: &mut Group, mut wait_for_more: impl FnMut(&mut Group) -> bool) -> bool {
    let mut applied = 0;
    if rows.begin().is_err() {
        return false;
    }
    while group.iter_mut().skip(applied).all(|member| member.apply(rows)) {
        applied = group.len();
        if !wait_for_more(group) {
            return rows.commit().is_ok();
        }
    }
    false
}

fn apply_alone(rows: &mut WriterRows<'_>, member: &mut dyn Member) {
    if let Err(error) = rows.begin() {
        return member.fail(fault(error));
    }
    if !member.apply(rows) {
        return rows.roll_back();
    }
    if let Err(error) = rows.commit() {
        rows.roll_back();
        member.fail(error);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use windlass_kernel::{ItemId, ItemKind, NewItem, Tenant};

    use super::*;
    use crate::{
        rows::{Reads, Rows},
        sqlite::statements::Manifests,
    };

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        super::super::open::MIGRATIONS.iter().for_each(|migration| connection.execute_batch(migration).unwrap());
        connection
    }

    fn rows(connection: &Connection) -> WriterRows<'_> {
        let index = super::super::deltas::scan(connection).unwrap();
        SqliteRows::new(StatementCache::over(connection), NodeId(1), Manifests::default(), Some(index))
    }

    fn tenant() -> Tenant {
        "acme".into()
    }

    fn item(number: u8, length: usize) -> NewItem {
        NewItem::own(ItemId::from_slice(&[number; 16]).unwrap(), ItemKind::Thought, vec![number; length].into())
    }

    type Answer = oneshot::Receiver<Result<()>>;

    fn member(verb: impl Fn(&mut WriterRows<'_>) -> Result<()> + Send + 'static) -> (Box<dyn Member>, Answer) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Request { verb, is_deferrable: false, outcome: None, reply }), answer)
    }

    fn stores(number: u8, length: usize) -> (Box<dyn Member>, Answer) {
        member(move |rows| rows.insert_item(&tenant(), &item(number, length)))
    }

    fn apply(rows: &mut WriterRows<'_>, members: Vec<(Box<dyn Member>, Answer)>) -> Vec<Result<()>> {
        let (mut waiting, answers): (VecDeque<_>, Vec<_>) = members.into_iter().unzip();
        while let Some(first) = waiting.pop_front() {
            let mut group = vec![first];
            apply_group(rows, &mut group, |group| waiting.pop_front().map(|next| group.push(next)).is_some());
            group.into_iter().for_each(|member| member.answer());
        }
        answers.into_iter().map(|answer| answer.blocking_recv().unwrap()).collect()
    }

    fn stored(rows: &WriterRows<'_>) -> Vec<bool> {
        (0..4).map(|number| rows.item(&tenant(), item(number, 0).id).unwrap().is_some()).collect()
    }

    #[test]
    fn a_failing_member_does_not_affect_its_group() {
        let database = database();
        let mut rows = rows(&database);
        let half = member(|rows| {
            rows.insert_item(&tenant(), &item(1, 1))?;
            rows.insert_item(&tenant(), &item(0, 1))
        });
        let outcomes = apply(&mut rows, vec![stores(0, 1), half, stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Corrupt(_)), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
    }

    #[test]
    fn a_fenced_member_does_not_roll_its_group_back() {
        let database = database();
        let mut rows = rows(&database);
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

    #[test]
    fn nothing_stays_of_a_member_that_writes_before_it_is_fenced() {
        let database = database();
        let mut rows = rows(&database);
        let half = member(|rows| {
            rows.insert_item(&tenant(), &item(1, 1))?;
            Err(StoreError::Fenced)
        });
        let outcomes = apply(&mut rows, vec![stores(0, 1), half, stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Fenced), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
    }

    #[test]
    fn a_panic_fails_one_member_only() {
        let database = database();
        let mut rows = rows(&database);
        let outcomes = apply(&mut rows, vec![stores(0, 1), member(|_| panic!("on purpose")), stores(2, 1)]);
        assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Corrupt(_)), Ok(())]), "{outcomes:?}");
        assert_eq!(stored(&rows), [true, false, true, false]);
    }

    #[test]
    fn a_full_disk_is_an_error_and_survived() {
        let database = database();
        let mut rows = rows(&database);
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
        let database = database();
        let mut rows = rows(&database);
        let pinned = crate::conformance::fixtures::manifest();
        let kept = Arc::clone(&pinned);
        let keeps = member(move |rows| rows.keep_manifest(&"acme".into(), &kept));
        let fails = member(|_| Err(StoreError::Corrupt("on purpose".into())));
        apply(&mut rows, vec![keeps, fails]);
        assert!(rows.manifest(&"acme".into(), &pinned.hash).unwrap().is_some());
    }
}
