//! A model server that plays scenes: it records its requests, and the test determines its answers. It speaks every protocol that has a
//! provider, each at its own path.

mod dialect;

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

pub use dialect::{Dialect, Speech};

use crate::until;

/// One answer.
#[derive(Clone, Debug)]
pub enum Scene {
    /// All parts of an answer.
    Speak(Speech),
    /// A text.
    Say(&'static str),
    /// Tool calls, with arguments.
    Call(Vec<(&'static str, Value)>),
    /// A text and tool calls.
    SayAndCall(&'static str, Vec<(&'static str, Value)>),
    /// An error status, with headers.
    Fail(u16, Vec<(&'static str, &'static str)>),
    /// A refusal: the prompt is longer than the model's context.
    TooLong,
    /// A text, then the connection breaks.
    Cut(&'static str),
    /// An answer up to the end of its text, then the connection breaks.
    CutSpeech(Speech),
    /// No answer, until the client closes the connection.
    Hang,
    /// A call with these raw arguments, which may be invalid JSON.
    CallAsWritten(&'static str, String),
    /// A number of letters, in chunks of a number of letters.
    SayLetters(usize, usize),
    /// These bytes of a stream again and again, with a pause between them, until the client closes the connection.
    Forever(String, Duration),
    /// All parts of an answer, one event per permit. For a model that is held back.
    Stepwise(Speech),
}

impl Scene {
    /// The event of a delta in chat completions, for [`Scene::Forever`].
    pub fn event(delta: Value) -> String {
        format!("data: {}\n\n", dialect::chunk(delta, None))
    }
}

#[derive(Default)]
struct Stage {
    scenes: VecDeque<Scene>,
    asked: Vec<Value>,
    hanging: usize,
    /// The number of answers that may still be given; `None` if there is no limit.
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
    /// Plays the scenes in order, and repeats the last one.
    pub async fn start(scenes: Vec<Scene>) -> Self {
        Self::on(Stage { scenes: scenes.into(), ..Stage::default() }).await
    }

    /// Plays the scenes, but waits for a permit before each answer.
    pub async fn held_back(scenes: Vec<Scene>) -> Self {
        Self::on(Stage { scenes: scenes.into(), permits: Some(Arc::new(Semaphore::new(0))), ..Stage::default() }).await
    }

    /// Gives a permit for one answer, or for one event of it.
    pub fn let_answer(&self) {
        let stage = self.stage.lock().expect("the lock is not poisoned");
        stage.permits.as_ref().expect("its answers are held back").add_permits(1);
    }

    async fn on(stage: Stage) -> Self {
        let stage = Arc::new(Mutex::new(stage));
        let mut router = Router::new();
        for dialect in Dialect::EVERY {
            let play = move |State(stage): State<Arc<Mutex<Stage>>>, axum::Json(body): axum::Json<Value>| answer(stage, body, dialect);
            router = router.route(dialect.path(), post(play));
        }
        let router = router.layer(DefaultBodyLimit::disable()).with_state(stage.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        FakeModel { stage, base_url, server }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Value> {
        self.stage.lock().expect("the lock is not poisoned").asked.clone()
    }

    /// Waits until the model has this number of requests.
    pub async fn asked_times(&self, count: usize) -> Vec<Value> {
        until(&format!("the model is asked {count} times"), || async { Some(self.asked()).filter(|asked| asked.len() >= count) }).await
    }

    /// The number of requests that hang and whose clients are still connected.
    pub fn hanging(&self) -> usize {
        self.stage.lock().expect("the lock is not poisoned").hanging
    }

    /// A `models:` entry for a configuration.
    pub fn config(&self) -> String {
        self.config_in(Dialect::Chat)
    }

    /// A `models:` entry for one of the protocols.
    pub fn config_in(&self, dialect: Dialect) -> String {
        format!("models: [ {{ name: fake, provider: {}, base_url: '{}' }} ]\n", dialect.provider(), self.base_url)
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Counts a hanging request until its client closes the connection.
struct Hanging(Arc<Mutex<Stage>>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.lock().expect("the lock is not poisoned").hanging -= 1;
    }
}

async fn answer(stage: Arc<Mutex<Stage>>, body: Value, dialect: Dialect) -> Response {
    let (scene, permits) = {
        let mut open = stage.lock().expect("the lock is not poisoned");
        open.asked.push(body);
        let next = open.scenes.front().cloned().expect("a play has a scene");
        if open.scenes.len() > 1 {
            open.scenes.pop_front();
        }
        (next, open.permits.clone())
    };
    if let Some(permits) = &permits {
        permits.acquire().await.expect("the gate is never closed").forget();
    }
    let call = |(tool, arguments): &(&'static str, Value)| (*tool, arguments.to_string());
    match scene {
        Scene::Speak(speech) if speech.pause > Duration::ZERO => slowly(dialect.events(&speech), speech.pause),
        Scene::Speak(speech) => sse(&dialect.events(&speech)),
        Scene::Say(text) => sse(&dialect.events(&Speech { chunks: vec![text.to_owned()], ..Speech::default() })),
        Scene::Call(calls) => sse(&dialect.events(&Speech { calls: calls.iter().map(call).collect(), ..Speech::default() })),
        Scene::SayAndCall(text, calls) => {
            let calls = calls.iter().map(call).collect();
            sse(&dialect.events(&Speech { chunks: vec![text.to_owned()], calls, ..Speech::default() }))
        }
        Scene::Fail(status, headers) => {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(name, value.parse().expect("a header"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            (status, map, axum::Json(json!({ "error": { "message": "as the test wants it" } }))).into_response()
        }
        Scene::TooLong => {
            let error = json!({ "message": "too many tokens", "type": "invalid_request_error", "code": "context_length_exceeded" });
            (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": error }))).into_response()
        }
        Scene::Cut(text) => cut(&dialect.beginning(&Speech { chunks: vec![text.to_owned()], ..Speech::default() })),
        Scene::CutSpeech(speech) => cut(&dialect.beginning(&speech)),
        Scene::Hang => forever(&stage, ": still here\n\n".to_owned(), Duration::from_millis(50)),
        Scene::CallAsWritten(tool, arguments) => sse(&dialect.events(&Speech { calls: vec![(tool, arguments)], ..Speech::default() })),
        Scene::SayLetters(letters, at_once) => {
            let chunks = std::iter::repeat_n("x".repeat(at_once), letters / at_once).collect();
            let events = dialect.events(&Speech { chunks, ..Speech::default() });
            let pieces = events.into_iter().map(|event| Ok::<_, Infallible>(axum::body::Bytes::from(event)));
            ([("content-type", "text/event-stream")], Body::from_stream(futures_util::stream::iter(pieces))).into_response()
        }
        Scene::Forever(bytes, pause) => forever(&stage, bytes, pause),
        Scene::Stepwise(speech) => stepwise(dialect.events(&speech), permits.expect("its answers are held back")),
    }
}

fn forever(stage: &Arc<Mutex<Stage>>, bytes: String, pause: Duration) -> Response {
    stage.lock().expect("the lock is not poisoned").hanging += 1;
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

/// Sends these events, and then breaks the connection.
fn cut(events: &[String]) -> Response {
    let first = events.concat();
    // The pause gets the text out before the connection breaks; otherwise it would be lost with the connection.
    let cut = futures_util::stream::once(async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err(std::io::Error::other("cut"))
    });
    let pieces = futures_util::StreamExt::chain(futures_util::stream::iter([Ok(first)]), cut);
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn slowly(events: Vec<String>, pause: Duration) -> Response {
    let pieces = futures_util::StreamExt::then(futures_util::stream::iter(events), move |event| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, Infallible>(event)
    });
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

/// Sends these events, each but the first after a permit.
fn stepwise(events: Vec<String>, permits: Arc<Semaphore>) -> Response {
    let pieces = futures_util::StreamExt::then(futures_util::stream::iter(events.into_iter().enumerate()), move |(place, event)| {
        let permits = permits.clone();
        async move {
            if place > 0 {
                permits.acquire().await.expect("the gate is never closed").forget();
            }
            Ok::<_, Infallible>(event)
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn sse(events: &[String]) -> Response {
    ([("content-type", "text/event-stream")], events.concat()).into_response()
}
