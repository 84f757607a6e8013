//! The spawning of the engine's tasks, and how all of them end at once.

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Spawns tasks. With a token, all of them end the moment it is cancelled, as if the process had died; that is for simulations.
pub(crate) struct Tasks {
    life: Option<CancellationToken>,
}

impl Tasks {
    pub fn new(life: Option<CancellationToken>) -> Self {
        Tasks { life }
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        // The future of a task has kilobytes of state. Boxed, it is not moved several times by the runtime.
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
