//! The Responses API over a WebSocket.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::{connect_async, tungstenite::client::IntoClientRequest};
use windlass_tests::{PATIENCE, tungstenite::Message};

use crate::{
    responses::{server, tools},
    transcript::Transcript,
};

#[tokio::test]
async fn frames_of_a_socket() {
    let (server, _tools) = server().await;
    let mut request = server.base().replace("http://", "ws://");
    request.push_str("/v1/responses");
    let mut request = request.into_client_request().expect("an address");
    let authorization = format!("Bearer {}", server.token()).parse().expect("a header");
    request.headers_mut().insert("authorization", authorization);
    let (mut socket, _) = connect_async(request).await.expect("the socket opens");
    let mut transcript = Transcript::default();
    let bodies = [
        json!({ "type": "response.create", "model": "m", "input": "the weather", "tools": tools() }),
        json!({ "type": "response.create", "model": "m", "input": "short", "store": false }),
        json!({ "type": "response.create", "model": "unknown", "input": "hello" }),
        json!({ "type": "nonsense" }),
        json!({ "type": "response.create", "model": "m", "input": "refuse" }),
    ];
    for body in bodies {
        transcript.line(&format!("> {body}"));
        socket.send(Message::text(body.to_string())).await.expect("the server takes frames");
        loop {
            let frame = tokio::time::timeout(PATIENCE, socket.next()).await.expect("a frame comes").expect("the socket is open");
            let Message::Text(text) = frame.expect("a frame") else { continue };
            transcript.line(&format!("< {text}"));
            let event: Value = serde_json::from_str(&text).expect("a frame is JSON");
            let kind = event["type"].as_str().expect("an event has a type");
            if ["error", "response.completed", "response.failed", "response.incomplete"].contains(&kind) {
                break;
            }
        }
        transcript.line("");
    }
    transcript.check("responses_socket");
}
