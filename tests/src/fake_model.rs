//! A model's server that plays scenes: what it was asked is kept, what it answers is told by the test. It speaks every protocol
//! there is a provider for, each at its own path.

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
    /// Everything that an answer can have.
    Speak(Speech),
    /// Words.
    Say(&'static str),
    /// Calls of tools, with arguments.
    Call(Vec<(&'static str, Value)>),
    /// Words, and calls of tools beside them.
    SayAndCall(&'static str, Vec<(&'static str, Value)>),
    /// An error status, with headers.
    Fail(u16, Vec<(&'static str, &'static str)>),
    /// A refusal: there is more to read than the model can.
    TooLong,
    /// Words, then the connection breaks.
    Cut(&'static str),
    /// An answer up to its words, then the connection breaks.
    CutSpeech(Speech),
    /// Nothing, until the client goes away.
    Hang,
    /// A call whose arguments are this text, JSON or not.
    CallAsWritten(&'static str, String),
    /// So many letters, in pieces of so many.
    SayLetters(usize, usize),
    /// These bytes of a stream again and again with a pause between, until the client goes away.
    Forever(String, Duration),
    /// Everything that an answer can have, of which one event is let go at a time; of a model that is held back.
    Stepwise(Speech),
}

impl Scene {
    /// The event of a delta in chat completions, to be sent forever.
    pub fn event(delta: Value) -> String {
        format!("data: {}\n\n", dialect::chunk(delta, None))
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

    /// Lets one held back answer go, or one event of it.
    pub fn let_answer(&self) {
        let stage = self.stage.lock().expect("nobody panics on stage");
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
        self.config_in(Dialect::Chat)
    }

    /// The same for one of the protocols.
    pub fn config_in(&self, dialect: Dialect) -> String {
        format!("models: [ {{ name: fake, provider: {}, base_url: '{}' }} ]\n", dialect.provider(), self.base_url)
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

async fn answer(stage: Arc<Mutex<Stage>>, body: Value, dialect: Dialect) -> Response {
    let (scene, permits) = {
        let mut open = stage.lock().expect("nobody panics on stage");
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
        Scene::Say(words) => sse(&dialect.events(&Speech { words: vec![words.to_owned()], ..Speech::default() })),
        Scene::Call(calls) => sse(&dialect.events(&Speech { calls: calls.iter().map(call).collect(), ..Speech::default() })),
        Scene::SayAndCall(words, calls) => {
            let calls = calls.iter().map(call).collect();
            sse(&dialect.events(&Speech { words: vec![words.to_owned()], calls, ..Speech::default() }))
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
        Scene::Cut(words) => cut(&dialect.beginning(&Speech { words: vec![words.to_owned()], ..Speech::default() })),
        Scene::CutSpeech(speech) => cut(&dialect.beginning(&speech)),
        Scene::Hang => forever(&stage, ": still here\n\n".to_owned(), Duration::from_millis(50)),
        Scene::CallAsWritten(tool, arguments) => sse(&dialect.events(&Speech { calls: vec![(tool, arguments)], ..Speech::default() })),
        Scene::SayLetters(letters, at_once) => {
            let words = std::iter::repeat_n("x".repeat(at_once), letters / at_once).collect();
            let events = dialect.events(&Speech { words, ..Speech::default() });
            let pieces = events.into_iter().map(|event| Ok::<_, Infallible>(axum::body::Bytes::from(event)));
            ([("content-type", "text/event-stream")], Body::from_stream(futures_util::stream::iter(pieces))).into_response()
        }
        Scene::Forever(bytes, pause) => forever(&stage, bytes, pause),
        Scene::Stepwise(speech) => stepwise(dialect.events(&speech), permits.expect("its answers are held back")),
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

/// These events, and then the connection breaks.
fn cut(events: &[String]) -> Response {
    let first = events.concat();
    // The words get out before the break; in one go with it they would be lost with the connection.
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

/// These events, each but the first when it may go.
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
