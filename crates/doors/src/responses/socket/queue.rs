//! The requests of a socket that wait while another one is being answered.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::{in_flight::ByteLease, responses::error::WireError};

/// Requests that may wait on one socket.
const WAITING_MAX: usize = 32;

/// A request in the queue.
pub(super) enum Waiting {
    Frame(ReceivedFrame),
    /// A request that was refused. Its error is sent in its turn.
    Refused(WireError),
}

/// A complete message. Its bytes count as in flight while the lease is held.
pub(super) struct ReceivedFrame {
    pub text: Bytes,
    pub lease: ByteLease,
}

/// Requests in the order of their arrival, with one consumer.
pub(super) struct Queue {
    entries: Mutex<Entries>,
    news: Notify,
    /// The maximum size of all waiting frames together. One frame is always accepted.
    bytes_max: usize,
}

#[derive(Default)]
struct Entries {
    list: VecDeque<QueueEntry>,
    bytes: usize,
}

enum QueueEntry {
    Waiting(Waiting),
    /// This number of consecutive requests for which there was no room.
    TooMany(u64),
}

impl Queue {
    pub fn new(bytes_max: usize) -> Self {
        Queue { entries: Mutex::default(), news: Notify::new(), bytes_max }
    }

    /// Adds a request. If there is no room, it will be refused in its turn.
    pub fn push(&self, frame: ReceivedFrame) {
        self.enter(frame.text.len(), Waiting::Frame(frame));
    }

    /// Adds an error to be sent in its turn.
    pub fn refuse(&self, error: WireError) {
        self.enter(0, Waiting::Refused(error));
    }

    fn enter(&self, bytes: usize, waiting: Waiting) {
        let mut entries = self.lock();
        let has_room = entries.list.len() < WAITING_MAX && (entries.bytes == 0 || entries.bytes + bytes <= self.bytes_max);
        if has_room {
            entries.bytes += bytes;
            entries.list.push_back(QueueEntry::Waiting(waiting));
        } else if let Some(QueueEntry::TooMany(count)) = entries.list.back_mut() {
            *count += 1;
        } else {
            entries.list.push_back(QueueEntry::TooMany(1));
        }
        drop(entries);
        self.news.notify_one();
    }

    /// Waits for the next request.
    pub async fn next(&self) -> Waiting {
        loop {
            if let Some(waiting) = self.take() {
                return waiting;
            }
            self.news.notified().await;
        }
    }

    fn take(&self) -> Option<Waiting> {
        let mut entries = self.lock();
        if let Some(QueueEntry::TooMany(count)) = entries.list.front_mut() {
            *count -= 1;
            if *count == 0 {
                entries.list.pop_front();
            }
            let message = format!("{WAITING_MAX} requests may wait on one socket, and {} bytes of them; ask again later", self.bytes_max);
            return Some(Waiting::Refused(WireError::too_many("too_many_queued", message, 1)));
        }
        match entries.list.pop_front()? {
            QueueEntry::Waiting(waiting) => {
                if let Waiting::Frame(frame) = &waiting {
                    entries.bytes -= frame.text.len();
                }
                Some(waiting)
            }
            QueueEntry::TooMany(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::ByteBudget;

    fn frame(text: &'static [u8]) -> ReceivedFrame {
        let lease = ByteBudget::new(1_000, 1_000).lease(&"t".into());
        ReceivedFrame { text: Bytes::from_static(text), lease }
    }

    fn drained(queue: &Queue) -> Vec<String> {
        let spelled = |waiting| match waiting {
            Waiting::Frame(frame) => String::from_utf8_lossy(&frame.text).into_owned(),
            Waiting::Refused(error) => error.code().to_owned(),
        };
        std::iter::from_fn(|| queue.take().map(spelled)).collect()
    }

    #[test]
    fn requests_are_taken_in_the_order_of_their_arrival() {
        let queue = Queue::new(10);
        queue.push(frame(b"a"));
        queue.refuse(WireError::bad("invalid_frame", "m"));
        queue.push(frame(b"b"));
        assert_eq!(drained(&queue), ["a", "invalid_frame", "b"]);
    }

    #[test]
    fn a_request_without_room_is_refused_in_its_turn() {
        let queue = Queue::new(10);
        for text in ["12345678", "123", "1", "1234567890"] {
            queue.push(frame(text.as_bytes()));
        }
        assert_eq!(drained(&queue), ["12345678", "too_many_queued", "1", "too_many_queued"]);
        queue.push(frame(b"longer than ten bytes"));
        assert_eq!(drained(&queue), ["longer than ten bytes"], "one always has room");
        for _ in 0..WAITING_MAX + 5 {
            queue.push(frame(b""));
        }
        let all = drained(&queue);
        assert_eq!(all.len(), WAITING_MAX + 5);
        assert!(all[..WAITING_MAX].iter().all(String::is_empty) && all[WAITING_MAX..].iter().all(|code| code == "too_many_queued"));
    }
}
