//! NATS core: rings between processes on `<prefix>.bell`, and the outbox on `<prefix>.<tenant>.<subject>`.
//!
//! NATS may be absent when the server starts, or later: the client keeps trying to connect. A page of the outbox counts as published only
//! when a message that was sent after it on the same connection has come back, and nothing was refused meanwhile.

mod address;
mod message;

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, Subscriber, connection::State};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{
    sync::{Mutex, mpsc, oneshot, watch},
    task::JoinHandle,
};
use windlass_ports::{Doorbell, NodeId, Published, Publisher, Ring};

use super::{PAUSE, RingForwarder, link::Link, waiting::Waiting};
use address::Address;

/// How long the confirmation of a page may take.
const CONFIRM_MAX: Duration = Duration::from_secs(10);
/// The interval of pings on a silent connection. After two pings without an answer it counts as broken.
const PING_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Received messages that wait to be read. Further ones are dropped.
const MESSAGES_MAX: usize = 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const LOST: &str = "the connection to NATS was lost on the way";

/// NATS can't be used with this configuration.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The address is invalid. It is not repeated, because it may have a password.
    #[error("this is not the address of a NATS server, such as nats://127.0.0.1:4222: {0}")]
    Address(String),
    /// The client can't start.
    #[error("the NATS client does not start: {0}")]
    Client(String),
}

/// A connection to NATS: doorbell and publisher.
pub struct Nats {
    client: Client,
    prefix: String,
    waiting: Arc<Waiting>,
    pages: Mutex<Pages>,
    connection: Arc<Connection>,
    tasks: [JoinHandle<()>; 2],
    /// The client's thread ends when this is dropped.
    _thread: oneshot::Sender<()>,
}

/// Confirms pages, one at a time.
struct Pages {
    /// The subscription on which this connection receives its own messages.
    echo: Subscriber,
    subject: String,
    /// The number of the last echo. An older echo that arrives late confirms no other page.
    last: u64,
}

impl Pages {
    /// Waits until the server has handled everything that was sent so far.
    async fn handled(&mut self, client: &Client, broken: &mut watch::Receiver<()>) -> Result<(), String> {
        self.last += 1;
        let number = Bytes::copy_from_slice(&self.last.to_be_bytes());
        client.publish(self.subject.clone(), number.clone()).await.map_err(|error| error.to_string())?;
        loop {
            let echo = tokio::select! {
                echo = self.echo.next() => echo.ok_or("the NATS client has ended")?,
                _ = broken.changed() => return Err(LOST.to_owned()),
            };
            if echo.payload == number {
                return Ok(());
            }
        }
    }
}

impl Nats {
    /// Connects in the background. The receiver gives the rings of other nodes.
    pub async fn connect(url: &str, prefix: &str, node: NodeId) -> Result<(Arc<Self>, mpsc::Receiver<Ring>), NatsError> {
        let address = Address::parse(url).map_err(NatsError::Address)?;
        let bell = format!("{prefix}.bell");
        let connection = Arc::new(Connection::new(&bell));
        let options = address.authorize(options(prefix, connection.clone()));
        let failed = |error: &dyn std::fmt::Display| NatsError::Client(error.to_string());
        let (client, thread) = connect_alone(options, address.servers).await.map_err(|error| failed(&error))?;
        let subject = client.new_inbox();
        let echo = client.subscribe(subject.clone()).await.map_err(|error| failed(&error))?;
        let bells = client.subscribe(bell.clone()).await.map_err(|error| failed(&error))?;
        let waiting = Arc::new(Waiting::default());
        let (forwarder, rings) = RingForwarder::new(node);
        let tasks = [tokio::spawn(listen(bells, forwarder)), tokio::spawn(ring(client.clone(), bell, node, waiting.clone()))];
        let pages = Mutex::new(Pages { echo, subject, last: 0 });
        Ok((Arc::new(Nats { client, prefix: prefix.to_owned(), waiting, pages, connection, tasks, _thread: thread }), rings))
    }

    /// How often a connection was made. While the number stays the same, nothing that was sent can have been lost with a connection.
    fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    async fn send(&self, messages: &[Published]) -> Result<(), String> {
        let mut pages = self.pages.lock().await;
        let mut broken = self.connection.broken.subscribe();
        let refused = self.connection.refused.subscribe();
        let connects = self.connects();
        if self.client.connection_state() != State::Connected {
            return Err("NATS is not connected".to_owned());
        }
        for published in messages {
            let (subject, headers, body) = message::spell(&self.prefix, published);
            if let Err(error) = self.client.publish_with_headers(subject, headers, body).await {
                message::check(published, &error)?;
            }
        }
        // The server reports a refusal before it handles the next message, but the client hands the refusal to another task. That task has
        // run before the client reads again, which the second echo requires.
        for _ in 0..2 {
            pages.handled(&self.client, &mut broken).await?;
        }
        // An echo over a new connection proves nothing about what was sent over the old one.
        if self.connects() != connects {
            return Err(LOST.to_owned());
        }
        // The server does not say which message of a page it refused, so the whole page stays in the outbox.
        match refused.has_changed() {
            Ok(false) => Ok(()),
            _ => Err(format!("NATS refuses something: {}", *refused.borrow())),
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Doorbell for Nats {
    fn ring(&self, ring: Ring) {
        self.waiting.put(ring);
    }
}

#[async_trait]
impl Publisher for Nats {
    async fn publish(&self, messages: &[Published]) -> Result<(), String> {
        match tokio::time::timeout(CONFIRM_MAX, self.send(messages)).await {
            Ok(sent) => sent,
            Err(_) => {
                // A connection that accepts everything and answers nothing may be broken without an error.
                let _ = tokio::time::timeout(PAUSE, self.client.force_reconnect()).await;
                Err("NATS does not answer".to_owned())
            }
        }
    }
}

/// Connects on a thread of its own, where the client's tasks run one at a time, in the order in which they were woken.
async fn connect_alone(options: ConnectOptions, servers: Vec<ServerAddr>) -> Result<(Client, oneshot::Sender<()>), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (reply, connected) = oneshot::channel();
    let (life, over) = oneshot::channel();
    let run = async move {
        // Without a receiver the caller has given up, and the connection ends, too.
        let _ = reply.send(options.connect(servers).await);
        let _ = over.await;
    };
    std::thread::Builder::new().name("nats".to_owned()).spawn(move || runtime.block_on(run))?;
    Ok((connected.await??, life))
}

fn options(prefix: &str, connection: Arc<Connection>) -> ConnectOptions {
    ConnectOptions::new()
        .name("windlass")
        .retry_on_initial_connect()
        .ping_interval(PING_PAUSE)
        .subscription_capacity(MESSAGES_MAX)
        // A user that may use everything below the prefix needs no further permission.
        .custom_inbox_prefix(format!("{prefix}._echo"))
        .reconnect_delay_callback(|attempts| RETRY_PAUSE_MAX.min(Duration::from_millis(1 << attempts.min(10))))
        .event_callback(move |event| {
            connection.handle_event(&event);
            std::future::ready(())
        })
}

/// What the client's events show of its connection.
struct Connection {
    link: std::sync::Mutex<Link>,
    /// The subject of rings, as the server quotes it.
    bell: String,
    refusals: AtomicU64,
    /// The last refusal of anything but a ring.
    refused: watch::Sender<String>,
    /// Notified when a connection breaks, so that waits for its answers end early.
    broken: watch::Sender<()>,
}

impl Connection {
    fn new(bell: &str) -> Self {
        Connection {
            link: std::sync::Mutex::new(Link::new("NATS")),
            bell: format!("\"{bell}\""),
            refusals: AtomicU64::new(0),
            refused: watch::Sender::new(String::new()),
            broken: watch::Sender::new(()),
        }
    }

    /// Writes the log, two lines even if a server is gone for hours. Notifies those that wait for an answer.
    fn handle_event(&self, event: &Event) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Connected => {
                self.refusals.store(0, Ordering::Relaxed);
                link.up();
            }
            Event::Disconnected => {
                self.broken.send_replace(());
                link.down("the connection broke");
            }
            Event::ClientError(error) => link.down(error),
            Event::ServerError(error) => {
                // A user without a permission would cause one event for every message.
                if self.refusals.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "NATS refuses something");
                }
                // A ring has no confirmation: its refusal says nothing about a page.
                let text = error.to_string();
                if !text.contains(&self.bell) {
                    self.refused.send_replace(text);
                }
            }
            Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => {}
        }
    }
}

async fn listen(mut bells: Subscriber, forwarder: RingForwarder) {
    while let Some(message) = bells.next().await {
        forwarder.message(&message.payload);
    }
}

async fn ring(client: Client, bell: String, node: NodeId, waiting: Arc<Waiting>) {
    loop {
        let message = waiting.take(node).await;
        if client.connection_state() != State::Connected {
            // Rings only matter at once: what is missed is found by the sweep.
            waiting.clear();
        } else if let Err(error) = client.publish(bell.clone(), message.into()).await {
            tracing::debug!(%error, "a ring was lost");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
