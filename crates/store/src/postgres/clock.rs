//! The database's clock, as this process knows it. All servers of a database then agree about deadlines, however wrong the clocks of their
//! machines are.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use windlass_kernel::Timestamp;
use windlass_ports::Clock;

/// An answer that took longer is too inaccurate to set the clock.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);

/// A clock that needs no round trips: this process's monotonic clock continues from the last answer of the database.
pub struct DatabaseClock {
    reading: Mutex<ClockReading>,
}

struct ClockReading {
    at: Instant,
    server_ms: i64,
}

impl DatabaseClock {
    /// Sets the clock from the answer `server_ms` to a question that was sent at `asked`. The answer has just arrived.
    pub(super) fn new(asked: Instant, server_ms: i64) -> Self {
        DatabaseClock { reading: Mutex::new(ClockReading::new(asked, server_ms)) }
    }

    /// Takes another answer. An answer that agrees with the present time changes nothing: following every estimate would move the clock
    /// back and forth by half a round trip, and the order of events in this process with it.
    pub(super) fn adjust(&self, asked: Instant, server_ms: i64) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let round_trip = asked.elapsed();
        let latest = server_ms + millis(round_trip) + 1;
        if round_trip <= ROUND_TRIP_MAX && !(server_ms..=latest).contains(&reading.now_ms()) {
            *reading = ClockReading::new(asked, server_ms);
        }
    }
}

impl ClockReading {
    /// The database read its clock between the question and now; the middle is the best estimate.
    fn new(asked: Instant, server_ms: i64) -> Self {
        ClockReading { at: asked + asked.elapsed() / 2, server_ms }
    }

    fn now_ms(&self) -> i64 {
        self.server_ms + millis(self.at.elapsed())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.reading.lock().unwrap_or_else(PoisonError::into_inner).now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_continues_from_the_last_answer() {
        let clock = DatabaseClock::new(Instant::now(), 1_000_000);
        let now = clock.now().0;
        assert!((1_000_000..1_000_400).contains(&now), "{now}");
        clock.adjust(Instant::now(), 5_000_000);
        assert!(clock.now().0 >= 5_000_000);
    }

    #[test]
    fn a_slow_answer_is_ignored() {
        let clock = DatabaseClock::new(Instant::now(), 1_000_000);
        clock.adjust(ago(ROUND_TRIP_MAX * 2), 5_000_000);
        assert!(clock.now().0 < 2_000_000);
    }

    #[test]
    fn an_answer_that_agrees_does_not_turn_it_back() {
        let clock = DatabaseClock::new(Instant::now(), 1_000_000);
        let way = ROUND_TRIP_MAX / 2;
        // Read right after the question or right before the answer: the middle would be wrong by an eighth of a second.
        clock.adjust(ago(way), 1_000_000);
        assert!(clock.now().0 < 1_000_050, "{:?}", clock.now());
        clock.adjust(ago(way), 1_000_000 - millis(way));
        assert!(clock.now().0 >= 1_000_000, "{:?}", clock.now());
        clock.adjust(Instant::now(), 900_000);
        assert!(clock.now().0 < 900_400, "what does not agree is believed");
    }

    fn ago(duration: Duration) -> Instant {
        Instant::now().checked_sub(duration).expect("the machine has run for a second")
    }
}
