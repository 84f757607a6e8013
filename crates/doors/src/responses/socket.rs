//! The socket: responses one after the other on one connection, told by the same events as a stream.
//!
//! Frames are read while a response is told, so that a client who leaves is noticed and a ping is answered; what is asked meanwhile
//! waits in a queue of limited size. Whatever is refused is told in its turn, so that a client can count the answers.

mod held;
mod queue;
mod remembered;
mod session;
mod writer;

use std::time::Duration;

use axum::{
    extract::{
        State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, header},
    response::Response,
};
use futures_util::{StreamExt, stream::SplitStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(crate) use held::Holders;

use super::error::WireError;
use crate::{
    DoorState,
    auth::{Caller, Scope},
    limits::SOCKETS_MAX,
};
use queue::{Queue, Waiting};
use session::Session;
use writer::{Gone, Writer};

/// How long a client may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// The codes that a connection is closed with.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const UNREADABLE: u16 = 1002;

/// `GET /v1/responses`: nothing but the beginning of a socket.
pub(super) async fn open(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) if headers.contains_key(header::UPGRADE) => {
            let message = format!("this cannot become a WebSocket: {}", rejection.body_text());
            return Err(WireError::bad("invalid_upgrade", message));
        }
        Err(_) => {
            let message = "/v1/responses takes POST, or GET with an upgrade to WebSocket; a response is read at /v1/responses/{id}";
            return Err(WireError::wrong_method(message));
        }
    };
    let place = state.sockets.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{SOCKETS_MAX} sockets are open, which is as many as may be; use POST, or try again later");
        WireError::unavailable("server_is_overloaded", message, 1)
    })?;
    // A frame that is a little too long is refused like a body; one that is much too long could only be refused after it was read.
    let bytes_max = state.limits.body_bytes_max;
    let upgrade = upgrade.max_message_size(bytes_max.saturating_mul(2)).max_frame_size(bytes_max.saturating_mul(2));
    Ok(upgrade.on_upgrade(move |socket| async move {
        serve(socket, state, caller, headers).await;
        drop(place);
    }))
}

/// How a connection comes to its end.
enum End {
    /// The client is gone, or its response had to be broken off: nothing more is said. A proper end would look like a whole answer.
    Gone,
    /// The client sent something that is no WebSocket, or far too much of it.
    Unreadable(String),
    /// The connection has lasted as long as it may.
    Old,
    /// The server stops.
    Draining,
}

async fn serve(socket: WebSocket, state: DoorState, caller: Caller, headers: HeaderMap) {
    let (sink, mut stream) = socket.split();
    let writer = Writer::new(sink);
    let queue = Queue::new(state.limits.body_bytes_max);
    let bytes_max = state.limits.body_bytes_max;
    let ends_at = Instant::now() + Duration::from_millis(state.responses.socket_ms);
    let session = Session::new(state, caller, headers, ends_at);
    let end = tokio::select! {
        end = hear(&mut stream, &writer, &queue, bytes_max) => end,
        end = answer(session, &writer, &queue, ends_at) => end,
    };
    let (error, code, reason) = match end {
        End::Gone => return,
        End::Unreadable(why) => {
            let message = format!("the frame cannot be read ({why}), so the socket is closed; send frames of at most {bytes_max} bytes");
            (WireError::bad("invalid_frame", message), UNREADABLE, "a frame cannot be read")
        }
        End::Old => {
            let message = "the socket has been open for as long as a socket may be; open another, and send the conversation there";
            (WireError::bad("websocket_connection_limit_reached", message), NORMAL, "the socket has been open long enough")
        }
        End::Draining => {
            let message = "the server is about to stop; open another socket in a moment";
            (WireError::unavailable("draining", message, 1), GOING_AWAY, "the server is about to stop")
        }
    };
    let goodbye = async {
        writer.tell(error.frame()).await?;
        writer.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        // Whoever closes with something unread in its hands takes away what the other side has not read yet.
        while let Some(Ok(_)) = stream.next().await {}
        Ok::<(), Gone>(())
    };
    let _ = timeout(GOODBYE, goodbye).await;
}

/// Takes in what the client sends.
async fn hear(stream: &mut SplitStream<WebSocket>, writer: &Writer, queue: &Queue, bytes_max: usize) -> End {
    while let Some(message) = stream.next().await {
        match message {
            Ok(Message::Text(text)) if text.len() > bytes_max => {
                queue.refuse(WireError::too_large(format!("a frame may have {bytes_max} bytes at the most")));
            }
            Ok(Message::Text(text)) => queue.push(text.into()),
            Ok(Message::Binary(_)) => queue.refuse(WireError::bad("invalid_frame", "a request is a text frame with a JSON object")),
            // The answer is made by the reading. It has to be out before the next, or they would pile up for a client who does not read.
            Ok(Message::Ping(_)) => {
                if writer.flush().await.is_err() {
                    return End::Gone;
                }
            }
            // After the client's goodbye the stream ends by itself.
            Ok(Message::Pong(_) | Message::Close(_)) => {}
            Err(error) => return End::Unreadable(error.to_string()),
        }
    }
    End::Gone
}

/// Answers what was asked, one after the other.
async fn answer(mut session: Session, writer: &Writer, queue: &Queue, ends_at: Instant) -> End {
    let (engine, heartbeat) = (session.engine(), session.heartbeat());
    loop {
        let waiting = tokio::select! {
            biased;
            () = sleep_until(ends_at) => return End::Old,
            () = engine.draining() => return End::Draining,
            waiting = queue.next() => Some(waiting),
            () = sleep(heartbeat) => None,
        };
        let answered = match waiting {
            Some(Waiting::Frame(frame)) => session.respond(&frame, writer).await,
            Some(Waiting::Refused(error)) => writer.tell(error.frame()).await,
            // Whatever stands between the two sides may take a long silence for an end.
            None => writer.ping().await,
        };
        if let Err(Gone) = answered {
            return End::Gone;
        }
    }
}
