//! Group commit: the requests that arrived while the last group was written are the next group, and requests that arrive while it is
//! applied join it, as long as the writer waits for any.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread::Thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

/// The most requests in a transaction.
pub(super) const GROUP_MAX: usize = 256;

/// A group that only has deltas is committed no sooner than this after the last commit began. A thousand streams would otherwise have a
/// commit each, where one for a hundred and fifty of them does as well; readers do not notice the delay.
const DELTA_PAUSE: Duration = Duration::from_millis(3);

/// From this many requests on a group counts as large.
const LARGE_GROUP: usize = 8;

/// The senders of a large group send their next requests within about one or two flushes. It is worth waiting for them: otherwise two
/// groups would alternate for ever, one being sent while the other is written, and every page that they share would be written twice.
const LARGE_GROUP_PAUSE: Duration = Duration::from_micros(600);

/// A request that may be able to wait for others.
pub(super) trait Deferrable {
    fn is_deferrable(&self) -> bool;
}

/// The length of the queue at which a sleeping writer wants to be woken.
#[derive(Clone, Default)]
pub(super) struct WakeThreshold {
    at: Arc<AtomicUsize>,
}

impl WakeThreshold {
    /// Wakes the writer if the queue has the length that it waits for.
    pub(super) fn wake(&self, writer: &Thread, waiting: usize) {
        if waiting >= self.at.load(SeqCst) {
            writer.unpark();
        }
    }
}

/// The queue, and what is known of the requests that will follow.
pub(super) struct GroupCommit<M> {
    waiting: mpsc::Receiver<M>,
    threshold: WakeThreshold,
    /// The earliest time at which deltas alone may be written again.
    next_deltas: Instant,
    /// How many senders may return soon, and until when they are waited for.
    expected: (usize, Instant),
}

impl<M: Deferrable> GroupCommit<M> {
    pub(super) fn new(waiting: mpsc::Receiver<M>, threshold: WakeThreshold) -> Self {
        let now = Instant::now();
        GroupCommit { waiting, threshold, next_deltas: now, expected: (0, now) }
    }

    /// Begins the next group with the waiting requests, or waits for the next one. False if all senders are dropped.
    pub(super) fn begin(&mut self, group: &mut Vec<M>) -> bool {
        let first = self.waiting.blocking_recv();
        group.extend(first);
        self.take(group);
        !group.is_empty()
    }

    /// Waits until a request joins the group; the requests that it has may be applied meanwhile. False once the group is to be committed.
    /// Deltas alone wait until their time or for another request; a group with anything else only waits for the senders that were just
    /// answered.
    pub(super) fn wait_for_more(&mut self, group: &mut Vec<M>) -> bool {
        loop {
            let only_deltas = group.iter().all(Deferrable::is_deferrable);
            let (enough, until) = if only_deltas { (GROUP_MAX, self.next_deltas) } else { self.expected };
            let now = Instant::now();
            let pause = until.saturating_duration_since(now);
            if group.len() >= enough || pause.is_zero() || self.waiting.is_closed() {
                self.next_deltas = now + DELTA_PAUSE;
                return false;
            }
            if self.take(group) {
                return true;
            }
            // It is worth waking up for half of the missing requests.
            let missing = if only_deltas { 1 } else { (enough - group.len()).div_ceil(2) };
            self.threshold.at.store(missing, SeqCst);
            // Requests that arrived before the threshold was set did not wake it.
            if self.waiting.len() < missing {
                std::thread::park_timeout(pause);
            }
            if self.take(group) {
                return true;
            }
        }
    }

    /// Takes the waiting requests. False if there are none.
    fn take(&mut self, group: &mut Vec<M>) -> bool {
        let before = group.len();
        while group.len() < GROUP_MAX
            && let Ok(next) = self.waiting.try_recv()
        {
            group.push(next);
        }
        group.len() > before
    }

    /// Records that the senders of this group, and of the waiting requests, may return soon.
    pub(super) fn answered(&mut self, group: &[M]) {
        let count = group.iter().filter(|member| !member.is_deferrable()).count() + self.waiting.len();
        let pause = if count < LARGE_GROUP { Duration::ZERO } else { LARGE_GROUP_PAUSE };
        self.expected = (count.min(GROUP_MAX), Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deltas may wait, other requests may not.
    const DELTAS: bool = true;
    const OTHER: bool = false;

    impl Deferrable for bool {
        fn is_deferrable(&self) -> bool {
            *self
        }
    }

    /// A writer that waits up to a second, for the time of deltas or for this many requests.
    struct WaitingWriter {
        group: Vec<bool>,
        expected: usize,
    }

    impl WaitingWriter {
        /// How long it waits while others arrive, and how many it has then.
        fn waits(mut self, arriving: impl FnOnce(&dyn Fn(bool)) + Send + 'static) -> (Duration, usize) {
            let (queue, waiting) = mpsc::channel(2 * GROUP_MAX);
            let (since, writer, threshold) = (Instant::now(), std::thread::current(), WakeThreshold::default());
            let mut group_commit = GroupCommit::new(waiting, threshold.clone());
            let until = since + Duration::from_secs(1);
            (group_commit.next_deltas, group_commit.expected) = (until, (self.expected, until));
            let sender = std::thread::spawn(move || {
                arriving(&|is_deferrable| {
                    queue.blocking_send(is_deferrable).unwrap();
                    if !is_deferrable {
                        threshold.wake(&writer, queue.max_capacity() - queue.capacity());
                    }
                });
                // A closed queue would end every wait.
                queue
            });
            while group_commit.wait_for_more(&mut self.group) {}
            let waited = since.elapsed();
            sender.join().unwrap();
            (waited, self.group.len())
        }
    }

    fn waits(group: &[bool], arriving: impl FnOnce(&dyn Fn(bool)) + Send + 'static) -> bool {
        WaitingWriter { group: group.to_vec(), expected: 0 }.waits(arriving).0 >= Duration::from_secs(1)
    }

    fn soon(is_deferrable: bool) -> impl FnOnce(&dyn Fn(bool)) + Send + 'static {
        move |send| {
            std::thread::sleep(Duration::from_millis(20));
            send(is_deferrable);
        }
    }

    #[test]
    fn deltas_wait_for_other_requests_and_transitions_do_not() {
        assert!(waits(&[DELTAS, DELTAS], |_| ()));
        assert!(!waits(&[DELTAS, OTHER], |send| send(DELTAS)));
        assert!(!waits(&[DELTAS], soon(OTHER)), "a transition ends the wait");
        assert!(waits(&[DELTAS], soon(DELTAS)), "more deltas do not");
        assert!(!waits(&[DELTAS; GROUP_MAX], |_| ()), "a full group goes");
    }

    #[test]
    fn the_senders_of_a_large_group_are_waited_for_until_they_return() {
        let expected = || WaitingWriter { group: vec![OTHER; 10], expected: 20 };
        let back = |count: usize| move |send: &dyn Fn(bool)| (0..count).for_each(|_| send(OTHER));
        let (waited, count) = expected().waits(back(10));
        assert!(waited < Duration::from_millis(900), "{waited:?}");
        assert_eq!(count, 20);
        let (waited, count) = expected().waits(back(9));
        assert!(waited >= Duration::from_secs(1), "one is missing: {waited:?}");
        assert_eq!(count, 19);
    }

    #[test]
    fn a_small_group_is_not_waited_for() {
        let (_queue, waiting) = mpsc::channel(1);
        let mut group_commit = GroupCommit::new(waiting, WakeThreshold::default());
        group_commit.answered(&[OTHER; LARGE_GROUP - 1]);
        assert!(group_commit.expected.1 <= Instant::now());
        group_commit.answered(&[DELTAS; 2 * LARGE_GROUP]);
        assert!(group_commit.expected.1 <= Instant::now(), "senders of deltas are not expected");
        let before = Instant::now();
        group_commit.answered(&[OTHER; LARGE_GROUP]);
        assert_eq!(group_commit.expected.0, LARGE_GROUP);
        assert!(group_commit.expected.1 >= before + LARGE_GROUP_PAUSE, "this many are waited for");
    }
}
