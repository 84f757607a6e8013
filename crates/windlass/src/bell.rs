//! Chooses and connects the doorbell of this process.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::mpsc;
use windlass_ports::{Doorbell, NodeId, Publisher, Ring};
use windlass_store::{Nats, Notify};

use crate::config::{self, Place};

/// The parts through which the engine rings and publishes.
#[derive(Default)]
pub(crate) struct Bell {
    pub doorbell: Option<Arc<dyn Doorbell>>,
    pub bells: Option<mpsc::Receiver<Ring>>,
    pub publisher: Option<Arc<dyn Publisher>>,
}

impl Bell {
    /// Connects NATS if it is configured, else uses what the database offers. Neither needs to be reachable yet.
    pub async fn connect(doorbell: Option<&config::Doorbell>, place: &Place<'_>, node: NodeId) -> anyhow::Result<Self> {
        match (doorbell, place) {
            (Some(nats), place) => {
                let (nats, bells) = Nats::connect(nats.url.expose(), &nats.prefix, node).await.context("doorbell.url")?;
                let publisher: Option<Arc<dyn Publisher>> = Some(nats.clone());
                Ok(match place {
                    // A SQLite file belongs to one process, so there is no other process to ring.
                    Place::File(_) => Bell { publisher, ..Bell::default() },
                    Place::Postgres(_) => Bell { doorbell: Some(nats), bells: Some(bells), publisher },
                })
            }
            (None, Place::Postgres(url)) => {
                let (notify, bells) = Notify::connect(url.expose(), node).context("store.url")?;
                Ok(Bell { doorbell: Some(notify), bells: Some(bells), publisher: None })
            }
            (None, Place::File(_)) => Ok(Bell::default()),
        }
    }
}
