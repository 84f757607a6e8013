//! LISTEN/NOTIFY: rings between processes over the PostgreSQL database that they share.
//!
//! One connection listens and another one rings, both separate from those of the store: a NOTIFY inside a committing transaction would make
//! all commits wait for one lock. Both connections are made again after they break.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_postgres::{AsyncMessage, Client, Statement};
use windlass_ports::{Doorbell, NodeId, Ring};

use super::{PAUSE, RingForwarder, link::Link, waiting::Waiting};
use crate::postgres::Endpoint;

const CHANNEL: &str = "windlass";
/// How long a connection attempt may take, and how long a ring.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// When a silent connection is checked.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The first and the longest pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The address of the database is invalid. It is not repeated, because it may have a password.
#[derive(Debug, thiserror::Error)]
#[error("this is not the address of a PostgreSQL database, such as postgres://user@host/db: {0}")]
pub struct NotifyError(String);

/// The doorbell of processes that share a PostgreSQL store.
pub struct Notify {
    waiting: Arc<Waiting>,
    tasks: [JoinHandle<()>; 2],
}

impl Notify {
    /// Connects in the background. The receiver gives the rings of other nodes.
    pub fn connect(url: &str, node: NodeId) -> Result<(Arc<Self>, mpsc::Receiver<Ring>), NotifyError> {
        let mut endpoint = Endpoint::read(url).map_err(|error| NotifyError(error.to_string()))?;
        endpoint.config.application_name("windlass doorbell").connect_timeout(ANSWER_MAX).keepalives_idle(KEEPALIVE);
        let waiting = Arc::new(Waiting::default());
        let (forwarder, rings) = RingForwarder::new(node);
        let tasks = [tokio::spawn(listen(endpoint.clone(), forwarder)), tokio::spawn(ring(endpoint, node, waiting.clone()))];
        Ok((Arc::new(Notify { waiting, tasks }), rings))
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Doorbell for Notify {
    fn ring(&self, ring: Ring) {
        self.waiting.put(ring);
    }
}

/// Backoff: pauses that grow with every failure.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Pauses(RETRY_PAUSE)
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_PAUSE_MAX);
    }
}

async fn listen(endpoint: Endpoint, forwarder: RingForwarder) {
    let mut link = Link::new("LISTEN");
    let mut pauses = Pauses::new();
    loop {
        let why = match listen_once(&endpoint, &forwarder, &mut link, &mut pauses).await {
            Ok(()) => "the connection was closed".to_owned(),
            Err(error) => error_text(&error),
        };
        link.down(why);
        pauses.pause().await;
    }
}

/// Listens until the connection ends.
async fn listen_once(
    endpoint: &Endpoint,
    forwarder: &RingForwarder,
    link: &mut Link,
    pauses: &mut Pauses,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut messages) = endpoint.listener().await?;
    let listen = format!("LISTEN {CHANNEL}");
    let listening = client.batch_execute(&listen);
    tokio::pin!(listening);
    let mut is_listening = false;
    loop {
        tokio::select! {
            done = &mut listening, if !is_listening => {
                done?;
                is_listening = true;
                *pauses = Pauses::new();
                link.up();
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => forwarder.message(notification.payload().as_bytes()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
    }
}

/// A connection for sending rings.
struct Bell {
    client: Client,
    notify: Statement,
}

async fn ring(endpoint: Endpoint, node: NodeId, waiting: Arc<Waiting>) {
    let mut link = Link::new("NOTIFY");
    let mut pauses = Pauses::new();
    let mut bell = None;
    loop {
        let message = waiting.take(node).await;
        match tokio::time::timeout(ANSWER_MAX, send(&endpoint, &mut bell, &message)).await {
            Ok(Ok(())) => {
                link.up();
                pauses = Pauses::new();
                tokio::time::sleep(PAUSE).await;
            }
            failed => {
                link.down(failed.map_or_else(
                    |_| "it does not answer".to_owned(),
                    |sent| sent.err().map_or_else(String::new, |error| error_text(&error)),
                ));
                bell = None;
                // Rings only matter at once: what is missed is found by the sweep.
                waiting.clear();
                pauses.pause().await;
            }
        }
    }
}

async fn send(endpoint: &Endpoint, bell: &mut Option<Bell>, message: &str) -> Result<(), tokio_postgres::Error> {
    let bell = match bell {
        Some(bell) if !bell.client.is_closed() => bell,
        Some(_) | None => bell.insert(connect(endpoint).await?),
    };
    bell.client.execute(&bell.notify, &[&CHANNEL, &message]).await.map(|_| ())
}

async fn connect(endpoint: &Endpoint) -> Result<Bell, tokio_postgres::Error> {
    // The next ring notices if the connection has ended.
    let client = endpoint.client().await?;
    let notify = client.prepare("SELECT pg_notify($1, $2)").await?;
    Ok(Bell { client, notify })
}

/// An error with its sources, because the outermost one says little.
fn error_text(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
