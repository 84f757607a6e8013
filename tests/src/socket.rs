//! A WebSocket client of the Responses door.

use std::time::Instant;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        self, Message,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue, Request},
    },
};

use crate::{
    Answer, Mode, PATIENCE, ResponseRecord, Server, StreamEvent,
    responses::{Grammar, contract},
};

/// An open socket. Everything that arrives is checked against the contract.
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
}

/// The next frame of a socket.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// An event of a response.
    Event(Value),
    /// An error of the socket itself.
    Error(Value),
    /// The answer to a ping, with its payload.
    Pong(Vec<u8>),
    /// The server closed the socket with this code.
    Closed(u16),
    /// The connection ended without a close frame.
    Broken,
}

impl Server {
    /// Opens a socket.
    pub async fn socket(&self) -> Socket {
        self.socket_with(&[]).await
    }

    /// Opens a socket with additional headers.
    pub async fn socket_with(&self, headers: &[(&str, &str)]) -> Socket {
        self.try_socket(headers).await.unwrap_or_else(|error| panic!("the socket opens: {error}"))
    }

    /// Opens a socket with small buffers in the system, so that the server has to wait when the client does not read.
    pub async fn narrow_socket(&self) -> Socket {
        let opening = Opening::new(self, &[]);
        let connection = TcpSocket::new_v4().expect("a socket");
        connection.set_recv_buffer_size(4096).expect("a small window");
        let connection = connection.connect(opening.authority.parse().expect("an address")).await.expect("a connection");
        opening.over(connection).await.unwrap_or_else(|error| panic!("the socket opens: {error}"))
    }

    /// Opens a socket, or returns the error if the server refuses.
    pub async fn try_socket(&self, headers: &[(&str, &str)]) -> Result<Socket, tungstenite::Error> {
        Opening::new(self, headers).open().await
    }
}

/// A socket to be opened.
pub(crate) struct Opening {
    authority: String,
    request: Request<()>,
}

impl Opening {
    pub(crate) fn new(server: &Server, headers: &[(&str, &str)]) -> Self {
        let authority = server.base().trim_start_matches("http://").to_owned();
        let mut request = format!("ws://{authority}/v1/responses").into_client_request().expect("an address");
        let token = format!("Bearer {}", server.token());
        for (name, value) in [("authorization", token.as_str())].iter().chain(headers) {
            let name: HeaderName = name.parse().expect("the name of a header");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header"));
        }
        Opening { authority, request }
    }

    pub(crate) async fn open(self) -> Result<Socket, tungstenite::Error> {
        let connection = TcpStream::connect(&self.authority).await.map_err(tungstenite::Error::Io)?;
        self.over(connection).await
    }

    async fn over(self, connection: TcpStream) -> Result<Socket, tungstenite::Error> {
        let (stream, _) = client_async(self.request, connection).await?;
        Ok(Socket { stream })
    }
}

impl Socket {
    /// Requests a response.
    pub async fn ask(&mut self, body: Value) {
        let mut body = body;
        body["type"] = "response.create".into();
        self.send(Message::text(body.to_string())).await;
    }

    /// Sends a frame.
    pub async fn send(&mut self, message: Message) {
        self.stream.send(message).await.expect("the server takes frames");
    }

    /// Sends a frame to a server that may not take it.
    pub async fn try_send(&mut self, message: Message) -> bool {
        tokio::time::timeout(PATIENCE, self.stream.send(message)).await.expect("the server takes it or not").is_ok()
    }

    /// Reads the next frame. It answers pings, and does not return them.
    pub async fn next(&mut self) -> Frame {
        loop {
            match tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("the socket sends something") {
                Some(Ok(Message::Text(text))) => return read(text.as_str()),
                Some(Ok(Message::Pong(bytes))) => return Frame::Pong(bytes.to_vec()),
                Some(Ok(Message::Close(frame))) => return frame.map_or(Frame::Broken, |frame| Frame::Closed(frame.code.into())),
                Some(Ok(Message::Ping(_))) => {}
                Some(Ok(other @ (Message::Binary(_) | Message::Frame(_)))) => panic!("only text is sent: {other:?}"),
                Some(Err(_)) | None => return Frame::Broken,
            }
        }
    }

    /// Reads the next event.
    pub async fn event(&mut self) -> StreamEvent {
        match self.next().await {
            Frame::Event(data) => StreamEvent { at: Instant::now(), data },
            other @ (Frame::Error(_) | Frame::Pong(_) | Frame::Closed(_) | Frame::Broken) => panic!("an event comes, and not {other:?}"),
        }
    }

    /// Reads the next error: its status, and the rest of it.
    pub async fn error(&mut self) -> (u64, Value) {
        match self.next().await {
            Frame::Error(frame) => (frame["status"].as_u64().expect("an error has a status"), frame["error"].clone()),
            other @ (Frame::Event(_) | Frame::Pong(_) | Frame::Closed(_) | Frame::Broken) => panic!("an error comes, and not {other:?}"),
        }
    }

    /// Reads the next error. Returns its code.
    pub async fn error_code(&mut self) -> String {
        let (_, error) = self.error().await;
        error["code"].as_str().expect("an error has a code").to_owned()
    }

    /// Reads until an event of this type. Returns that event.
    pub async fn until(&mut self, kind: &str) -> StreamEvent {
        loop {
            let event = self.event().await;
            if event.kind() == kind {
                return event;
            }
        }
    }

    /// Reads one response to its end. Every event has to match the grammar.
    pub async fn response(&mut self) -> ResponseRecord {
        let mut grammar = Grammar::default();
        let mut events = Vec::new();
        loop {
            let event = self.event().await;
            grammar.take(&event.data);
            events.push(event);
            if let Some(object) = grammar.ended() {
                return ResponseRecord { mode: Mode::Socket, object: object.clone(), events };
            }
        }
    }

    /// Requests a response and reads it to its end.
    pub async fn respond(&mut self, body: Value) -> ResponseRecord {
        self.ask(body).await;
        self.response().await
    }

    /// Sends a request that must be refused, with the same error as over HTTP.
    pub async fn refusal(&mut self, body: Value) -> Answer {
        self.ask(body).await;
        let (status, error) = self.error().await;
        Answer { status: u16::try_from(status).expect("a status"), body: json!({ "error": error }) }
    }

    /// Sends a request that must be refused. Returns the code.
    pub async fn refused(&mut self, body: Value) -> String {
        self.ask(body).await;
        self.error_code().await
    }
}

fn read(text: &str) -> Frame {
    let frame: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("a frame is JSON: {error}: {text}"));
    if frame["type"] != "error" {
        return Frame::Event(frame);
    }
    let faults = contract::faults_of_socket_error(&frame);
    assert!(faults.is_empty(), "an error that the contract does not have: {faults:#?}\n{frame:#}");
    let keys: Vec<&str> = frame["error"].as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(json!(keys), json!(["code", "message", "param", "type"]), "{frame}");
    Frame::Error(frame)
}
