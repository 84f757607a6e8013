//! Where the engine's tasks run, and how they all end at once.

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Starts tasks. With a token they all end the moment it is cancelled, as if the process had died: that is for simulations.
pub(crate) struct Tasks {
    life: Option<CancellationToken>,
}

impl Tasks {
    pub fn new(life: Option<CancellationToken>) -> Self {
        Tasks { life }
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // Tasks have kilobytes of state, which the runtime would move about several times.
        let task = Box::pin(task);
        match self.life.clone() {
            None => tokio::spawn(task).abort_handle(),
            Some(life) => tokio::spawn(async move {
                let _ = life.run_until_cancelled(task).await;
            })
            .abort_handle(),
        }
    }
}
