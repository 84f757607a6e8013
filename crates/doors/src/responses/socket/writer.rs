//! The sending side of a socket. Each frame is sent before the next one is made, so a slow client costs the memory of one frame.

use bytes::Bytes;
use futures_util::{SinkExt, stream::SplitSink};
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;

use super::handshake::Socket;

/// The connection is closed, or a response on it had to be aborted.
pub(super) struct Gone;

pub(super) struct Writer(Mutex<SplitSink<Socket, Message>>);

impl Writer {
    pub fn new(sink: SplitSink<Socket, Message>) -> Self {
        Writer(Mutex::new(sink))
    }

    /// Sends a text frame, and waits until it is written to the connection.
    pub async fn send_text(&self, text: String) -> Result<(), Gone> {
        self.send(Message::text(text)).await
    }

    /// Sends a ping, so that the client and proxies keep the connection open.
    pub async fn ping(&self) -> Result<(), Gone> {
        self.send(Message::Ping(Bytes::new())).await
    }

    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        self.0.lock().await.send(message).await.map_err(|_| Gone)
    }

    /// Waits until everything is written to the connection.
    pub async fn flush(&self) -> Result<(), Gone> {
        self.0.lock().await.flush().await.map_err(|_| Gone)
    }
}
