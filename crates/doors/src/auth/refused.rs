//! Logs refused logins, with a limit: a flood of them must not flood the log.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::peers::PeerKey;

/// Lines about refused logins per window.
const LINES_MAX: u32 = 10;

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// The rate limit of these log lines.
#[derive(Debug, Default)]
pub(crate) struct RefusedLogins {
    window: Mutex<Option<LogWindow>>,
}

#[derive(Debug)]
struct LogWindow {
    began: Instant,
    logged: u32,
    suppressed: u64,
}

impl RefusedLogins {
    /// Logs a refused login, unless this window has had its lines. `client` is the peer that a proxy names.
    pub fn log(&self, peer: Option<std::net::SocketAddr>, client: Option<PeerKey>, reason: &str) {
        if let Some(suppressed) = self.admit(Instant::now()) {
            let peer = peer.map(tracing::field::display);
            let client = client.map(tracing::field::display);
            tracing::warn!(peer, client, reason, suppressed, "a login was refused");
        }
    }

    /// Whether a line may be logged now, and how many were suppressed since the last one.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut guard = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let window = guard.get_or_insert(LogWindow { began: now, logged: 0, suppressed: 0 });
        if now.duration_since(window.began) >= WINDOW {
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
    fn a_flood_of_refused_logins_is_a_few_lines_and_a_number() {
        let (refused, now) = (RefusedLogins::default(), Instant::now());
        let lines = (0..1_000).filter(|_| refused.admit(now).is_some()).count();
        assert_eq!(lines, LINES_MAX as usize);
        assert_eq!(refused.admit(now + WINDOW), Some(990), "the next window says how many there were");
        assert_eq!(refused.admit(now + WINDOW), Some(0));
    }
}
