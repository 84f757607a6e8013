//! Which doorbell this process has.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::mpsc;
use windlass_ports::{Doorbell, NodeId, Publisher, Ring};
use windlass_store::Nats;

use crate::config::Config;

/// What the engine needs to reach other processes. A server alone on its store needs none of it.
#[derive(Default)]
pub(crate) struct Bell {
    pub doorbell: Option<Arc<dyn Doorbell>>,
    pub bells: Option<mpsc::Receiver<Ring>>,
    pub publisher: Option<Arc<dyn Publisher>>,
}

impl Bell {
    /// NATS, if it is configured. It need not be there yet.
    pub async fn hang(config: &Config, node: NodeId) -> anyhow::Result<Self> {
        let Some(nats) = &config.doorbell else { return Ok(Bell::default()) };
        let (nats, bells) = Nats::connect(nats.url.expose(), &nats.prefix, node).await.context("doorbell.url")?;
        Ok(Bell { doorbell: Some(nats.clone()), bells: Some(bells), publisher: Some(nats) })
    }
}
