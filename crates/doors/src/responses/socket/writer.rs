//! The side of a socket that speaks. Each frame is out before the next is made, so that a slow reader costs one.

use bytes::Bytes;
use futures_util::{SinkExt, stream::SplitSink};
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;

use super::handshake::Socket;

/// The client does not get any more.
pub(super) struct Gone;

pub(super) struct Writer(Mutex<SplitSink<Socket, Message>>);

impl Writer {
    pub fn new(sink: SplitSink<Socket, Message>) -> Self {
        Writer(Mutex::new(sink))
    }

    /// Sends a text, and waits until it is out.
    pub async fn tell(&self, text: String) -> Result<(), Gone> {
        self.send(Message::text(text)).await
    }

    /// Shows that somebody is there.
    pub async fn ping(&self) -> Result<(), Gone> {
        self.send(Message::Ping(Bytes::new())).await
    }

    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        self.0.lock().await.send(message).await.map_err(|_| Gone)
    }

    /// Waits until everything is out.
    pub async fn flush(&self) -> Result<(), Gone> {
        self.0.lock().await.flush().await.map_err(|_| Gone)
    }
}
