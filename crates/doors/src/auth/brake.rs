//! Delays the answers to a peer that sends one wrong token after the other. Requests with a right token are never delayed.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::peers::PeerKey;

/// Wrong tokens of one peer that are answered at once, per window.
const PROMPT_MAX: u32 = 20;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);
/// The delay of the answer to each further wrong token.
const DELAY: Duration = Duration::from_secs(1);
/// Answers that may be delayed at the same time. Each keeps its connection open.
const DELAYED_MAX: usize = 256;
/// Peers that are counted per window, which bounds the memory.
const PEERS_MAX: usize = 10_000;

/// Counts the wrong tokens of each peer.
#[derive(Debug)]
pub(crate) struct LoginBrake {
    window: Mutex<Option<Window>>,
    delayed: Semaphore,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    failures: HashMap<PeerKey, u32>,
}

/// Too many answers are delayed already, so this one is refused at once. The client may retry after this number of seconds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun(pub u32);

impl Default for LoginBrake {
    fn default() -> Self {
        LoginBrake { window: Mutex::default(), delayed: Semaphore::new(DELAYED_MAX) }
    }
}

impl LoginBrake {
    /// Counts a wrong token of `peer` and returns when it may be answered, after a delay if the peer has sent too many.
    pub async fn slow(&self, peer: PeerKey) -> Result<(), Overrun> {
        let Some(left) = self.count(peer, Instant::now()) else { return Ok(()) };
        let Ok(_permit) = self.delayed.try_acquire() else {
            return Err(Overrun(u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1)));
        };
        tokio::time::sleep(DELAY).await;
        Ok(())
    }

    /// The rest of this window, if the answer must be delayed; `None` if it may be prompt.
    fn count(&self, peer: PeerKey, now: Instant) -> Option<Duration> {
        let mut guard = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let window = match &mut *guard {
            Some(window) if now.duration_since(window.began) < WINDOW => window,
            over => over.insert(Window { began: now, failures: HashMap::new() }),
        };
        let left = WINDOW.saturating_sub(now.duration_since(window.began));
        if window.failures.len() >= PEERS_MAX && !window.failures.contains_key(&peer) {
            // The table is full: that many peers with wrong tokens are one attack, so further peers are delayed without a count of their
            // own.
            return Some(left);
        }
        let failures = window.failures.entry(peer).or_default();
        *failures = failures.saturating_add(1);
        (*failures > PROMPT_MAX).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn peer(number: u32) -> PeerKey {
        PeerKey::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn tm_14_a_peer_has_few_prompt_answers_in_a_window() {
        let (brake, now) = (LoginBrake::default(), Instant::now());
        let prompt = (0..100).filter(|_| brake.count(peer(1), now).is_none()).count();
        assert_eq!(prompt, PROMPT_MAX as usize);
        assert_eq!(brake.count(peer(2), now), None, "others have their own");
        let later = now + Duration::from_secs(50);
        assert_eq!(brake.count(peer(1), later), Some(Duration::from_secs(10)));
        assert_eq!(brake.count(peer(1), now + WINDOW), None, "the next window starts at zero");
    }

    #[test]
    fn tm_14_the_table_of_peers_is_bounded() {
        let (brake, now) = (LoginBrake::default(), Instant::now());
        for number in 0..2 * u32::try_from(PEERS_MAX).expect("a small number") {
            brake.count(peer(number), now);
        }
        let counted = brake.window.lock().expect("no panic").as_ref().map(|window| window.failures.len());
        assert_eq!(counted, Some(PEERS_MAX));
        assert!(brake.count(peer(u32::MAX), now).is_some(), "a peer without room is slowed");
    }

    #[tokio::test]
    async fn tm_14_answers_wait_in_limited_number() {
        let (brake, now) = (LoginBrake::default(), Instant::now());
        while brake.count(peer(1), now).is_none() {}
        let _waiting = brake.delayed.try_acquire_many(u32::try_from(DELAYED_MAX).expect("a small number")).expect("all are free");
        let refused = brake.slow(peer(1)).await;
        assert!(matches!(refused, Err(Overrun(1..=60))), "{refused:?}");
    }
}
