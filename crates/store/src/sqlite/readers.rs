//! Readers beside the writer: each answer is one short read transaction.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use tokio::sync::{mpsc, oneshot};
use windlass_ports::StoreError;

use super::{columns::fault, statements::SqliteRows};
use crate::rows::Outcome;

/// Questions that may wait; more make their senders wait.
const WAITING_MAX: usize = 1_024;

type Question = Box<dyn FnOnce(&mut SqliteRows) + Send>;

/// The way to the reader threads.
pub(super) struct Readers {
    queue: Option<mpsc::Sender<Question>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<SqliteRows>) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel::<Question>(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let mut threads = Vec::with_capacity(connections.len());
        for mut rows in connections {
            let waiting = Arc::clone(&waiting);
            let answer_all = move || {
                while let Some(question) = next(&waiting) {
                    question(&mut rows)
                }
            };
            threads.push(std::thread::Builder::new().name("windlass-reader".into()).spawn(answer_all)?);
        }
        Ok(Readers { queue: Some(queue), threads })
    }

    /// Asks in one read transaction, so that what is read together fits together.
    pub(super) async fn read<T, F>(&self, question: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce(&SqliteRows) -> Outcome<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let ask = move |rows: &mut SqliteRows| {
            // A panic in one answer must not take a reader away from all the others.
            let answered = catch_unwind(AssertUnwindSafe(|| rows.begin_reading().map_err(fault).and_then(|()| question(rows))));
            let outcome = answered.unwrap_or_else(|_| Err(StoreError::Corrupt("a question panicked in a reader".into())));
            rows.roll_back();
            // Whoever asked may be gone.
            let _ = reply.send(outcome);
        };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(Box::new(ask)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reader thread panicked");
            }
        }
    }
}

/// Only the taking is behind the lock, so that one thread waits for questions while others answer.
fn next(waiting: &Mutex<mpsc::Receiver<Question>>) -> Option<Question> {
    waiting.lock().ok()?.blocking_recv()
}

fn gone() -> StoreError {
    StoreError::Unavailable("the readers are gone".into())
}
