//! A token bucket: a burst of requests at once, and more at a constant rate.

use windlass_kernel::Timestamp;

/// The cost of one request. A bucket is counted in millionths of a request, so that slow rates fill it evenly.
const REQUEST: u64 = 1_000_000;

/// The rate at which requests are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a thousand seconds, above zero.
    pub per_1000_s: u64,
    /// Requests that may come at once, above zero.
    pub burst: u32,
}

/// The rest of a tenant's rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    left: u64,
    at: Timestamp,
}

impl Bucket {
    pub fn full(rate: Rate, now: Timestamp) -> Self {
        Bucket { left: capacity(rate), at: now }
    }

    /// Takes one request out. If the bucket is empty, returns the seconds until there is one.
    pub fn take(&mut self, rate: Rate, now: Timestamp) -> Result<(), u32> {
        // A clock that was set back fills nothing.
        let passed_ms = u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0);
        self.left = self.left.saturating_add(passed_ms.saturating_mul(rate.per_1000_s)).min(capacity(rate));
        self.at = now;
        match self.left.checked_sub(REQUEST) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                let missing_ms = (REQUEST - self.left).div_ceil(rate.per_1000_s.max(1));
                Err(u32::try_from(missing_ms.div_ceil(1_000)).unwrap_or(u32::MAX))
            }
        }
    }
}

fn capacity(rate: Rate) -> u64 {
    u64::from(rate.burst.max(1)) * REQUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tm_13_a_bucket_gives_its_burst_and_then_its_rate() {
        let rate = Rate { per_1000_s: 2_000, burst: 3 };
        let mut bucket = Bucket::full(rate, Timestamp(0));
        let taken: Vec<_> = (0..4).map(|_| bucket.take(rate, Timestamp(0))).collect();
        assert_eq!(taken, [Ok(()), Ok(()), Ok(()), Err(1)]);
        assert_eq!((bucket.take(rate, Timestamp(499)), bucket.take(rate, Timestamp(500))), (Err(1), Ok(())), "two per second");
        let later: Vec<_> = (0..4).map(|_| bucket.take(rate, Timestamp(1_000_000))).collect();
        assert_eq!(later, [Ok(()), Ok(()), Ok(()), Err(1)], "it holds no more than its burst");
        assert_eq!(bucket.take(rate, Timestamp(0)), Err(1), "a clock that is set back fills nothing");
        assert_eq!(bucket.take(rate, Timestamp(500)), Ok(()));
    }

    #[test]
    fn a_slow_rate_says_how_long_to_wait() {
        let rate = Rate { per_1000_s: 100, burst: 1 };
        let mut bucket = Bucket::full(rate, Timestamp(0));
        assert_eq!((bucket.take(rate, Timestamp(0)), bucket.take(rate, Timestamp(0))), (Ok(()), Err(10)));
        assert_eq!((bucket.take(rate, Timestamp(9_001)), bucket.take(rate, Timestamp(10_000))), (Err(1), Ok(())));
    }
}
