//! A chat-completions server that plays scenes: what it was asked is kept, what it answers is told by the test.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::until;

/// One answer.
#[derive(Clone, Debug)]
pub enum Scene {
    /// Words.
    Say(&'static str),
    /// Calls of tools, with arguments.
    Call(Vec<(&'static str, Value)>),
    /// Words, and calls of tools beside them.
    SayAndCall(&'static str, Vec<(&'static str, Value)>),
    /// An error status, with headers.
    Fail(u16, Vec<(&'static str, &'static str)>),
    /// Words, then the connection breaks.
    Cut(&'static str),
    /// Nothing, until the client goes away.
    Hang,
    /// A call whose arguments are this text, JSON or not.
    CallAsWritten(&'static str, String),
    /// So many letters, in pieces of so many.
    SayLetters(usize, usize),
    /// These bytes of a stream again and again with a pause between, until the client goes away.
    Forever(String, Duration),
}

impl Scene {
    /// The event of a delta, to be sent forever.
    pub fn event(delta: Value) -> String {
        format!("data: {}\n\n", chunk(delta, None))
    }
}

#[derive(Default)]
struct Stage {
    scenes: VecDeque<Scene>,
    asked: Vec<Value>,
    hanging: usize,
    /// How many answers may still be given; `None` if any number may.
    permits: Option<Arc<Semaphore>>,
}

/// The server. It listens until it is dropped.
pub struct FakeModel {
    stage: Arc<Mutex<Stage>>,
    /// Its address with `/v1`, for `base_url`.
    pub base_url: String,
    server: tokio::task::JoinHandle<()>,
}

impl FakeModel {
    /// Plays the scenes in order; the last one for ever.
    pub async fn start(scenes: Vec<Scene>) -> Self {
        Self::on(Stage { scenes: scenes.into(), ..Stage::default() }).await
    }

    /// The same, but it answers only when it is told to.
    pub async fn held_back(scenes: Vec<Scene>) -> Self {
        Self::on(Stage { scenes: scenes.into(), permits: Some(Arc::new(Semaphore::new(0))), ..Stage::default() }).await
    }

    /// Lets one held back answer go.
    pub fn let_answer(&self) {
        let stage = self.stage.lock().expect("nobody panics on stage");
        stage.permits.as_ref().expect("its answers are held back").add_permits(1);
    }

    async fn on(stage: Stage) -> Self {
        let stage = Arc::new(Mutex::new(stage));
        let router = Router::new().route("/v1/chat/completions", post(answer)).layer(DefaultBodyLimit::disable()).with_state(stage.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        FakeModel { stage, base_url, server }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Value> {
        self.stage.lock().expect("nobody panics on stage").asked.clone()
    }

    /// Waits until so many requests came.
    pub async fn asked_times(&self, count: usize) -> Vec<Value> {
        until(&format!("the model is asked {count} times"), || async { Some(self.asked()).filter(|asked| asked.len() >= count) }).await
    }

    /// How many requests hang and have not been called off.
    pub fn hanging(&self) -> usize {
        self.stage.lock().expect("nobody panics on stage").hanging
    }

    /// A `models:` entry for a configuration.
    pub fn config(&self) -> String {
        format!("models: [ {{ name: fake, provider: openai-chat, base_url: '{}' }} ]\n", self.base_url)
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Counts a hanging request until its client goes away.
struct Hanging(Arc<Mutex<Stage>>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.lock().expect("nobody panics on stage").hanging -= 1;
    }
}

async fn answer(State(stage): State<Arc<Mutex<Stage>>>, axum::Json(body): axum::Json<Value>) -> Response {
    let (scene, permits) = {
        let mut open = stage.lock().expect("nobody panics on stage");
        open.asked.push(body);
        let next = open.scenes.front().cloned().expect("a play has a scene");
        if open.scenes.len() > 1 {
            open.scenes.pop_front();
        }
        (next, open.permits.clone())
    };
    if let Some(permits) = permits {
        permits.acquire().await.expect("the gate is never closed").forget();
    }
    match scene {
        Scene::Say(words) => sse(vec![chunk(json!({ "content": words }), None), chunk(json!({}), Some("stop")), "[DONE]".to_owned()]),
        Scene::Call(calls) => {
            sse(vec![chunk(json!({ "tool_calls": called(&calls) }), None), chunk(json!({}), Some("tool_calls")), "[DONE]".to_owned()])
        }
        Scene::SayAndCall(words, calls) => sse(vec![
            chunk(json!({ "content": words }), None),
            chunk(json!({ "tool_calls": called(&calls) }), None),
            chunk(json!({}), Some("tool_calls")),
            "[DONE]".to_owned(),
        ]),
        Scene::Fail(status, headers) => {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(name, value.parse().expect("a header"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            (status, map, axum::Json(json!({ "error": { "message": "as the test wants it" } }))).into_response()
        }
        Scene::Cut(words) => {
            let first = format!("data: {}\n\n", chunk(json!({ "content": words }), None));
            // The words get out before the break; in one go with it they would be lost with the connection.
            let cut = futures_util::stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(std::io::Error::other("cut"))
            });
            let pieces = futures_util::StreamExt::chain(futures_util::stream::iter([Ok(first)]), cut);
            ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
        }
        Scene::Hang => forever(&stage, ": still here\n\n".to_owned(), Duration::from_millis(50)),
        Scene::CallAsWritten(tool, arguments) => {
            let call = json!({ "index": 0, "id": "c0", "type": "function", "function": { "name": tool, "arguments": arguments } });
            sse(vec![chunk(json!({ "tool_calls": [call] }), None), chunk(json!({}), Some("tool_calls")), "[DONE]".to_owned()])
        }
        Scene::SayLetters(letters, at_once) => {
            let piece = axum::body::Bytes::from(Scene::event(json!({ "content": "x".repeat(at_once) })));
            let end = format!("data: {}\n\ndata: [DONE]\n\n", chunk(json!({}), Some("stop")));
            let pieces = std::iter::repeat_n(piece, letters / at_once).chain([end.into()]).map(Ok::<_, Infallible>);
            ([("content-type", "text/event-stream")], Body::from_stream(futures_util::stream::iter(pieces))).into_response()
        }
        Scene::Forever(bytes, pause) => forever(&stage, bytes, pause),
    }
}

fn forever(stage: &Arc<Mutex<Stage>>, bytes: String, pause: Duration) -> Response {
    stage.lock().expect("nobody panics on stage").hanging += 1;
    let hanging = Hanging(stage.clone());
    let bytes = axum::body::Bytes::from(bytes);
    let pieces = futures_util::stream::unfold((hanging, bytes), move |(hanging, bytes)| async move {
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
        Some((Ok::<_, Infallible>(bytes.clone()), (hanging, bytes)))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn called(calls: &[(&'static str, Value)]) -> Vec<Value> {
    let called = |(index, (tool, arguments)): (usize, &(&str, Value))| {
        let function = json!({ "name": tool, "arguments": arguments.to_string() });
        json!({ "index": index, "id": format!("c{index}"), "type": "function", "function": function })
    };
    calls.iter().enumerate().map(called).collect()
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    json!({ "choices": [ { "index": 0, "delta": delta, "finish_reason": finish } ] }).to_string()
}

fn sse(events: Vec<String>) -> Response {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    ([("content-type", "text/event-stream")], body).into_response()
}
