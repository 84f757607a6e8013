//! Checkpoints: copying the write-ahead log back into the database.
//!
//! A thread of its own does this beside the writer, because copying and flushing thousands of pages would delay every request that waits
//! for a commit. Meanwhile the log grows by a little. The writer itself copies these last pages between two groups, because only a log that
//! is copied to its last page starts again from its beginning.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

use rusqlite::{Connection, hooks::Wal};
use tokio::sync::oneshot;

use super::open::{OpenError, set_up};

/// The length of the log at which a checkpoint begins, in pages: 16 MB. Pages that changed often are copied once, and one flush of that
/// size does not block the device for long.
const CHECKPOINT_AT: u32 = 4_000;

/// How many more pages the log gets before the next attempt, if readers kept it from starting again.
const AGAIN_AFTER: u32 = 1_000;

/// The longest that the log may get during a checkpoint. A writer that is faster has to wait.
const PAGES_MAX: u32 = 4 * CHECKPOINT_AT;

/// Pages that the writer can copy without a noticeable delay.
const REST: u32 = 64;

/// How many passes the thread makes over what the writer appended meanwhile.
const ROUNDS: u32 = 4;

/// Decides when a checkpoint is made, and by which thread.
pub(super) struct Checkpointer {
    /// The number of pages in the log after the last commit.
    pages: Arc<AtomicU32>,
    /// The number of pages at which the next checkpoint begins.
    next: u32,
    is_under_way: bool,
    orders: mpsc::Sender<Order>,
    done: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// An order to the thread.
enum Order {
    /// Make a checkpoint and notify the writer.
    Checkpoint,
    /// Make a checkpoint and notify the sender.
    CheckpointFor(oneshot::Sender<()>),
    End,
}

/// Requests checkpoints for a caller that is not the writer.
pub(super) struct CheckpointHandle {
    orders: mpsc::Sender<Order>,
}

impl CheckpointHandle {
    /// Returns when all but the last pages of the log are copied, or the thread has ended.
    pub(super) async fn checkpoint(&self) {
        let (reply, copied) = oneshot::channel();
        if self.orders.send(Order::CheckpointFor(reply)).is_ok() {
            // A thread that ends drops the sender.
            let _ = copied.await;
        }
    }
}

impl Checkpointer {
    /// Starts the thread for the database of the writer's connection. That connection makes no checkpoints of its own any more.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Self, OpenError> {
        let connection = Connection::open(path)?;
        set_up(&connection)?;
        let pages = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&pages);
        writer.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            counted.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let (orders, ordered) = mpsc::channel();
        let (notify, done) = mpsc::channel();
        let checkpoint_on_request = move || {
            while let Ok(order) = ordered.recv() {
                let reply = match order {
                    Order::Checkpoint => None,
                    Order::CheckpointFor(reply) => Some(reply),
                    Order::End => return,
                };
                checkpoint_most(&connection);
                // The receiver may be gone: the checkpoint is made all the same.
                let _ = reply.map_or_else(|| notify.send(()).ok(), |reply| reply.send(()).ok());
            }
        };
        let thread = std::thread::Builder::new().name("windlass-folder".into()).spawn(checkpoint_on_request);
        let thread = thread.map_err(|error| OpenError::File { path: path.to_owned(), error })?;
        Ok(Checkpointer { pages, next: CHECKPOINT_AT, is_under_way: false, orders, done, thread: Some(thread) })
    }

    /// A handle for callers that are not the writer.
    pub(super) fn handle(&self) -> CheckpointHandle {
        CheckpointHandle { orders: self.orders.clone() }
    }

    /// Begins or ends a checkpoint if it is time for that, after a commit of the writer.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.is_under_way {
            self.finish(writer, pages);
        } else if pages + AGAIN_AFTER < self.next {
            // The log has started again.
            self.next = CHECKPOINT_AT;
        } else if pages >= self.next {
            self.is_under_way = self.orders.send(Order::Checkpoint).is_ok();
            if !self.is_under_way {
                self.checkpoint_rest(writer, pages);
            }
        }
    }

    /// Copies the last pages once the thread is done.
    fn finish(&mut self, writer: &Connection, pages: u32) {
        let done = if pages < PAGES_MAX { self.done.try_recv() } else { self.done.recv().map_err(Into::into) };
        if done != Err(mpsc::TryRecvError::Empty) {
            self.is_under_way = false;
            self.checkpoint_rest(writer, pages);
        }
    }

    fn checkpoint_rest(&mut self, writer: &Connection, pages: u32) {
        checkpoint(writer);
        self.next = pages + AGAIN_AFTER;
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        // A thread that has ended receives nothing.
        let _ = self.orders.send(Order::End);
        // Its connection must be closed before the writer's, because the last connection to close makes a full checkpoint.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that folds the log panicked");
        }
    }
}

/// Copies the log until the writer is hardly ahead.
fn checkpoint_most(connection: &Connection) {
    let mut copied = 0;
    for _ in 0..ROUNDS {
        match checkpoint(connection) {
            Some(pages) if pages.saturating_sub(copied) > REST => copied = pages,
            Some(_) | None => return,
        }
    }
}

/// Copies the pages that no reader needs any more. Returns how many pages of the log are copied then.
fn checkpoint(connection: &Connection) -> Option<u32> {
    // Pages that can't be copied now, as on a full disk, stay in the log, where all connections find them.
    let copied =
        connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut checkpoint| checkpoint.query_row([], |row| row.get(2)));
    let copied: i64 =
        copied.inspect_err(|error| tracing::warn!(%error, "the write-ahead log cannot be folded back into the database")).ok()?;
    // A negative number: another connection makes a checkpoint, perhaps a tool of the operator.
    u32::try_from(copied).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u32 = 256;

    struct Log {
        checkpointer: Checkpointer,
        writer: Connection,
        path: tempfile::TempDir,
    }

    impl Log {
        fn new() -> Self {
            let path = tempfile::tempdir().unwrap();
            let mut writer = Connection::open(path.path().join("db")).unwrap();
            set_up(&writer).unwrap();
            writer.execute_batch("CREATE TABLE blobs (blob BLOB)").unwrap();
            let checkpointer = Checkpointer::start(&path.path().join("db"), &mut writer).unwrap();
            Log { checkpointer, writer, path }
        }

        /// Writes that many pages. Returns the greatest length of the log.
        fn write(&mut self, pages: u32) -> u32 {
            let longest = (0..pages / MEGABYTE).map(|_| {
                self.writer.execute("INSERT INTO blobs VALUES (zeroblob(1 << 20))", []).unwrap();
                self.checkpointer.after_commit(&self.writer);
                self.pages()
            });
            longest.max().unwrap()
        }

        fn pages(&self) -> u32 {
            self.checkpointer.pages.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_log_is_copied_and_starts_again() {
        let mut log = Log::new();
        let longest = log.write(4 * PAGES_MAX);
        assert!((CHECKPOINT_AT..=PAGES_MAX + 2 * MEGABYTE).contains(&longest), "{longest}");
        let length = std::fs::metadata(log.path.path().join("db-wal")).unwrap().len();
        assert!(length < 2 * 4_200 * u64::from(PAGES_MAX), "{length} bytes of log for twice as many written");
    }

    #[test]
    fn a_log_with_a_reader_is_copied_when_the_reader_is_done() {
        let mut log = Log::new();
        let reader = Connection::open(log.path.path().join("db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM blobs").unwrap();
        let longest = log.write(2 * CHECKPOINT_AT);
        assert!(longest >= 2 * CHECKPOINT_AT - MEGABYTE, "nothing that is read is lost: {longest}");
        reader.execute_batch("COMMIT").unwrap();
        // The thread needs a while, in which the log grows; but not for ever.
        let starts_again = (0..PAGES_MAX / MEGABYTE).any(|_| log.write(MEGABYTE) < CHECKPOINT_AT);
        assert!(starts_again, "{} pages are left", log.pages());
    }
}
