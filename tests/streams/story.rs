//! One response of three iterations, streamed to a client that reconnects until the end: the events over all its connections, and the
//! starts of the tools.

use std::mem::take;

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{EventStream, McpServer, McpStart, Next, Server, ServerBuilder, StreamEvent, until};

/// A story, and what must hold of it.
pub struct Story {
    /// The name in the tables.
    pub name: &'static str,
    /// The tools that the model calls: two in the first iteration, one in the second.
    calls: [&'static str; 3],
    /// Whether a call interrupted by a death is parked.
    pub writes: bool,
}

/// Tools that only read: calls interrupted by a death start again.
pub const READS: Story = Story { name: "reads", calls: ["echo", "add", "echo"], writes: false };

/// Tools of which one writes: its call is parked when a death interrupts it.
pub const WRITES: Story = Story { name: "writes", calls: ["write_note", "add", "write_note"], writes: true };

/// The tool that writes.
const WRITE: &str = "write_note";

/// The results of one telling.
pub struct Telling {
    /// The events over all connections, in the order of their arrival.
    pub events: Vec<StreamEvent>,
    /// The number of deaths.
    pub deaths: u32,
    /// The calls that a person had to decide about.
    pub decisions: Vec<Decision>,
    /// Every start of the tool that writes.
    pub writes: Vec<McpStart>,
    /// The stream once more from its beginning, read after the end.
    pub replayed: Vec<StreamEvent>,
}

/// A person's decision about a call that a death had interrupted.
pub struct Decision {
    /// The key of the call.
    pub call_id: String,
    /// The action of the decision.
    pub wish: &'static str,
}

/// How the server dies.
#[derive(Clone, Debug)]
pub enum Death {
    /// Not at all.
    Never,
    /// At a crash point.
    AtPoint(String),
    /// This number of milliseconds after the request.
    After(u64),
    /// During this execution of the tool that writes, counted from 1. Then the person's decision.
    InWrite(usize, &'static str),
}

impl Death {
    fn wish(&self) -> &'static str {
        match self {
            Death::InWrite(_, wish) => wish,
            Death::Never | Death::AtPoint(_) | Death::After(_) => "tell",
        }
    }
}

impl Story {
    fn script(&self) -> String {
        let arguments = |tool: &str, n: u32| match tool {
            "add" => json!({ "a": n, "b": 1 }),
            _ => json!({ "text": format!("note {n}") }),
        };
        let call = |n: usize| json!({ "tool": self.calls[n], "arguments": arguments(self.calls[n], n as u32) });
        let script = json!({ "laps": [
            { "text": "I shall look at two things at once.", "chunk": 6, "chunk_delay_ms": 3, "calls": [call(0), call(1)] },
            { "text": "And at one thing more.", "chunk": 6, "chunk_delay_ms": 3, "calls": [call(2)] },
            { "text": "Now I know enough to answer you in a few words.", "chunk": 6, "chunk_delay_ms": 3 },
        ] });
        script.to_string()
    }

    /// Plays it for a client that reconnects until it has the end.
    pub async fn tell(&self, death: Death) -> Telling {
        let tools = McpServer::start().await;
        let config = format!(
            "models: [ {{ name: m, provider: scripted, script: script.yaml }} ]\nlimits: {{ sweep_interval: 50ms, lease: 1s }}\n{}",
            tools.config("tools")
        );
        let mut builder = ServerBuilder::new(&config).file("script.yaml", &self.script());
        if let Death::AtPoint(point) = &death {
            builder = builder.env("WINDLASS_CRASH_AT", point);
        }
        let wish = death.wish();
        let client = Client { server: builder.start().await, events: Vec::new(), id: None, deaths: 0, decisions: Vec::new(), wish };
        let pid = client.server.pid();
        let following = client.follow_to_the_end();
        let mut client = match death {
            Death::Never | Death::AtPoint(_) => following.await,
            Death::After(ms) => {
                let kills = async {
                    tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                    kill(pid);
                };
                tokio::join!(following, kills).0
            }
            Death::InWrite(nth, _) => {
                tools.behave(|manners| manners.holds = Some((WRITE, nth)));
                let kills = async {
                    tools.runs(WRITE, 1).await;
                    until("that write is at it", || async { (tools.starts(WRITE).len() == nth).then_some(()) }).await;
                    kill(pid);
                    tools.behave(|manners| manners.holds = None);
                };
                tokio::join!(following, kills).0
            }
        };
        let (events, decisions, deaths) = (take(&mut client.events), take(&mut client.decisions), client.deaths);
        // From the beginning, and also if the server died after the end of the response.
        let replayed = client.follow_to_the_end().await.events;
        Telling { events, deaths, decisions, writes: tools.starts(WRITE), replayed }
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

struct Client {
    server: Server,
    events: Vec<StreamEvent>,
    id: Option<String>,
    deaths: u32,
    decisions: Vec<Decision>,
    wish: &'static str,
}

impl Client {
    async fn follow_to_the_end(mut self) -> Self {
        loop {
            if let Some(mut stream) = self.connect().await
                && self.read(&mut stream).await
            {
                return self;
            }
            self = self.start_again().await;
        }
    }

    /// Sends the request with a key, so that a repeated request gives the same response. Once it knows the response, it follows that one.
    async fn connect(&self) -> Option<EventStream> {
        let request = match &self.id {
            None => {
                let tools = json!([{ "type": "mcp", "server_label": "tools" }]);
                let body = json!({ "model": "m", "input": "go", "stream": true, "tools": tools });
                self.server.authorized(Method::POST, "/v1/responses").header("idempotency-key", "the-only-one").json(&body)
            }
            Some(id) => {
                let after =
                    self.events.last().map_or_else(String::new, |event| format!("&starting_after={}", event.data["sequence_number"]));
                self.server.authorized(Method::GET, &format!("/v1/responses/{id}?stream=true{after}"))
            }
        };
        let response = request.send().await.ok()?;
        assert_eq!(response.status(), 200, "a stream can always be taken up again");
        Some(EventStream::new(response))
    }

    /// Reads to the end mark, or until the connection breaks. Decides about a response that is parked.
    async fn read(&mut self, stream: &mut EventStream) -> bool {
        loop {
            match stream.next().await {
                Next::Event(event) => {
                    if self.id.is_none() {
                        self.id = event.data["response"]["id"].as_str().map(str::to_owned);
                    }
                    let is_parked = event.data["response"]["windlass"]["status"] == "parked";
                    self.events.push(event);
                    if is_parked && !self.decide().await {
                        return false;
                    }
                }
                Next::Done => return true,
                Next::Comment => {}
                Next::Closed => panic!("a stream that was not over was closed as if it were"),
                Next::Broken => return false,
            }
        }
    }

    /// Decides about every parked call. Returns false if the server died meanwhile.
    async fn decide(&mut self) -> bool {
        let run = self.id.as_ref().expect("a parked response has an id").replace("resp_", "run_");
        let Some(view) = self.server.try_get(&format!("/v1/windlass/runs/{run}")).await else { return false };
        let open = view.ok()["calls"]["open"].as_array().expect("open calls are a list").clone();
        for call in open.iter().filter(|call| call["progress"] == "parked") {
            let mut body = json!({ "run_id": run, "tool_call_id": call["tool_call_id"], "action": self.wish });
            if self.wish == "record" {
                body["status"] = json!("success");
                body["result"] = json!("written");
            }
            let Some(answer) = self.server.try_post("/v1/windlass/reconcile", body).await else { return false };
            assert!(answer.status == 200 || answer.code() == "not_parked", "{answer:?}");
            if answer.status == 200 {
                let call_id = call["tool_call_id"].as_str().expect("a call has a key").to_owned();
                self.decisions.push(Decision { call_id, wish: self.wish });
            }
        }
        true
    }

    /// Starts the server again after a connection broke because it is dead, or about to be.
    async fn start_again(mut self) -> Self {
        self.server.gone().await;
        let server = self.server.restart(&[]).await;
        Client { server, deaths: self.deaths + 1, ..self }
    }
}

/// The part of a stream that all tellings of a story have in common: everything but ids, times, numbers and heartbeats.
pub fn essence(events: &[StreamEvent]) -> Vec<Value> {
    let run = events.first().and_then(|event| event.data["response"]["id"].as_str()).unwrap_or_default().replace("resp_", "");
    let mut was_in_progress = false;
    let mut kept = Vec::new();
    for event in events {
        let is_in_progress = event.kind() == "response.in_progress";
        if is_in_progress && was_in_progress {
            continue;
        }
        was_in_progress |= is_in_progress;
        let mut data = event.data.clone();
        data["sequence_number"] = Value::Null;
        for time in ["created_at", "completed_at"] {
            if data["response"].get(time).is_some() {
                data["response"][time] = Value::Null;
            }
        }
        kept.push(serde_json::from_str(&data.to_string().replace(&run, "RUN")).expect("it is still JSON"));
    }
    in_order_of_calls(&mut kept);
    kept
}

/// Calls of one iteration run at the same time and end in any order; this sorts their events.
fn in_order_of_calls(events: &mut [Value]) {
    let is_end_of_call = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        kind.starts_with("response.mcp_call.") && !kind.ends_with("in_progress")
            || kind == "response.output_item.done" && event["item"]["type"] == "mcp_call"
    };
    events.chunk_by_mut(|a, b| is_end_of_call(a) == is_end_of_call(b)).filter(|chunk| chunk.iter().all(is_end_of_call)).for_each(|chunk| {
        chunk.sort_by_key(|event| event["output_index"].as_u64());
    });
}
