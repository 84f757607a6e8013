//! Requests responses in every way that a client can, reads them to their end, and checks every event and object on the way.

pub mod contract;
mod document;
mod grammar;
mod published;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Instant,
};

use futures_util::{Stream, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use grammar::Grammar;

use crate::{Answer, PATIENCE, Server, Store, socket::Opening, until};

/// How a client requests a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client waits for the object.
    Plain,
    /// The client reads a stream.
    Streamed,
    /// In the background: the client polls until the response has ended.
    Background,
    /// In the background, with a reader of the stream.
    Followed,
    /// Over a WebSocket.
    Socket,
}

impl Mode {
    /// All modes that this test program uses: on PostgreSQL one is enough, since the door is the same.
    pub fn every() -> &'static [Mode] {
        match Store::of_this_program() {
            Store::Sqlite => &[Mode::Plain, Mode::Streamed, Mode::Background, Mode::Followed, Mode::Socket],
            Store::Postgres => &[Mode::Streamed],
        }
    }

    /// Whether the client gets a stream.
    pub fn streams(self) -> bool {
        matches!(self, Mode::Streamed | Mode::Followed | Mode::Socket)
    }

    /// Adds the fields of this mode to a body.
    pub fn asks(self, mut body: Value) -> Value {
        if matches!(self, Mode::Streamed | Mode::Followed) {
            body["stream"] = true.into();
        }
        if matches!(self, Mode::Background | Mode::Followed) {
            body["background"] = true.into();
        }
        body
    }
}

/// Plays the same in every mode. A failure names its mode.
pub async fn in_every_mode(play: impl AsyncFn(Mode)) {
    for mode in Mode::every() {
        println!("mode: {mode:?}");
        play(*mode).await;
    }
}

/// An event of a stream.
#[derive(Clone, Debug)]
pub struct StreamEvent {
    /// The time of its arrival.
    pub at: Instant,
    /// The event.
    pub data: Value,
}

impl StreamEvent {
    /// The type.
    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or_default()
    }
}

/// A response that has ended.
#[derive(Clone, Debug)]
pub struct ResponseRecord {
    /// The mode in which it was requested.
    pub mode: Mode,
    /// The response object.
    pub object: Value,
    /// Its events: as they arrived if the client followed the stream, otherwise as a later replay has them.
    pub events: Vec<StreamEvent>,
}

impl ResponseRecord {
    /// The id.
    pub fn id(&self) -> &str {
        self.object["id"].as_str().expect("a response has an id")
    }

    /// The status.
    pub fn status(&self) -> &str {
        self.object["status"].as_str().expect("a response has a status")
    }

    /// The output items of a type.
    pub fn items(&self, kind: &str) -> Vec<Value> {
        self.output().into_iter().filter(|item| item["type"] == kind).collect()
    }

    /// The output without the lists of tools at its beginning.
    pub fn output(&self) -> Vec<Value> {
        let output = self.object["output"].as_array().expect("a response has an output");
        output.iter().filter(|item| item["type"] != "mcp_list_tools").cloned().collect()
    }

    /// The types of its output items, without the lists of tools.
    pub fn shape(&self) -> Vec<String> {
        self.output().iter().map(|item| item["type"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The text of all of its messages.
    pub fn text(&self) -> String {
        let messages = self.items("message");
        messages.iter().filter_map(|message| message["content"][0]["text"].as_str()).collect::<Vec<_>>().join("|")
    }

    /// The types of its events.
    pub fn kinds(&self) -> Vec<&str> {
        self.events.iter().map(StreamEvent::kind).collect()
    }

    /// The part that two responses to the same request have in common: everything but ids and times.
    pub fn essence(&self) -> Value {
        let run = self.id().trim_start_matches("resp_").to_owned();
        let of_interest = json!({
            "status": self.object["status"], "output": self.object["output"], "usage": self.object["usage"],
            "error": self.object["error"], "incomplete_details": self.object["incomplete_details"],
            "windlass": { "status": self.object["windlass"]["status"], "iteration": self.object["windlass"]["iteration"] },
        });
        serde_json::from_str(&of_interest.to_string().replace(&run, "RUN")).expect("it is still JSON")
    }
}

/// Parses the body of an event stream, event by event.
pub struct EventStream {
    chunks: Pin<Box<dyn Stream<Item = Option<Vec<u8>>> + Send>>,
    bytes: Vec<u8>,
    /// The number of bytes that contain no separator: an event can be megabytes long, and arrives in many pieces.
    looked: usize,
    ready: VecDeque<Next>,
}

/// The next part of a stream.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(StreamEvent),
    /// The end mark.
    Done,
    /// A comment.
    Comment,
    /// The server closed the connection properly.
    Closed,
    /// The connection broke.
    Broken,
}

impl EventStream {
    /// Wraps the body of an answer.
    pub fn new(response: reqwest::Response) -> Self {
        assert_eq!(response.status(), 200, "the stream opens");
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
        assert_eq!(header("content-type").as_deref(), Some("text/event-stream"));
        assert_ne!(header("connection").as_deref(), Some("close"), "a killed server would look like a clean end");
        let chunks = response.bytes_stream().map(|chunk| chunk.ok().map(|bytes| bytes.to_vec()));
        EventStream { chunks: Box::pin(chunks), bytes: Vec::new(), looked: 0, ready: VecDeque::new() }
    }

    /// Reads the next part.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return next;
            }
            match tokio::time::timeout(PATIENCE, self.chunks.next()).await.expect("the stream sends something") {
                None if self.bytes.is_empty() => return Next::Closed,
                None | Some(None) => return Next::Broken,
                Some(Some(chunk)) => self.bytes.extend(chunk),
            }
            while let Some(end) = self.bytes[self.looked..].windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.bytes.drain(..self.looked + end + 2).collect();
                self.looked = 0;
                self.ready.push_back(parse(std::str::from_utf8(&block).expect("a stream is UTF-8")));
            }
            self.looked = self.bytes.len().saturating_sub(1);
        }
    }

    /// Reads all events up to the end mark, or until the connection breaks. The flag is true if the stream ended properly.
    pub async fn rest(&mut self) -> (Vec<StreamEvent>, bool) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Next::Event(event) => events.push(event),
                Next::Comment => {}
                Next::Done => {
                    assert!(matches!(self.next().await, Next::Closed), "the end mark is the end");
                    return (events, true);
                }
                Next::Closed => panic!("a stream was closed without its end mark, after {:?}", events.last()),
                Next::Broken => return (events, false),
            }
        }
    }
}

fn parse(block: &str) -> Next {
    if block.starts_with(':') {
        return Next::Comment;
    }
    assert!(!block.contains('\r'), "lines end with LF alone: {block:?}");
    if block == "data: [DONE]\n\n" {
        return Next::Done;
    }
    let lines: Vec<&str> = block.lines().filter(|line| !line.is_empty()).collect();
    let [event, data] = lines.as_slice() else { panic!("an event is its name and its data: {block:?}") };
    let name = event.strip_prefix("event: ").unwrap_or_else(|| panic!("an event has a name: {block:?}"));
    let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("an event has data: {block:?}"));
    let data: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("an event is JSON: {error}: {data}"));
    assert_eq!(data["type"], name, "the name of an event is its type");
    Next::Event(StreamEvent { at: Instant::now(), data })
}

/// A requested response that may not have ended yet.
pub struct PendingResponse {
    mode: Mode,
    seen: Arc<Mutex<Vec<StreamEvent>>>,
    id: Arc<Mutex<Option<String>>>,
    task: JoinHandle<Value>,
}

impl PendingResponse {
    /// The id, as soon as the client can know it. A client that waits for the object learns it only at the end.
    pub async fn id(&self) -> String {
        until("the response has an id", || async { self.id.lock().expect("the lock is not poisoned").clone() }).await
    }

    /// Waits for an event. Only for clients that read a stream.
    pub async fn event(&self, kind: &str) -> StreamEvent {
        until(&format!("{kind} arrives"), || async {
            self.seen.lock().expect("the lock is not poisoned").iter().find(|event| event.kind() == kind).cloned()
        })
        .await
    }

    /// Closes the client's connection.
    pub fn hang_up(self) {
        self.task.abort();
    }

    /// Waits for the end. Whatever can be read again must be the same, as an object and as a stream.
    pub async fn made(self, server: &Server) -> ResponseRecord {
        // Heartbeats would keep a reader waiting for ever.
        let object = match tokio::time::timeout(2 * PATIENCE, self.task).await.expect("the response ends") {
            Ok(object) => object,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let id = object["id"].as_str().expect("a response has an id").to_owned();
        let mut events = std::mem::take(&mut *self.seen.lock().expect("the lock is not poisoned"));
        if object["windlass"]["status"] != "parked" {
            match object["store"] == true {
                true => {
                    assert_eq!(server.response(&id).await, object, "the same object when it is asked for again");
                    let again = server.replay(&id).await;
                    let data = |events: &[StreamEvent]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
                    assert!(!self.mode.streams() || data(&again) == data(&events), "the same events when they are asked for again");
                    assert_eq!(again.last().expect("a stream has an end").data["response"], object);
                    if !self.mode.streams() {
                        events = again;
                    }
                }
                false => assert_eq!(server.get(&format!("/v1/responses/{id}")).await.status, 404, "what is not stored cannot be read"),
            }
        }
        ResponseRecord { mode: self.mode, object, events }
    }
}

impl Server {
    /// A request with the token.
    pub fn authorized(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request(method, path).bearer_auth(self.token())
    }

    /// Requests a response and reads it to its end.
    pub async fn respond(&self, mode: Mode, body: Value) -> ResponseRecord {
        self.ask(mode, body).made(self).await
    }

    /// Requests a response.
    pub fn ask(&self, mode: Mode, body: Value) -> PendingResponse {
        self.ask_with(mode, body, &[])
    }

    /// Requests a response with additional headers.
    pub fn ask_with(&self, mode: Mode, body: Value, headers: &[(&str, &str)]) -> PendingResponse {
        let body = mode.asks(body);
        let opening = Opening::new(self, headers);
        let mut request = self.authorized(Method::POST, "/v1/responses").json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (seen, id) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let client = Client { get: self.authorized(Method::GET, "/v1/responses/"), seen: seen.clone(), id: id.clone() };
        let task = tokio::spawn(async move {
            match mode {
                Mode::Plain => client.plain(request).await,
                Mode::Background => client.polled(request).await,
                Mode::Streamed | Mode::Followed => client.streamed(request).await,
                Mode::Socket => client.on_a_socket(opening, body).await,
            }
        });
        PendingResponse { mode, seen, id, task }
    }

    /// Sends a request that must be refused.
    pub async fn refusal(&self, mode: Mode, body: Value) -> Answer {
        let answer = match mode {
            Mode::Plain | Mode::Streamed | Mode::Background | Mode::Followed => self.post("/v1/responses", mode.asks(body)).await,
            Mode::Socket => self.socket().await.refusal(body).await,
        };
        check_refusal(&answer);
        answer
    }

    /// Reads a stored response.
    pub async fn response(&self, id: &str) -> Value {
        let response = self.get(&format!("/v1/responses/{id}")).await.ok();
        check_response(&response);
        response
    }

    /// Opens the stream of a stored response, after an event or from its beginning.
    pub async fn follow(&self, id: &str, after: Option<u64>) -> EventStream {
        let after = after.map(|after| format!("&starting_after={after}")).unwrap_or_default();
        let request = self.authorized(Method::GET, &format!("/v1/responses/{id}?stream=true{after}"));
        EventStream::new(request.send().await.expect("the server answers"))
    }

    /// Reads the whole stream of a stored response, which has ended or will end.
    pub async fn replay(&self, id: &str) -> Vec<StreamEvent> {
        let (events, is_whole) = self.follow(id, None).await.rest().await;
        assert!(is_whole, "the stream ends properly");
        check_events(&events);
        events
    }

    /// Cancels a response.
    pub async fn cancel(&self, id: &str) -> Value {
        let response = self.post(&format!("/v1/responses/{id}/cancel"), json!({})).await.ok();
        check_response(&response);
        response
    }

    /// Waits until a stored response has ended or waits for a client or a person.
    pub async fn over(&self, id: &str) -> Value {
        until(&format!("{id} is over"), || async { Some(self.response(id).await).filter(is_over) }).await
    }
}

/// Checks a complete stream against the grammar.
pub fn check_events(events: &[StreamEvent]) {
    let mut grammar = Grammar::default();
    events.iter().for_each(|event| grammar.take(&event.data));
    assert!(grammar.ended().is_some(), "a stream has an end: {:?}", events.last());
}

/// Checks an object against the contracts.
pub fn check_response(response: &Value) {
    let faults = contract::faults_of_response(response);
    assert!(faults.is_empty(), "a response that the contract does not have: {faults:#?}\n{response:#}");
}

/// Checks that an error has the shape that OpenAI's clients parse.
pub fn check_refusal(answer: &Answer) {
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.body);
    let error = answer.body["error"].as_object().unwrap_or_else(|| panic!("{} {}", answer.status, answer.body));
    let keys: Vec<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "message", "param", "type"], "{}", answer.body);
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()) && error["code"].is_string(), "{}", answer.body);
}

/// Whether a response can't continue by itself.
pub fn is_over(response: &Value) -> bool {
    response["status"] != "queued" && response["status"] != "in_progress"
}

/// Sends one request and reads its answer.
struct Client {
    get: reqwest::RequestBuilder,
    seen: Arc<Mutex<Vec<StreamEvent>>>,
    id: Arc<Mutex<Option<String>>>,
}

impl Client {
    fn know(&self, response: &Value) {
        let id = response["id"].as_str().expect("a response has an id").to_owned();
        self.id.lock().expect("the lock is not poisoned").get_or_insert(id);
    }

    /// A response that failed without output is answered with an HTTP error that names the stored response.
    async fn plain(&self, request: reqwest::RequestBuilder) -> Value {
        let answer = request.send().await.expect("the server answers");
        if !answer.status().is_success() {
            assert_eq!(answer.headers()["x-should-retry"], "false", "{answer:?}");
            let error: Value = serde_json::from_slice(&answer.bytes().await.expect("a body")).expect("JSON");
            let id = error["error"]["response_id"].as_str().unwrap_or_else(|| panic!("no response was made: {error}"));
            let response = self.stored(id).await;
            self.know(&response);
            assert_eq!((&response["status"], &response["error"]["message"]), (&json!("failed"), &error["error"]["message"]));
            return response;
        }
        let response = contract::read_object(answer).await;
        self.know(&response);
        assert!(is_over(&response) || response["windlass"]["status"] == "parked", "an answer is the whole answer: {response:#}");
        response
    }

    async fn polled(&self, request: reqwest::RequestBuilder) -> Value {
        let begun = object(request).await;
        self.know(&begun);
        assert_eq!(begun["background"], true);
        let id = begun["id"].as_str().expect("a response has an id");
        until(&format!("{id} is over"), || async { Some(self.stored(id).await).filter(is_over) }).await
    }

    async fn stored(&self, id: &str) -> Value {
        let (client, request) = self.get.try_clone().expect("it has no body").build_split();
        let mut request = request.expect("a request");
        *request.url_mut() = request.url().join(id).expect("an address");
        object(reqwest::RequestBuilder::from_parts(client, request)).await
    }

    async fn streamed(&self, request: reqwest::RequestBuilder) -> Value {
        let mut stream = EventStream::new(request.send().await.expect("the server answers"));
        let mut grammar = Grammar::default();
        loop {
            match stream.next().await {
                Next::Event(event) => {
                    grammar.take(&event.data);
                    if let Some(response) = event.data.get("response") {
                        self.know(response);
                    }
                    self.seen.lock().expect("the lock is not poisoned").push(event);
                }
                Next::Comment => {}
                Next::Done => {
                    let ended = grammar.ended().expect("the last event comes before the end mark").clone();
                    assert!(matches!(stream.next().await, Next::Closed), "the end mark is the end");
                    return ended;
                }
                Next::Closed | Next::Broken => panic!("the stream broke after event {}", grammar.next()),
            }
        }
    }

    async fn on_a_socket(&self, opening: Opening, body: Value) -> Value {
        let mut socket = opening.open().await.unwrap_or_else(|error| panic!("the socket opens: {error}"));
        socket.ask(body).await;
        let mut grammar = Grammar::default();
        loop {
            let event = socket.event().await;
            grammar.take(&event.data);
            if let Some(response) = event.data.get("response") {
                self.know(response);
            }
            self.seen.lock().expect("the lock is not poisoned").push(event);
            if let Some(ended) = grammar.ended() {
                return ended.clone();
            }
        }
    }
}

async fn object(request: reqwest::RequestBuilder) -> Value {
    contract::read_object(request.send().await.expect("the server answers")).await
}
