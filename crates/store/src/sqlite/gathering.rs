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
const CROWD: usize = 8;

/// The senders of a large group send their next requests within about one or two flushes. It is worth waiting for them: otherwise two
/// groups would alternate for ever, one being sent while the other is written, and every page that they share would be written twice.
const CROWD_PAUSE: Duration = Duration::from_micros(600);

/// A request that may be able to wait for others.
pub(super) trait Waits {
    fn may_wait(&self) -> bool;
}

/// The length of the queue at which a sleeping writer wants to be woken.
#[derive(Clone, Default)]
pub(super) struct Wakes {
    at: Arc<AtomicUsize>,
}

impl Wakes {
    /// Wakes the writer if the queue has the length that it waits for.
    pub(super) fn wake(&self, writer: &Thread, waiting: usize) {
        if waiting >= self.at.load(SeqCst) {
            writer.unpark();
        }
    }
}

/// The queue, and what is known of the requests that will follow.
pub(super) struct Gathering<M> {
    waiting: mpsc::Receiver<M>,
    wakes: Wakes,
    /// The earliest time at which deltas alone may be written again.
    next_words: Instant,
    /// How many senders may return soon, and until when they are waited for.
    crowd: (usize, Instant),
}

impl<M: Waits> Gathering<M> {
    pub(super) fn new(waiting: mpsc::Receiver<M>, wakes: Wakes) -> Self {
        let now = Instant::now();
        Gathering { waiting, wakes, next_words: now, crowd: (0, now) }
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
    pub(super) fn is_joined(&mut self, group: &mut Vec<M>) -> bool {
        loop {
            let is_words = group.iter().all(Waits::may_wait);
            let (enough, until) = if is_words { (GROUP_MAX, self.next_words) } else { self.crowd };
            let now = Instant::now();
            let pause = until.saturating_duration_since(now);
            if group.len() >= enough || pause.is_zero() || self.waiting.is_closed() {
                self.next_words = now + DELTA_PAUSE;
                return false;
            }
            if self.take(group) {
                return true;
            }
            // It is worth waking up for half of the missing requests.
            let missing = if is_words { 1 } else { (enough - group.len()).div_ceil(2) };
            self.wakes.at.store(missing, SeqCst);
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
        let count = group.iter().filter(|member| !member.may_wait()).count() + self.waiting.len();
        let pause = if count < CROWD { Duration::ZERO } else { CROWD_PAUSE };
        self.crowd = (count.min(GROUP_MAX), Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deltas may wait, other requests may not.
    const WORDS: bool = true;
    const OTHER: bool = false;

    impl Waits for bool {
        fn may_wait(&self) -> bool {
            *self
        }
    }

    /// A writer that waits up to a second, for the time of deltas or for this many requests.
    struct Patient {
        group: Vec<bool>,
        crowd: usize,
    }

    impl Patient {
        /// How long it waits while others arrive, and how many it has then.
        fn waits(mut self, arriving: impl FnOnce(&dyn Fn(bool)) + Send + 'static) -> (Duration, usize) {
            let (queue, waiting) = mpsc::channel(2 * GROUP_MAX);
            let (since, writer, wakes) = (Instant::now(), std::thread::current(), Wakes::default());
            let mut gathering = Gathering::new(waiting, wakes.clone());
            let until = since + Duration::from_secs(1);
            (gathering.next_words, gathering.crowd) = (until, (self.crowd, until));
            let sender = std::thread::spawn(move || {
                arriving(&|may_wait| {
                    queue.blocking_send(may_wait).unwrap();
                    if !may_wait {
                        wakes.wake(&writer, queue.max_capacity() - queue.capacity());
                    }
                });
                // A closed queue would end every wait.
                queue
            });
            while gathering.is_joined(&mut self.group) {}
            let waited = since.elapsed();
            sender.join().unwrap();
            (waited, self.group.len())
        }
    }

    fn waits(group: &[bool], arriving: impl FnOnce(&dyn Fn(bool)) + Send + 'static) -> bool {
        Patient { group: group.to_vec(), crowd: 0 }.waits(arriving).0 >= Duration::from_secs(1)
    }

    fn soon(may_wait: bool) -> impl FnOnce(&dyn Fn(bool)) + Send + 'static {
        move |send| {
            std::thread::sleep(Duration::from_millis(20));
            send(may_wait);
        }
    }

    #[test]
    fn words_wait_for_company_and_transitions_for_nobody() {
        assert!(waits(&[WORDS, WORDS], |_| ()));
        assert!(!waits(&[WORDS, OTHER], |send| send(WORDS)));
        assert!(!waits(&[WORDS], soon(OTHER)), "a transition ends the wait");
        assert!(waits(&[WORDS], soon(WORDS)), "more words do not");
        assert!(!waits(&[WORDS; GROUP_MAX], |_| ()), "a full group goes");
    }

    #[test]
    fn a_crowd_that_was_just_answered_is_waited_for_until_it_is_back() {
        let crowd = || Patient { group: vec![OTHER; 10], crowd: 20 };
        let back = |count: usize| move |send: &dyn Fn(bool)| (0..count).for_each(|_| send(OTHER));
        let (waited, count) = crowd().waits(back(10));
        assert!(waited < Duration::from_millis(900), "{waited:?}");
        assert_eq!(count, 20);
        let (waited, count) = crowd().waits(back(9));
        assert!(waited >= Duration::from_secs(1), "one is missing: {waited:?}");
        assert_eq!(count, 19);
    }

    #[test]
    fn a_few_are_no_crowd() {
        let (_queue, waiting) = mpsc::channel(1);
        let mut gathering = Gathering::new(waiting, Wakes::default());
        gathering.answered(&[OTHER; CROWD - 1]);
        assert!(gathering.crowd.1 <= Instant::now());
        gathering.answered(&[WORDS; 2 * CROWD]);
        assert!(gathering.crowd.1 <= Instant::now(), "nobody is back soon with words");
        let before = Instant::now();
        gathering.answered(&[OTHER; CROWD]);
        assert_eq!(gathering.crowd.0, CROWD);
        assert!(gathering.crowd.1 >= before + CROWD_PAUSE, "so many are waited for");
    }
}
