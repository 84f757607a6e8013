//! NATS, core only: rings between processes on `<prefix>.bell`, and the outbox on `<prefix>.<tenant>.<subject>`.
//!
//! NATS need not be there when the server starts, nor stay: the client goes on trying. A page counts as published only when a
//! message sent behind it, on the same connection, has come back.

mod address;
mod message;

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, Subscriber, connection::State};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinHandle,
};
use windlass_ports::{Doorbell, NodeId, Published, Publisher, Ring};

use super::{Heard, PAUSE, link::Link, waiting::Waiting};
use address::Address;

/// How long a page may take to be confirmed.
const CONFIRM_MAX: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it is there; two answers may be missing.
const PING_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause between two tries to connect.
const TRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Messages of others that wait to be read; more are dropped.
const MESSAGES_MAX: usize = 1024;

const LOST: &str = "the connection to NATS was lost on the way";

/// NATS cannot be used as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The address is none. It may have a password in it, so that it is not repeated.
    #[error("this is not the address of a NATS server, such as nats://127.0.0.1:4222: {0}")]
    Address(String),
    /// The client does not start.
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
}

/// Confirms pages, one at a time.
struct Pages {
    /// Where this connection hears itself.
    echo: Subscriber,
    subject: String,
    /// The number of the last page, so that an echo that comes late confirms no other page.
    last: u64,
}

impl Nats {
    /// Connects in the background. What other nodes ring comes out of the receiver.
    pub async fn connect(url: &str, prefix: &str, node: NodeId) -> Result<(Arc<Self>, mpsc::Receiver<Ring>), NatsError> {
        let address = Address::parse(url).map_err(NatsError::Address)?;
        let connection = Arc::new(Connection::new());
        let options = address.authorize(options(prefix, connection.clone()));
        let failed = |error: &dyn std::fmt::Display| NatsError::Client(error.to_string());
        let client = options.connect(address.servers).await.map_err(|error| failed(&error))?;
        let subject = client.new_inbox();
        let echo = client.subscribe(subject.clone()).await.map_err(|error| failed(&error))?;
        let bell = format!("{prefix}.bell");
        let bells = client.subscribe(bell.clone()).await.map_err(|error| failed(&error))?;
        let waiting = Arc::new(Waiting::default());
        let (heard, rings) = Heard::new(node);
        let tasks = [tokio::spawn(listen(bells, heard)), tokio::spawn(ring(client.clone(), bell, node, waiting.clone()))];
        let pages = Mutex::new(Pages { echo, subject, last: 0 });
        Ok((Arc::new(Nats { client, prefix: prefix.to_owned(), waiting, pages, connection, tasks }), rings))
    }

    /// How often a connection was made. While it stays the same, nothing that was sent can have been lost on the way.
    fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    async fn send(&self, messages: &[Published]) -> Result<(), String> {
        let mut pages = self.pages.lock().await;
        let mut broken = self.connection.broken.subscribe();
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
        pages.last += 1;
        let number = Bytes::copy_from_slice(&pages.last.to_be_bytes());
        self.client.publish(pages.subject.clone(), number.clone()).await.map_err(|error| error.to_string())?;
        loop {
            let echo = tokio::select! {
                echo = pages.echo.next() => echo.ok_or("the NATS client has ended")?,
                _ = broken.changed() => return Err(LOST.to_owned()),
            };
            if echo.payload == number {
                // An echo over a new connection says nothing of what went into the old one.
                return if self.connects() == connects { Ok(()) } else { Err(LOST.to_owned()) };
            }
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
                // A connection that takes everything and answers nothing may be dead without knowing it.
                let _ = tokio::time::timeout(PAUSE, self.client.force_reconnect()).await;
                Err("NATS does not answer".to_owned())
            }
        }
    }
}

fn options(prefix: &str, connection: Arc<Connection>) -> ConnectOptions {
    ConnectOptions::new()
        .name("windlass")
        .retry_on_initial_connect()
        .ping_interval(PING_PAUSE)
        .subscription_capacity(MESSAGES_MAX)
        // Whoever may use everything below the prefix needs no other permission.
        .custom_inbox_prefix(format!("{prefix}._echo"))
        .reconnect_delay_callback(|tries| TRY_PAUSE_MAX.min(Duration::from_millis(1 << tries.min(10))))
        .event_callback(move |event| {
            connection.tell(&event);
            std::future::ready(())
        })
}

/// What the client tells of its connection.
struct Connection {
    link: std::sync::Mutex<Link>,
    refusals: AtomicU64,
    /// Whoever waits for an answer over a connection that broke need not wait for long.
    broken: watch::Sender<()>,
}

impl Connection {
    fn new() -> Self {
        Connection { link: std::sync::Mutex::new(Link::new("NATS")), refusals: AtomicU64::new(0), broken: watch::Sender::new(()) }
    }

    /// Writes the log: a server that is gone for hours is worth two lines.
    fn tell(&self, event: &Event) {
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
            // A user without a permission would get one for every message.
            Event::ServerError(error) if self.refusals.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(%error, "NATS refuses something");
            }
            Event::ServerError(_) | Event::LameDuckMode | Event::Draining | Event::Closed | Event::SlowConsumer(_) => {}
        }
    }
}

async fn listen(mut bells: Subscriber, heard: Heard) {
    while let Some(message) = bells.next().await {
        heard.message(&message.payload);
    }
}

async fn ring(client: Client, bell: String, node: NodeId, waiting: Arc<Waiting>) {
    loop {
        let message = waiting.take(node).await;
        if client.connection_state() != State::Connected {
            // A ring is for now or for nobody: what is missed is found without it.
            waiting.clear();
        } else if let Err(error) = client.publish(bell.clone(), message.into()).await {
            tracing::debug!(%error, "a ring was lost");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
