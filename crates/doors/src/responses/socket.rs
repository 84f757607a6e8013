//! WebSockets: the server answers the requests of one socket in order, with the same events as an HTTP stream.
//!
//! Frames are read while a response is streamed, so that a disconnect is noticed and pings are answered. Requests that arrive in the
//! meantime wait in a queue of limited size. Errors are sent in the order of the requests too, so that a client can count the answers.

mod handshake;
mod holds;
mod meter;
mod queue;
mod remembered;
mod session;
mod writer;

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::HeaderMap,
    response::Response,
};
use futures_util::{StreamExt, stream::SplitStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

pub(crate) use holds::Holders;

use super::error::WireError;
use crate::{
    DoorState,
    auth::{Caller, Scope},
    error::ApiError,
    limits::SOCKETS_MAX,
};
use handshake::{Handshake, Socket};
use meter::{FrameMeter, FrameOverrun};
use queue::{Queue, ReceivedFrame, Waiting};
use session::Session;
use writer::{Gone, Writer};

/// How long a client may take to answer the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The WebSocket close codes.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const UNREADABLE: u16 = 1002;
const TOO_SLOW: u16 = 1008;
const TRY_AGAIN_LATER: u16 = 1013;

/// `GET /v1/responses`: the WebSocket upgrade.
pub(super) async fn open(State(state): State<DoorState>, caller: Caller, request: Request) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let handshake = Handshake::read(request, &state).await?;
    let share = state.socket_shares.take(&caller)?;
    let place = state.sockets.clone().try_acquire_owned().map_err(|_| {
        let message = format!("{SOCKETS_MAX} sockets are open, which is as many as may be; use POST, or try again later");
        WireError::unavailable("server_is_overloaded", message, 1)
    })?;
    // A frame up to twice the limit is read and refused like a body, and the socket stays open. A longer one closes the socket, because it
    // could be refused only after all of it was read.
    let bytes_max = state.limits.body_bytes_max.saturating_mul(2);
    let meter = FrameMeter::new(state.byte_budget.lease(caller.tenant()));
    let headers = handshake.headers().clone();
    let (response, socket) = handshake.accept(meter.clone(), bytes_max);
    tokio::spawn(async move {
        if let Some(socket) = socket.await {
            serve(socket, &meter, state, caller, headers).await;
        }
        drop((place, share));
    });
    Ok(response)
}

/// Why a connection ends.
enum End {
    /// The client disconnected, or its response had to be aborted. No close frame is sent: it would look like the end of a complete answer.
    Gone,
    /// The client violated the WebSocket protocol, or sent a frame far above the limit.
    Unreadable(String),
    /// The client sends more than the byte budget has room for, or sends a frame too slowly.
    Overrun(FrameOverrun),
    /// The connection has reached its maximum age.
    Old,
    /// The server stops.
    Draining,
}

async fn serve(socket: Socket, meter: &FrameMeter, state: DoorState, caller: Caller, headers: HeaderMap) {
    let (sink, mut stream) = socket.split();
    let writer = Writer::new(sink);
    let queue = Queue::new(state.limits.body_bytes_max);
    let bytes_max = state.limits.body_bytes_max;
    let frame_time = Duration::from_millis(state.limits.body_ms_max);
    let ends_at = Instant::now() + Duration::from_millis(state.responses.socket_ms);
    let session = Session::new(state, caller, headers, ends_at);
    let end = tokio::select! {
        end = receive(&mut stream, &writer, &queue, meter, bytes_max, frame_time) => end,
        end = answer(session, &writer, &queue, ends_at) => end,
    };
    if let End::Overrun(_) = &end {
        // The socket is still read until the client has read the error, but what arrives is discarded.
        meter.discard();
    }
    let (error, code, reason) = match end {
        End::Gone => return,
        End::Unreadable(why) => {
            let message = format!("the frame cannot be read ({why}), so the socket is closed; send frames of at most {bytes_max} bytes");
            (WireError::bad("invalid_frame", message), UNREADABLE, "a frame cannot be read")
        }
        End::Overrun(FrameOverrun::Full(full)) => (ApiError::from(full).into(), TRY_AGAIN_LATER, "too much is being sent at once"),
        End::Overrun(FrameOverrun::Late) => {
            let message = format!("a frame did not arrive within {} seconds, so the socket is closed", frame_time.as_secs_f64());
            (WireError::timed_out(message), TOO_SLOW, "a frame did not arrive in time")
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
    let closing = async {
        writer.send_text(error.frame()).await?;
        writer.send(Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))).await?;
        // Read until the client closes: closing a connection with unread input resets it, and the client could lose the error.
        while let Some(Ok(_)) = stream.next().await {}
        Ok::<(), Gone>(())
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

/// Reads what the client sends into the queue, until the connection ends.
async fn receive(
    stream: &mut SplitStream<Socket>,
    writer: &Writer,
    queue: &Queue,
    meter: &FrameMeter,
    bytes_max: usize,
    frame_time: Duration,
) -> End {
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            overrun = meter.overrun(frame_time) => return End::Overrun(overrun),
        };
        let Some(message) = message else { return End::Gone };
        match message {
            Ok(Message::Text(text)) if text.len() > bytes_max => {
                drop(meter.end_message(text.len()));
                queue.refuse(WireError::too_large(format!("a frame may have {bytes_max} bytes at the most")));
            }
            Ok(Message::Text(text)) => {
                let lease = meter.end_message(text.len());
                queue.push(ReceivedFrame { text: text.into(), lease });
            }
            Ok(Message::Binary(bytes)) => {
                drop(meter.end_message(bytes.len()));
                queue.refuse(WireError::bad("invalid_frame", "a request is a text frame with a JSON object"));
            }
            // Reading the ping has queued a pong. It is flushed before the next read, or pongs would pile up for a client that does not
            // read.
            Ok(Message::Ping(bytes)) => {
                meter.end_control(bytes.len());
                if writer.flush().await.is_err() {
                    return End::Gone;
                }
            }
            // After the client's close frame the stream ends by itself.
            Ok(Message::Pong(bytes)) => meter.end_control(bytes.len()),
            Ok(Message::Close(_) | Message::Frame(_)) => {}
            Err(error) => return End::Unreadable(error.to_string()),
        }
    }
}

/// Answers the queued requests in order, and sends pings while there are none.
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
            Some(Waiting::Frame(frame)) => session.respond(frame, writer).await,
            Some(Waiting::Refused(error)) => writer.send_text(error.frame()).await,
            // Proxies may close a connection that is silent for long.
            None => writer.ping().await,
        };
        if let Err(Gone) = answered {
            return End::Gone;
        }
    }
}
