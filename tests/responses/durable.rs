//! After a crash: stored results stay, nothing is executed twice, and a write with an unknown outcome waits for a person.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_tests::{
    FakeModel, McpServer, Mode, Next, Scene, Server, ServerBuilder, StreamEvent, in_every_mode,
    responses::{check_events, is_over},
    until,
};

use crate::support::{ask_with, call_outcome, mcp, messages_sent, response_of, scripted};

/// A server whose tools run in another process and survive it.
async fn server_with_effects(model: &FakeModel, tools: &McpServer, effects: &str) -> Server {
    let config = format!(
        "{}tools: {{ mcp: [ {{ label: tools, url: '{}', effects: {{ {effects} }} }} ] }}\nlimits: {{ sweep_interval: 50ms, backoff: 10ms, lease: 2s }}\n",
        model.config().replace("name: fake", "name: m"),
        tools.url
    );
    ServerBuilder::new(&config).start().await
}

fn echo(text: &str) -> (&'static str, Value) {
    ("echo", json!({ "text": text }))
}

/// Reads a stream until it breaks, and continues from the next server.
struct Reading {
    events: Vec<StreamEvent>,
    id: String,
}

impl Reading {
    async fn begin(server: &Server, body: Value) -> (Self, windlass_tests::EventStream) {
        let request = server.authorized(reqwest::Method::POST, "/v1/responses").json(&Mode::Streamed.asks(body));
        let mut stream = windlass_tests::EventStream::new(request.send().await.expect("the server answers"));
        let Next::Event(first) = stream.next().await else { panic!("a stream begins with an event") };
        let id = first.data["response"]["id"].as_str().expect("an id").to_owned();
        (Reading { events: vec![first], id }, stream)
    }

    async fn broken(&mut self, mut stream: windlass_tests::EventStream) {
        let (events, is_whole) = stream.rest().await;
        assert!(!is_whole, "a killed server ends nothing");
        self.events.extend(events);
    }

    /// Resumes after the last event and reads to the end. Both parts together have to be one stream.
    async fn resumed(&mut self, server: &Server) -> Value {
        let last = self.events.last().and_then(|event| event.data["sequence_number"].as_u64());
        let (rest, is_whole) = server.follow(&self.id, last).await.rest().await;
        assert!(is_whole);
        self.events.extend(rest);
        check_events(&self.events);
        self.events.last().expect("events").data["response"].clone()
    }
}

#[tokio::test]
async fn a_044_results_are_on_record_before_the_model_is_asked_again() {
    in_every_mode(async |mode| {
        let model = FakeModel::held_back(vec![Scene::Call(vec![echo("one"), echo("two")]), Scene::Say("done")]).await;
        let tools = McpServer::start().await;
        let server = server_with_effects(&model, &tools, "").await;
        let asked = server.ask(mode, ask_with("go", &[mcp()]));
        model.let_answer();
        model.asked_times(2).await;
        // The model has not answered yet, so everything that is stored now was stored before its request.
        let id = response_of(tools.starts("echo")[0].call_id.as_ref().expect("a key"));
        let outputs: Vec<Value> =
            server.response(&id).await["output"].as_array().expect("an output").iter().skip(1).map(|item| item["output"].clone()).collect();
        assert_eq!(outputs, ["one", "two"]);
        model.let_answer();
        assert_eq!(asked.made(&server).await.text(), "done");
    })
    .await;
}

#[tokio::test]
async fn a_044_a_crash_after_the_results_runs_no_call_again() {
    let model = FakeModel::start(vec![Scene::SayAndCall("See.", vec![echo("one"), echo("two")]), Scene::Hang, Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let mut server = server_with_effects(&model, &tools, "").await;
    let (mut reading, stream) = Reading::begin(&server, ask_with("go", &[mcp()])).await;
    model.asked_times(2).await;
    server.kill();
    reading.broken(stream).await;
    let server = server.restart(&[]).await;
    let response = reading.resumed(&server).await;
    assert_eq!((&response["status"], tools.starts("echo").len()), (&json!("completed"), 2));
    assert_eq!(response["output"].as_array().map(Vec::len), Some(5));
    assert_eq!(messages_sent(&model.asked()[2]), messages_sent(&model.asked()[1]), "the model is asked the same again");
}

#[tokio::test]
async fn a_044_a_read_that_was_cut_starts_again_with_its_key() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 700 })), echo("quick")]), Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let mut server = server_with_effects(&model, &tools, "").await;
    let (mut reading, stream) = Reading::begin(&server, ask_with("go", &[mcp()])).await;
    tools.runs("sleep_ms", 1).await;
    until("the quick one is on record", || async { (server.response(&reading.id).await["output"][2]["output"] == "quick").then_some(()) })
        .await;
    server.kill();
    reading.broken(stream).await;
    let server = server.restart(&[]).await;
    let response = reading.resumed(&server).await;
    assert_eq!(response["status"], "completed");
    let starts = tools.starts("sleep_ms");
    assert_eq!((starts.len(), &starts[0].call_id), (2, &starts[1].call_id), "the same key");
    assert_eq!(tools.starts("echo").len(), 1, "what was done is not done again");
}

#[tokio::test]
async fn a_044_an_idempotent_call_that_was_cut_starts_again_with_its_key() {
    let model = FakeModel::start(vec![Scene::Call(vec![("put_note", json!({ "text": "once" }))]), Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    tools.behave(|manners| manners.holds = Some(("put_note", 1)));
    let mut server = server_with_effects(&model, &tools, "").await;
    let (mut reading, stream) = Reading::begin(&server, ask_with("go", &[mcp()])).await;
    tools.runs("put_note", 1).await;
    server.kill();
    reading.broken(stream).await;
    let server = server.restart(&[]).await;
    let response = reading.resumed(&server).await;
    assert_eq!((&response["status"], &response["output"][1]["output"]), (&json!("completed"), &json!("written")));
    let starts = tools.starts("put_note");
    assert_eq!(starts.len(), 2);
    assert!(starts[0].call_id.is_some() && starts[0] == starts[1], "the same key and the same arguments: {starts:?}");
}

/// No reader can take the part for a complete answer, and the next server streams the rest. With a heartbeat the server has the time to
/// break the stream off; without one the connection breaks when the process ends.
#[tokio::test]
async fn a_server_that_stops_breaks_its_streams_off() {
    for heartbeat in ["50ms", "15s"] {
        let model = FakeModel::start(vec![Scene::Hang, Scene::Say("done")]).await;
        let config = format!(
            "{}server: {{ drain_s: 1 }}\nlimits: {{ sweep_interval: 50ms }}\nresponses: {{ heartbeat: {heartbeat} }}\n",
            model.config()
        );
        let mut server = ServerBuilder::new(&config).start().await;
        let (mut reading, stream) = Reading::begin(&server, json!({ "model": "fake", "input": "go" })).await;
        model.asked_times(1).await;
        server.signal(rustix::process::Signal::TERM);
        reading.broken(stream).await;
        assert!(server.gone().await.success());
        let server = server.restart(&[]).await;
        assert_eq!(reading.resumed(&server).await["status"], "completed");
    }
}

#[tokio::test]
async fn a_044_a_crash_at_every_step_loses_nothing_and_applies_nothing_twice() {
    let points = [
        "commit.enqueue.after",
        "commit.enter.after",
        "commit.suspend.before",
        "commit.suspend.after",
        "effect.tool_start.before",
        "effect.tool_start.after",
        "commit.report.before",
        "commit.report.after",
        "commit.resume.before",
        "commit.resume.after",
        "commit.end.before",
        "commit.end.after",
    ];
    let (mut reached, script) =
        (0, "laps: [ { calls: [{ tool: echo, arguments: { text: one } }, { tool: echo, arguments: { text: two } }] }, { text: done } ]");
    for point in points {
        println!("crash at {point}");
        let (server, tools) = scripted(script).await;
        let mut server = server.restart(&[("WINDLASS_CRASH_AT", point)]).await;
        let body = Mode::Background.asks(ask_with("go", &[mcp()]));
        let request = server.authorized(reqwest::Method::POST, "/v1/responses").header("idempotency-key", "k").json(&body);
        let answer = server.try_send(request).await.ok();
        // Not every run has every step. If the point is never reached, the run just ends.
        let died = loop {
            if !server.is_running() {
                break true;
            }
            let id = answer.as_ref().and_then(|answer| answer.body["id"].as_str()).unwrap_or("none");
            let seen = server.try_get(&format!("/v1/responses/{id}")).await;
            if seen.is_some_and(|seen| seen.status == 200 && is_over(&seen.body)) && server.is_running() {
                break false;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        reached += usize::from(died);
        let server = server.restart(&[]).await;
        let made = server.ask_with(Mode::Background, ask_with("go", &[mcp()]), &[("idempotency-key", "k")]).made(&server).await;
        assert_eq!((made.status(), made.text().as_str()), ("completed", "done"), "{point}");
        let outcomes: Vec<_> = made.items("mcp_call").iter().map(call_outcome).collect();
        assert_eq!(
            outcomes,
            [("completed".into(), "one".into(), String::new()), ("completed".into(), "two".into(), String::new())],
            "{point}"
        );
        let starts = tools.starts("echo");
        let keys: BTreeSet<_> = starts.iter().map(|start| start.call_id.clone()).collect();
        assert_eq!(keys.len(), 2, "{point}: a call keeps its key: {starts:?}");
        assert!(starts.len() <= 4, "{point}: {starts:?}");
        assert_eq!(server.number("SELECT count(*) FROM runs"), 1, "{point}");
    }
    assert!(reached >= 8, "only {reached} of the points were reached");
}

/// A crash interrupts a write. After the restart the response waits for a person.
async fn parked(model: &FakeModel, tools: &McpServer) -> (Server, Reading) {
    let mut server = server_with_effects(model, tools, "sleep_ms: write").await;
    let (mut reading, stream) = Reading::begin(&server, ask_with("go", &[mcp()])).await;
    tools.runs("sleep_ms", 1).await;
    server.kill();
    reading.broken(stream).await;
    let server = server.restart(&[]).await;
    until("it is parked", || async {
        let response = server.response(&reading.id).await;
        (response["windlass"]["status"] == "parked").then(|| assert_eq!(response["status"], "in_progress"))
    })
    .await;
    (server, reading)
}

async fn reconcile(server: &Server, reading: &Reading, verdict: Value) {
    let run = format!("run_{}", reading.id.trim_start_matches("resp_"));
    let run = server.response(&reading.id).await["windlass"]["run_id"].as_str().map_or(run, str::to_owned);
    let call = server.calls(&run).await[0]["tool_call_id"].clone();
    let mut body = json!({ "run_id": run, "tool_call_id": call });
    body.as_object_mut().expect("an object").extend(verdict.as_object().expect("an object").clone());
    server.post("/v1/windlass/reconcile", body).await.ok();
}

#[tokio::test]
async fn a_044_a_write_that_was_cut_waits_for_a_person_who_records_what_happened() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]), Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let (server, mut reading) = parked(&model, &tools).await;
    reconcile(&server, &reading, json!({ "action": "record", "status": "success", "result": "it had slept" })).await;
    let response = reading.resumed(&server).await;
    assert_eq!((&response["status"], &response["windlass"]["status"]), (&json!("completed"), &json!("completed")));
    assert_eq!(response["output"][1]["output"], "it had slept");
    assert_eq!(tools.starts("sleep_ms").len(), 1, "a write starts once");
}

#[tokio::test]
async fn a_044_a_write_that_was_cut_runs_again_if_a_person_says_so() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 400 }))]), Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let (server, mut reading) = parked(&model, &tools).await;
    reconcile(&server, &reading, json!({ "action": "release" })).await;
    let response = reading.resumed(&server).await;
    assert_eq!((&response["status"], &response["output"][1]["output"]), (&json!("completed"), &json!("slept")));
    let starts = tools.starts("sleep_ms");
    assert_eq!((starts.len(), &starts[0].call_id), (2, &starts[1].call_id));
}

#[tokio::test]
async fn a_044_a_write_that_was_cut_is_reported_to_the_model_if_a_person_says_so() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]), Scene::Say("too bad")]).await;
    let tools = McpServer::start().await;
    let (server, mut reading) = parked(&model, &tools).await;
    reconcile(&server, &reading, json!({ "action": "tell" })).await;
    let response = reading.resumed(&server).await;
    assert_eq!((&response["status"], &response["output"][1]["status"]), (&json!("completed"), &json!("failed")));
    assert_eq!(tools.starts("sleep_ms").len(), 1);
    assert!(messages_sent(&model.asked()[1]).len() == 3, "{:?}", messages_sent(&model.asked()[1]));
}

#[tokio::test]
async fn a_parked_response_sends_heartbeats() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]), Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let (server, mut reading) = parked(&model, &tools).await;
    let server = server.restart(&[("WINDLASS_RESPONSES__HEARTBEAT", "50ms")]).await;
    let mut stream = server.follow(&reading.id, reading.events.last().and_then(|event| event.data["sequence_number"].as_u64())).await;
    let is_sign = |event: &&StreamEvent| event.kind() == "response.in_progress" && event.data["response"]["windlass"]["status"] == "parked";
    while reading.events.iter().filter(is_sign).count() < 3 {
        let next = stream.next().await;
        let Next::Event(event) = next else { panic!("{next:?} is no heartbeat") };
        reading.events.push(event);
    }
    reconcile(&server, &reading, json!({ "action": "record", "status": "success", "result": "slept" })).await;
    assert_eq!(reading.resumed(&server).await["status"], "completed");
}

#[tokio::test]
async fn a_parked_response_can_be_cancelled() {
    let model = FakeModel::start(vec![Scene::Call(vec![("sleep_ms", json!({ "ms": 60_000 }))]), Scene::Say("never")]).await;
    let tools = McpServer::start().await;
    let (server, mut reading) = parked(&model, &tools).await;
    let cancelled = server.cancel(&reading.id).await;
    assert_eq!((&cancelled["status"], &cancelled["windlass"]["status"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(reading.resumed(&server).await, cancelled);
}

#[tokio::test]
async fn a_background_response_survives_a_restart() {
    let model = FakeModel::start(vec![Scene::Call(vec![echo("one")]), Scene::Hang, Scene::Say("done")]).await;
    let tools = McpServer::start().await;
    let server = server_with_effects(&model, &tools, "").await;
    let asked = server.ask(Mode::Background, ask_with("go", &[mcp()]));
    let id = asked.id().await;
    model.asked_times(2).await;
    asked.hang_up();
    let server = server.restart(&[]).await;
    let response = server.over(&id).await;
    assert_eq!((&response["status"], &response["output"][2]["content"][0]["text"]), (&json!("completed"), &json!("done")));
    check_events(&server.replay(&id).await);
}

#[tokio::test]
async fn a_044_a_parked_write_is_shown_on_the_response_in_every_mode() {
    let script = "laps: [ { calls: [{ tool: post, arguments: {} }] }, { text: done } ]";
    let config = "
models: [ { name: m, provider: scripted, script: script.yaml } ]
tools: { external: [ { name: post, effect: write } ] }
limits: { sweep_interval: 50ms }
";
    let server = ServerBuilder::new(config).file("script.yaml", script).start().await;
    in_every_mode(async |mode| {
        let asked = server.ask(mode, json!({ "model": "m", "input": "go", "windlass": { "tools": ["post"] } }));
        // A service claims the call and disappears, so the outcome of the write is unknown.
        let call = until("the call can be claimed", || async {
            let claim = json!({ "worker": "lost", "max": 1, "lease_s": 1 });
            server.post("/v1/tools/post/claim", claim).await.ok()["calls"].get(0).cloned()
        })
        .await;
        let id = response_of(call["tool_call_id"].as_str().expect("an id"));
        let parked = until("it is parked", || async {
            Some(server.response(&id).await).filter(|response| response["windlass"]["status"] == "parked")
        })
        .await;
        assert_eq!((&parked["status"], &parked["output"][0]["status"]), (&json!("in_progress"), &json!("in_progress")));
        // A client that waits for the object gets it at once; a client that follows the stream stays connected.
        let waiting = match mode {
            Mode::Plain => {
                let made = asked.made(&server).await;
                assert_eq!(made.object, parked);
                None
            }
            Mode::Streamed | Mode::Background | Mode::Followed | Mode::Socket => Some(asked),
        };
        let verdict =
            json!({ "run_id": call["agent_turn_id"], "tool_call_id": call["tool_call_id"], "action": "record", "status": "success", "result": "posted" });
        server.post("/v1/windlass/reconcile", verdict).await.ok();
        let response = server.over(&id).await;
        assert_eq!((&response["status"], &response["windlass"]["status"]), (&json!("completed"), &json!("completed")));
        assert_eq!((&response["output"][0]["output"], &response["output"][1]["content"][0]["text"]), (&json!("posted"), &json!("done")));
        if let Some(asked) = waiting {
            assert_eq!(asked.made(&server).await.object, response);
        }
    })
    .await;
}
