//! Folding the write-ahead log back into the database.
//!
//! A thread of its own does it, beside the writer: copying thousands of pages and flushing them takes so long that everybody who
//! waits for a commit would notice. What comes into the log meanwhile is little. The writer folds that itself, between two groups,
//! for only a log that is folded to its last page begins anew.

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

/// Pages in the log at which it is folded: 16 MB. Pages that changed often are folded once; and what is flushed at once does not keep
/// the device from the writer for long.
const FOLD_AT: u32 = 4_000;

/// How much longer the log gets before another try, if readers have kept it from beginning anew.
const AGAIN_AFTER: u32 = 1_000;

/// How long the log may get while it is folded. A writer that is so much faster has to wait.
const PAGES_MAX: u32 = 4 * FOLD_AT;

/// Pages that the writer can fold without anybody noticing.
const REST: u32 = 64;

/// How often the thread goes after a writer that goes on writing.
const ROUNDS: u32 = 4;

/// When the log is folded, and by whom.
pub(super) struct Folding {
    /// Pages in the log after the last commit.
    pages: Arc<AtomicU32>,
    /// At which number of them it is folded next.
    next: u32,
    is_under_way: bool,
    orders: mpsc::Sender<Order>,
    done: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked for.
enum Order {
    /// Fold, and tell the writer.
    Fold,
    /// Fold, and tell this one.
    FoldFor(oneshot::Sender<()>),
    End,
}

/// Has the log folded for somebody who is not the writer.
pub(super) struct Folder {
    orders: mpsc::Sender<Order>,
}

impl Folder {
    /// Returns when all but the last pages of the log are folded, or the thread has ended.
    pub(super) async fn fold(&self) {
        let (reply, folded) = oneshot::channel();
        if self.orders.send(Order::FoldFor(reply)).is_ok() {
            // A thread that ends drops the sender.
            let _ = folded.await;
        }
    }
}

impl Folding {
    /// Starts the thread for a database whose writer has this connection. From here on the connection folds nothing by itself.
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
        let (tell, done) = mpsc::channel();
        let fold_on_request = move || {
            while let Ok(order) = ordered.recv() {
                let reply = match order {
                    Order::Fold => None,
                    Order::FoldFor(reply) => Some(reply),
                    Order::End => return,
                };
                fold_most(&connection);
                // Who asked may be gone: the log is folded all the same.
                let _ = reply.map_or_else(|| tell.send(()).ok(), |reply| reply.send(()).ok());
            }
        };
        let thread = std::thread::Builder::new().name("windlass-folder".into()).spawn(fold_on_request);
        let thread = thread.map_err(|error| OpenError::File { path: path.to_owned(), error })?;
        Ok(Folding { pages, next: FOLD_AT, is_under_way: false, orders, done, thread: Some(thread) })
    }

    /// Whoever is not the writer asks here.
    pub(super) fn folder(&self) -> Folder {
        Folder { orders: self.orders.clone() }
    }

    /// Has the log folded if it is time for that, after a commit of the writer's.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if self.is_under_way {
            self.finish(writer, pages);
        } else if pages + AGAIN_AFTER < self.next {
            // It has begun anew.
            self.next = FOLD_AT;
        } else if pages >= self.next {
            self.is_under_way = self.orders.send(Order::Fold).is_ok();
            if !self.is_under_way {
                self.fold_rest(writer, pages);
            }
        }
    }

    /// Goes on when the thread is done.
    fn finish(&mut self, writer: &Connection, pages: u32) {
        let told = if pages < PAGES_MAX { self.done.try_recv() } else { self.done.recv().map_err(Into::into) };
        if told != Err(mpsc::TryRecvError::Empty) {
            self.is_under_way = false;
            self.fold_rest(writer, pages);
        }
    }

    fn fold_rest(&mut self, writer: &Connection, pages: u32) {
        fold(writer);
        self.next = pages + AGAIN_AFTER;
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        // A thread that has ended hears nothing.
        let _ = self.orders.send(Order::End);
        // Its connection must be closed before the writer's: the last one folds all there is.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that folds the log panicked");
        }
    }
}

/// Folds until the writer is hardly ahead.
fn fold_most(connection: &Connection) {
    let mut folded = 0;
    for _ in 0..ROUNDS {
        match fold(connection) {
            Some(pages) if pages.saturating_sub(folded) > REST => folded = pages,
            Some(_) | None => return,
        }
    }
}

/// Folds what is in the log and no reader needs: how many of its pages are folded then.
fn fold(connection: &Connection) -> Option<u32> {
    // What cannot be folded now, on a full disk say, stays in the log, where everybody finds it.
    let folded = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut fold| fold.query_row([], |row| row.get(2)));
    let folded: i64 =
        folded.inspect_err(|error| tracing::warn!(%error, "the write-ahead log cannot be folded back into the database")).ok()?;
    // Less than nothing: somebody else folds, a stranger's tool perhaps.
    u32::try_from(folded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABYTE: u32 = 256;

    struct Log {
        folding: Folding,
        writer: Connection,
        path: tempfile::TempDir,
    }

    impl Log {
        fn new() -> Self {
            let path = tempfile::tempdir().unwrap();
            let mut writer = Connection::open(path.path().join("db")).unwrap();
            set_up(&writer).unwrap();
            writer.execute_batch("CREATE TABLE blobs (blob BLOB)").unwrap();
            let folding = Folding::start(&path.path().join("db"), &mut writer).unwrap();
            Log { folding, writer, path }
        }

        /// Writes that many pages; the longest that the log was.
        fn write(&mut self, pages: u32) -> u32 {
            let longest = (0..pages / MEGABYTE).map(|_| {
                self.writer.execute("INSERT INTO blobs VALUES (zeroblob(1 << 20))", []).unwrap();
                self.folding.after_commit(&self.writer);
                self.pages()
            });
            longest.max().unwrap()
        }

        fn pages(&self) -> u32 {
            self.folding.pages.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_log_is_folded_and_begins_anew() {
        let mut log = Log::new();
        let longest = log.write(4 * PAGES_MAX);
        assert!((FOLD_AT..=PAGES_MAX + 2 * MEGABYTE).contains(&longest), "{longest}");
        let length = std::fs::metadata(log.path.path().join("db-wal")).unwrap().len();
        assert!(length < 2 * 4_200 * u64::from(PAGES_MAX), "{length} bytes of log for twice as many written");
    }

    #[test]
    fn a_log_that_somebody_reads_is_folded_when_they_are_done() {
        let mut log = Log::new();
        let reader = Connection::open(log.path.path().join("db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM blobs").unwrap();
        let longest = log.write(2 * FOLD_AT);
        assert!(longest >= 2 * FOLD_AT - MEGABYTE, "nothing that is read is lost: {longest}");
        reader.execute_batch("COMMIT").unwrap();
        // It takes the thread a while, in which the log grows; but not for ever.
        let begins_anew = (0..PAGES_MAX / MEGABYTE).any(|_| log.write(MEGABYTE) < FOLD_AT);
        assert!(begins_anew, "{} pages are left", log.pages());
    }
}
