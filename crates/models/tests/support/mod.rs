//! A server that plays the answers of a test, and helpers to call it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, Response},
};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::mpsc;
use windlass_kernel::{RequestedCall, RunId, ToolChoice, Usage, content::Reasoning};
use windlass_models::{Anthropic, OpenAiChat, OpenAiResponses, RemoteConfig};
use windlass_ports::{Model, ModelError, ModelEvent, ModelMessage, ModelRequest};

/// An answer of the server.
#[derive(Clone)]
pub struct Play {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub pieces: Vec<Bytes>,
    pub ending: Ending,
    /// The delay of the body's first chunk.
    pub late: Duration,
}

/// How the server's answer ends.
#[derive(Clone, Copy, PartialEq)]
pub enum Ending {
    /// The body ends properly.
    Clean,
    /// The connection breaks.
    Broken,
    /// The server sends nothing more and keeps the connection open.
    Silent,
    /// The last chunk is repeated for ever.
    Endless,
}

impl Play {
    /// A streamed answer with these events.
    pub fn events<S: AsRef<str>>(events: &[S]) -> Self {
        Self::pieces(events.iter().map(|event| format!("data: {}\n\n", event.as_ref())))
    }

    /// A streamed answer with these bytes.
    pub fn pieces(pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        Play { status: 200, headers, pieces: pieces.into_iter().map(Into::into).collect(), ending: Ending::Clean, late: Duration::ZERO }
    }

    /// An answer that is not streamed.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
        Play { status, headers, pieces: vec![body.into()], ending: Ending::Clean, late: Duration::ZERO }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn ending(self, ending: Ending) -> Self {
        Play { ending, ..self }
    }

    /// The same answer, whose body starts after a delay.
    pub fn late(self, late: Duration) -> Self {
        Play { late, ..self }
    }

    fn response(self, gone: DropSignal) -> Response<Body> {
        let last = self.pieces.last().cloned().unwrap_or_default();
        let late = self.late;
        let pause = stream::once(tokio::time::sleep(late)).filter_map(|()| async { None });
        let pieces = pause.chain(stream::iter(self.pieces.into_iter().map(Ok::<_, io::Error>)));
        let body = match self.ending {
            Ending::Clean => pieces.boxed(),
            Ending::Broken => pieces.chain(stream::iter([Err(io::Error::other("broken on purpose"))])).boxed(),
            Ending::Silent => pieces.chain(stream::pending()).boxed(),
            Ending::Endless => pieces.chain(stream::repeat_with(move || Ok(last.clone()))).boxed(),
        };
        // The first frame is sent before the connection may break, and the body notices when it is dropped.
        let body = body.then(move |piece| {
            let _held = &gone;
            async {
                tokio::task::yield_now().await;
                piece
            }
        });
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(HeaderName::from_static(name), value);
        }
        response.body(Body::from_stream(body)).unwrap()
    }
}

/// Notifies the test when the server's answer is dropped.
struct DropSignal(mpsc::UnboundedSender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// A request that the server received.
#[derive(Default)]
pub struct Got {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// A running server.
pub struct Server {
    pub base_url: String,
    pub got: Arc<Mutex<Vec<Got>>>,
    pub gone: mpsc::UnboundedReceiver<()>,
    play: Arc<Mutex<Play>>,
}

impl Server {
    /// Plays this answer from now on.
    pub fn play(&self, play: Play) {
        *self.play.lock().unwrap() = play;
    }
}

#[derive(Clone)]
struct Stage {
    play: Arc<Mutex<Play>>,
    got: Arc<Mutex<Vec<Got>>>,
    gone: mpsc::UnboundedSender<()>,
}

/// Starts a server that plays this answer to every request.
pub async fn serve(play: Play) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, gone) = mpsc::unbounded_channel();
    let got = Arc::new(Mutex::new(Vec::new()));
    let play = Arc::new(Mutex::new(play));
    let app = Router::new().fallback(answer).with_state(Stage { play: Arc::clone(&play), got: Arc::clone(&got), gone: sender });
    tokio::spawn(async move { axum::serve(listener, app).await });
    Server { base_url, got, gone, play }
}

async fn answer(State(stage): State<Stage>, request: axum::extract::Request) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    stage.got.lock().unwrap().push(Got { path: parts.uri.path().to_owned(), headers: parts.headers, body });
    let play = stage.play.lock().unwrap().clone();
    Ok(play.response(DropSignal(stage.gone)))
}

pub fn config(server: &Server) -> RemoteConfig {
    let mut config = RemoteConfig::new("test", &server.base_url);
    // More than a loaded machine needs; tests of silence set their own limit.
    config.idle_timeout_ms = 30_000;
    config
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Protocol {
    Chat,
    Responses,
    Messages,
}

impl Protocol {
    pub fn model(self, config: RemoteConfig) -> Box<dyn Model> {
        match self {
            Protocol::Chat => Box::new(OpenAiChat::new(config).unwrap()),
            Protocol::Responses => Box::new(OpenAiResponses::new(config).unwrap()),
            Protocol::Messages => Box::new(Anthropic::new(config).unwrap()),
        }
    }

    /// The events and the error that a model of this protocol produces from an answer.
    pub async fn outcome(self, play: Play) -> (Vec<ModelEvent>, Option<ModelError>) {
        let server = serve(play).await;
        collect(&*self.model(config(&server)), request("hi")).await
    }
}

/// The events and the error that a model of the chat protocol produces from an answer.
pub async fn outcome(play: Play) -> (Vec<ModelEvent>, Option<ModelError>) {
    Protocol::Chat.outcome(play).await
}

/// The events of a call and the error that it ended with. Of the usage only the last report is kept, as in the engine.
pub async fn collect(model: &dyn Model, request: ModelRequest) -> (Vec<ModelEvent>, Option<ModelError>) {
    let (events, error) = collect_all(model, request).await;
    let last = events.iter().rposition(|event| matches!(event, ModelEvent::Usage(_)));
    let counts = |(place, event): &(usize, ModelEvent)| match event {
        ModelEvent::Taken | ModelEvent::Model(_) => false,
        ModelEvent::Usage(_) => Some(*place) == last,
        ModelEvent::Reasoning(_) | ModelEvent::Text(_) | ModelEvent::Call(_) | ModelEvent::Finish(_) => true,
    };
    (events.into_iter().enumerate().filter(counts).map(|(_, event)| event).collect(), error)
}

/// All events of a call and the error that it ended with. Checks that nothing follows an error.
pub async fn collect_all(model: &dyn Model, request: ModelRequest) -> (Vec<ModelEvent>, Option<ModelError>) {
    let mut stream = model.call(request);
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => {
                assert_eq!(stream.next().await, None, "an error is the end");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

pub fn request(input: &str) -> ModelRequest {
    ModelRequest {
        model: "asked-for".to_owned(),
        run: RunId(uuid::Uuid::from_u128(1)),
        iteration: 3,
        attempt: 1,
        instructions: None,
        messages: vec![ModelMessage::User(input.to_owned())],
        tools: [].into(),
        choice: ToolChoice::Auto,
        one_call: false,
        parameters: None,
        prefill: None,
    }
}

/// The message without the server's address, which differs between tests.
pub fn without_address(message: &str) -> String {
    let Some((before, after)) = message.split_once(" at http://") else { return message.to_owned() };
    let end = after.find(": ").into_iter().chain(after.find(' ')).min().unwrap_or(after.len());
    format!("{before}{}", &after[end..])
}

pub fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

/// An event with reasoning of this provider.
pub fn reasoning_event(provider: &str, summary: &[&str], text: &str, sealed: Option<&str>) -> ModelEvent {
    let summary = summary.iter().map(|part| (*part).to_owned()).collect();
    ModelEvent::Reasoning(Reasoning { provider: provider.to_owned(), summary, text: text.to_owned(), sealed: sealed.map(str::to_owned) })
}

pub fn call(id: &str, tool: &str, arguments: &str) -> ModelEvent {
    ModelEvent::Call(RequestedCall { provider_id: id.to_owned(), tool: tool.to_owned(), arguments: arguments.to_owned() })
}

pub fn usage(tokens_in: u64, tokens_out: u64) -> ModelEvent {
    ModelEvent::Usage(Usage { tokens_in, tokens_out, ..Usage::default() })
}
