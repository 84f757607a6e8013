//! The test harness: it runs the real binary in a folder of its own, talks to it over HTTP, and kills it.

mod address;
mod certificate;
mod clients;
mod database;
mod fake_model;
mod mcp;
mod nats;
pub mod postgres;
mod proxy;
pub mod responses;
mod server;
mod socket;
mod stream;
mod views;

pub use address::Address;
pub use certificate::SelfSigned;
pub use clients::clients;
pub use database::{Database, Place, Row, Store, bytes, hex};
pub use fake_model::{Dialect, FakeModel, Scene, Speech};
pub use mcp::{McpManners, McpServer, McpStart, QUERY};
pub use nats::{Listener, Message, NatsServer};
pub use proxy::Proxy;
pub use responses::{EventStream, Mode, Next, PendingResponse, ResponseRecord, StreamEvent, in_every_mode};
pub use server::{Answer, Server, ServerBuilder, TOKEN, binary};
pub use socket::{Frame, Socket};
pub use stream::{SseEvent, SseStream};

pub use tokio_tungstenite::tungstenite;

use std::{future::Future, time::Duration};

/// How long a test waits for something that should happen immediately. It is generous, because it only bounds a failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Repeats `ask` until it returns a value. Fails with `what` after [`PATIENCE`].
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: it did not happen within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
