//! The database's clock, as this process last heard it. All servers of a database then mean the same by a deadline, however wrong
//! the clocks of their machines are.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use windlass_kernel::Timestamp;
use windlass_ports::Clock;

/// An answer that took longer says too little about when it was given.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// A clock that asks nobody: this process's own, which never jumps, carries on what the database said.
pub struct DatabaseClock {
    heard: Mutex<Heard>,
}

struct Heard {
    at: Instant,
    told_ms: i64,
}

impl DatabaseClock {
    /// The database answered `told_ms` to a question asked at `asked`, just now.
    pub(super) fn new(asked: Instant, told_ms: i64) -> Self {
        DatabaseClock { heard: Mutex::new(Heard::new(asked, told_ms)) }
    }

    /// It said so again.
    pub(super) fn hear(&self, asked: Instant, told_ms: i64) {
        if asked.elapsed() <= ROUND_TRIP_MAX {
            *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Heard::new(asked, told_ms);
        }
    }
}

impl Heard {
    /// It spoke somewhere between the question and now; halfway is the best guess.
    fn new(asked: Instant, told_ms: i64) -> Self {
        Heard { at: asked + asked.elapsed() / 2, told_ms }
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        Timestamp(heard.told_ms + i64::try_from(heard.at.elapsed().as_millis()).unwrap_or(i64::MAX / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_was_said() {
        let clock = DatabaseClock::new(Instant::now(), 1_000_000);
        let now = clock.now().0;
        assert!((1_000_000..1_000_400).contains(&now), "{now}");
        clock.hear(Instant::now(), 5_000_000);
        assert!(clock.now().0 >= 5_000_000);
    }

    #[test]
    fn a_slow_answer_is_not_believed() {
        let clock = DatabaseClock::new(Instant::now(), 1_000_000);
        let long_ago = Instant::now().checked_sub(ROUND_TRIP_MAX * 2).expect("the machine has run for a second");
        clock.hear(long_ago, 5_000_000);
        assert!(clock.now().0 < 2_000_000);
    }
}
