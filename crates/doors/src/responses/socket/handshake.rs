//! The WebSocket handshake.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, WebSocketUpgrade},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::meter::{FrameMeter, Metered};
use crate::{DoorState, responses::error::WireError};

/// The size of the read buffer that every open socket has.
const READ_BYTES: usize = 32 << 10;

/// A socket whose input is counted.
pub(super) type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

/// A request that was checked and can be upgraded.
pub(super) struct Handshake {
    headers: HeaderMap,
    on_upgrade: OnUpgrade,
}

impl Handshake {
    /// Checks the request. The error messages are axum's. Its sockets are not used, because their input can't be metered.
    pub async fn read(request: Request, state: &DoorState) -> Result<Self, WireError> {
        let (mut parts, _) = request.into_parts();
        let on_upgrade = parts.extensions.get::<OnUpgrade>().cloned();
        match (WebSocketUpgrade::from_request_parts(&mut parts, state).await, on_upgrade) {
            (Ok(_), Some(on_upgrade)) => Ok(Handshake { headers: parts.headers, on_upgrade }),
            (Err(rejection), _) if parts.headers.contains_key(header::UPGRADE) => {
                let message = format!("this cannot become a WebSocket: {}", rejection.body_text());
                Err(WireError::bad("invalid_upgrade", message))
            }
            (Ok(_) | Err(_), _) => {
                let message = "/v1/responses takes POST, or GET with an upgrade to WebSocket; a response is read at /v1/responses/{id}";
                Err(WireError::wrong_method(message))
            }
        }
    }

    /// The headers of the request.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The upgrade response, and a future of the socket that resolves once the response has been sent; to `None` if the connection breaks
    /// first.
    pub fn accept(self, meter: Arc<FrameMeter>, message_bytes_max: usize) -> (Response, impl Future<Output = Option<Socket>> + use<>) {
        let key = self.headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key)) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let socket = async move {
            let connection = Metered::new(TokioIo::new(self.on_upgrade.await.ok()?), meter);
            Some(WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await)
        };
        (response, socket)
    }
}
