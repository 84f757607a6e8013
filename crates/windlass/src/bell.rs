//! Which doorbell this process has.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::mpsc;
use windlass_ports::{Doorbell, NodeId, Publisher, Ring};
use windlass_store::{Nats, Notify};

use crate::config::{self, Place};

/// What the engine needs to reach others.
#[derive(Default)]
pub(crate) struct Bell {
    pub doorbell: Option<Arc<dyn Doorbell>>,
    pub bells: Option<mpsc::Receiver<Ring>>,
    pub publisher: Option<Arc<dyn Publisher>>,
}

impl Bell {
    /// NATS, if it is configured; else what the database has. Neither need be there yet.
    pub async fn hang(doorbell: Option<&config::Doorbell>, place: &Place<'_>, node: NodeId) -> anyhow::Result<Self> {
        match (doorbell, place) {
            (Some(nats), place) => {
                let (nats, bells) = Nats::connect(nats.url.expose(), &nats.prefix, node).await.context("doorbell.url")?;
                let publisher: Option<Arc<dyn Publisher>> = Some(nats.clone());
                Ok(match place {
                    // A file has one process: there is nobody to ring for.
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
