//! The commands and events published on NATS.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use serde_json::json;
use windlass_tests::{NatsServer, ServerBuilder, until};

use crate::{agents::CONFIG, transcript::Transcript};

#[tokio::test]
async fn messages_on_nats() {
    let nats = NatsServer::start().await;
    let mut subscription = nats.client().await.subscribe("windlass.>").await.expect("a subscription");
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = messages.clone();
    tokio::spawn(async move {
        while let Some(message) = subscription.next().await {
            if message.subject.starts_with("windlass._") {
                // The server asks NATS to echo its own message, with a random subject.
                continue;
            }
            let headers = message.headers.iter().flat_map(|headers| headers.iter());
            // The trace is random.
            let mut headers: Vec<String> = headers
                .filter(|(name, _)| name.as_ref() as &str != "traceparent")
                .map(|(name, values)| format!("{name}: {}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))
                .collect();
            headers.sort();
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            sink.lock().expect("no task panics with it").push(format!("{}\n  {}\n  {text}", message.subject, headers.join("\n  ")));
        }
    });
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    server.report(&call, json!("there")).await.ok();
    server.ended(&run).await;
    let count = || messages.lock().expect("no task panics with it").len();
    until("the last event is published", || async {
        let all = messages.lock().expect("no task panics with it");
        let has = |subject: &str, word: &str| all.iter().any(|message| message.contains(subject) && message.contains(word));
        (has(".task", "success") && has(".state", "idle")).then_some(())
    })
    .await;
    server.database().all_published();
    assert!(count() > 5, "a turn with a tool has more messages");
    let mut transcript = Transcript::default();
    let mut all = messages.lock().expect("no task panics with it").clone();
    // Commands and events are published concurrently; each kind is in order.
    all.sort_by_key(|message| message.contains(".evt."));
    all.iter().for_each(|message| transcript.line(message));
    transcript.check("nats");
}
