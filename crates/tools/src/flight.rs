//! Something that many want and one makes.

use std::time::Instant;

use tokio::sync::Mutex;

use crate::Failure;

/// One value, made by the first who wants it while the others wait, and made again once it is no longer good.
pub(crate) struct Flight<T>(Mutex<State<T>>);

struct State<T> {
    made: Option<(Instant, T)>,
    failed: Option<(Instant, Failure)>,
}

impl<T: Clone> Flight<T> {
    pub(crate) fn new() -> Self {
        Flight(Mutex::new(State { made: None, failed: None }))
    }

    /// The value, if it is still good, else a new one. Whoever waited for a making that failed shares its failure: five
    /// who wait for a dead server wait once, not five times in a row.
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

    /// Looks at the value as it is, unless somebody is busy with it.
    pub(crate) fn look<R>(&self, look: impl FnOnce(Option<&T>) -> R) -> Option<R> {
        self.0.try_lock().ok().map(|state| look(state.made.as_ref().map(|(_, value)| value)))
    }

    /// Takes the value out, unless somebody is busy with it.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.try_lock().ok()?.made.take().map(|(_, value)| value)
    }
}
