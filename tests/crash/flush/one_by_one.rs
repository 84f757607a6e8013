//! One announcement after another: the model and the tools are held back, so that no commit is in progress during an announcement.

use reqwest::Method;
use serde_json::{Value, json};
use windlass_tests::{EventStream, FakeModel, McpManners, McpServer, Next, Scene, Server, Speech, SseEvent, SseStream};

use super::Traced;
use crate::trace::mark;

/// The number of deltas that are released one by one.
const DELTAS: usize = 3;

/// Runs a server that makes every kind of announcement and returns its trace.
pub async fn trace() -> String {
    let calls = vec![("lookup", json!({ "item": 1 })), ("charge", json!({ "cents": 100 }))];
    let speech = Speech { chunks: (0..DELTAS).map(mark).collect(), ..Speech::default() };
    let scenes = [
        vec![Scene::Call(calls), Scene::Say("done")],
        vec![Scene::Call(vec![("echo", json!({ "text": "here" }))]), Scene::Say("done")],
        vec![Scene::Say("done"), Scene::Stepwise(speech)],
        vec![Scene::Say("never")],
    ];
    let model = FakeModel::held_back(scenes.concat()).await;
    let tools = McpServer::with(McpManners { holds: Some(("echo", 1)), ..McpManners::default() }).await;
    let config = format!(
        "{}server: {{ drain_s: 0 }}\nlimits: {{ sweep_interval: 50ms }}
tools:
  external: [ {{ name: lookup, effect: read }}, {{ name: charge, effect: write }} ]
  mcp: [ {{ label: served, url: '{}' }} ]
agents: {{ agent: {{ tools: [lookup, charge, served] }} }}\n",
        model.config(),
        tools.url
    );
    let traced = Traced::start(&config).await;
    let events = traced.server.events("agent", None).await;
    let mut story = Story { server: &traced.server, model: &model, tools: &tools, events, asked: 0 };
    story.whole_turn().await;
    story.actions().await;
    story.served_tool().await;
    story.responses().await;
    story.stops().await;
    traced.stop().await
}

/// One request after another: the next is sent when all readers have the events of the last.
struct Story<'a> {
    server: &'a Server,
    model: &'a FakeModel,
    tools: &'a McpServer,
    events: SseStream,
    asked: usize,
}

impl Story<'_> {
    async fn post(&self, path: &str, body: Value) -> Value {
        self.server.post(path, body).await.ok()
    }

    /// Waits until the reader has an event with this activity or status.
    async fn wait_for_event(&mut self, word: &str) {
        self.events.read_until(|event| is_about(event, word)).await;
    }

    /// Waits until the model gets its next request.
    async fn wait_for_model_request(&mut self) {
        self.asked += 1;
        self.model.asked_times(self.asked).await;
    }

    /// Waits until the model gets its next request and the readers have the event of it.
    async fn wait_until_thinking(&mut self) {
        self.wait_for_model_request().await;
        self.wait_for_event("thinking").await;
    }

    async fn enqueue(&mut self) -> String {
        self.server.enqueue("agent", "go on").await
    }

    async fn whole_turn(&mut self) {
        let run = self.enqueue().await;
        self.wait_until_thinking().await;
        self.model.let_answer();
        self.wait_for_event("awaiting_tool_result").await;
        let lookup = self.server.claim("lookup").await;
        let named = json!([{ "agent_turn_id": lookup["agent_turn_id"], "tool_call_id": lookup["tool_call_id"] }]);
        self.post("/v1/tools/lookup/renew", json!({ "worker": "w1", "lease_s": 90, "calls": named })).await;
        self.post("/v1/tools/lookup/release", json!({ "worker": "w1", "calls": named })).await;
        let lookup = self.server.claim("lookup").await;
        self.server.report(&lookup, json!({ "seen": true })).await.ok();
        self.wait_for_event("awaiting_tool_result").await;
        // A worker dies while it executes a write, and a person releases the write.
        let cut = self.post("/v1/tools/charge/claim", json!({ "worker": "doomed", "max": 1, "lease_s": 1 })).await;
        self.wait_for_event("parked_tool_call_id").await;
        let call = &cut["calls"][0]["tool_call_id"];
        self.post("/v1/windlass/reconcile", json!({ "run_id": run, "tool_call_id": call, "action": "release" })).await;
        self.wait_for_event("awaiting_tool_result").await;
        let charge = self.server.claim("charge").await;
        self.server.report(&charge, json!({ "paid": true })).await.ok();
        self.wait_until_thinking().await;
        self.model.let_answer();
        self.wait_for_event("idle").await;
    }

    /// One action whose result is reported without a key, and one whose result is reported with a key, and a box between them.
    async fn actions(&mut self) {
        let lookup = self.action("a1").await;
        self.server.report(&lookup, json!({ "seen": true })).await.ok();
        self.wait_for_event("idle").await;
        self.post("/v1/windlass/boxes", json!({ "items": ["a card"] })).await;
        let lookup = self.action("a2").await;
        super::report_under_a_key(self.server, &lookup, "seen").await;
        self.wait_for_event("idle").await;
    }

    /// Starts an action and returns its call.
    async fn action(&mut self, id: &str) -> Value {
        self.post("/v1/agents/agent/actions", json!({ "action_id": id, "tool": "lookup", "args": {} })).await;
        self.wait_for_event("awaiting_tool_result").await;
        self.server.claim("lookup").await
    }

    /// A tool that the server starts by itself runs until all readers have the event of it.
    async fn served_tool(&mut self) {
        self.enqueue().await;
        self.wait_until_thinking().await;
        self.model.let_answer();
        self.tools.runs("echo", 1).await;
        self.wait_for_event("executing_tool").await;
        self.tools.behave(|manners| manners.holds = None);
        self.wait_until_thinking().await;
        self.model.let_answer();
        self.wait_for_event("idle").await;
    }

    /// One response in the background, and one as a stream to a reader that gets each delta before the next is released.
    async fn responses(&mut self) {
        let begun = self.post("/v1/responses", json!({ "model": "fake", "input": "go on", "background": true })).await;
        self.wait_for_model_request().await;
        self.model.let_answer();
        self.server.over(begun["id"].as_str().expect("a response has an id")).await;

        let body = json!({ "model": "fake", "input": "go on", "stream": true });
        let request = self.server.authorized(Method::POST, "/v1/responses").json(&body);
        let mut stream = EventStream::new(request.send().await.expect("the server answers"));
        read_until(&mut stream, "response.in_progress", "").await;
        self.wait_for_model_request().await;
        for word in 0..DELTAS {
            self.model.let_answer();
            read_until(&mut stream, "response.output_text.delta", &mark(word)).await;
        }
        // The reason for the end, and the end itself.
        self.model.let_answer();
        self.model.let_answer();
        assert!(stream.rest().await.1, "the stream ends properly");
    }

    /// One run is stopped while it is queued, another while its model call is in progress.
    async fn stops(&mut self) {
        let running = self.enqueue().await;
        self.wait_until_thinking().await;
        let queued = self.enqueue().await;
        for run in [queued, running] {
            self.post("/v1/agents/agent/stop", json!({ "agent_turn_id": run, "reason": "enough" })).await;
        }
        self.wait_for_event("idle").await;
        self.wait_for_event("idle").await;
    }
}

fn is_about(event: &SseEvent, word: &str) -> bool {
    let metadata = &event.data["metadata"];
    event.event.ends_with(".state") && (event.data["status"] == word || metadata["activity"] == word || metadata.get(word).is_some())
}

/// Reads until an event of this type contains this word.
async fn read_until(stream: &mut EventStream, kind: &str, word: &str) {
    loop {
        match stream.next().await {
            Next::Event(event) if event.kind() == kind && event.data["delta"].as_str().unwrap_or_default().contains(word) => return,
            Next::Event(_) | Next::Comment => {}
            end @ (Next::Done | Next::Closed | Next::Broken) => panic!("{kind} {word} never arrived: {end:?}"),
        }
    }
}
