//! Single-flight: concurrent requests for a value share one computation of it.

use std::time::Instant;

use tokio::sync::Mutex;

use crate::Failure;

/// One cached value. The first caller computes it while the others wait; once it is no longer good, the next caller computes it again.
pub(crate) struct SingleFlight<T>(Mutex<State<T>>);

struct State<T> {
    made: Option<(Instant, T)>,
    failed: Option<(Instant, Failure)>,
}

impl<T: Clone> SingleFlight<T> {
    pub(crate) fn new() -> Self {
        SingleFlight(Mutex::new(State { made: None, failed: None }))
    }

    /// The cached value if `is_good` accepts it, else the result of `make`. A caller that waited while another computation failed gets that
    /// failure: five callers for a dead server wait once, not five times in a row.
    pub(crate) async fn get(
        &self,
        is_good: impl FnOnce(Instant, &T) -> bool,
        make: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        let mut state = self.0.lock().await;
        if let Some((at, value)) = &state.made
            && is_good(*at, value)
        {
            return Ok(value.clone());
        }
        if let Some((at, failure)) = &state.failed
            && *at > began
        {
            return Err(failure.clone());
        }
        state.made = None;
        let made = make.await;
        match &made {
            Ok(value) => state.made = Some((Instant::now(), value.clone())),
            Err(failure) => state.failed = Some((Instant::now(), failure.clone())),
        }
        made
    }

    /// Reads the cached value with `peek`. `None` if a caller is computing it.
    pub(crate) fn peek<R>(&self, peek: impl FnOnce(Option<&T>) -> R) -> Option<R> {
        self.0.try_lock().ok().map(|state| peek(state.made.as_ref().map(|(_, value)| value)))
    }

    /// Removes the cached value. `None` if there is none or a caller is computing it.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.try_lock().ok()?.made.take().map(|(_, value)| value)
    }
}
