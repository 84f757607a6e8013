//! Limits the log lines about refusals, so that a flood of requests does not flood the log.

use std::sync::{Mutex, PoisonError};

use windlass_kernel::Timestamp;

/// Lines in one window.
const LINES_MAX: u32 = 10;
/// The length of a window.
const WINDOW_MS: i64 = 60_000;

/// The limit, and the window in progress.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    began: Timestamp,
    logged: u32,
    suppressed: u64,
}

impl Lines {
    /// The number of lines suppressed since the last one, if a line may be logged now. `None` suppresses this one.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = state.get_or_insert(Window { began: now, logged: 0, suppressed: 0 });
        // A clock that was set back begins a window, too.
        if !(0..WINDOW_MS).contains(&now.0.saturating_sub(window.began.0)) {
            (window.began, window.logged) = (now, 0);
        }
        if window.logged >= LINES_MAX {
            window.suppressed += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tm_13_a_flood_of_refusals_is_a_few_lines_and_a_number() {
        let (lines, now) = (Lines::default(), Timestamp(1_000));
        assert_eq!((0..1_000).filter(|_| lines.admit(now).is_some()).count(), LINES_MAX as usize);
        assert_eq!(lines.admit(Timestamp(1_000 + WINDOW_MS)), Some(990), "the next window says how many there were");
        assert_eq!(lines.admit(Timestamp(0)), Some(0));
    }
}
