//! Databases that an earlier version left behind, with runs in the middle of something: this version opens them and continues the runs.
//!
//! The files in `databases/` are SQL. `WINDLASS_UPDATE_GOLDEN=1` rewrites the one of the present schema, with a server that is killed
//! while a run is suspended, a write is parked and a reply is being streamed. Files of earlier schemas can't be made again: keep them.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use windlass_tests::{Server, ServerBuilder, Store, until};

/// The schema of the newest file.
const SCHEMA: u32 = 11;

/// The reply is streamed slowly by the server that is killed, and at once by its successor. Nothing expires by age.
const CONFIG: &str = "
models: [ { name: m, provider: scripted, script: script.yaml } ]
limits: { sweep_interval: 50ms, call_deadline: 3650d }
tools:
  external:
    - { name: echo, effect: read, deadline: 3650d }
    - { name: pay, effect: write, deadline: 3650d }
agents:
  ada: { model: m, tools: [echo, pay] }
  bob: { model: m, tools: [echo, pay] }
";

const TEXT: &str = "One sentence that arrives in several parts.";

fn script(delay_ms: u32) -> String {
    format!(
        "rules:
  - when: {{ input: stream }}
    reply: {{ text: {TEXT}, chunk: 8, chunk_delay_ms: {delay_ms} }}
  - when: {{ input: suspend, iteration: 1 }}
    reply: {{ calls: [ {{ tool: echo, arguments: {{ text: alpha }} }} ] }}
  - when: {{ input: park, iteration: 1 }}
    reply: {{ calls: [ {{ tool: pay, arguments: {{ amount: 3 }} }} ] }}
  - when: {{ any: true }}
    reply: {{ text: done }}
"
    )
}

fn builder(delay_ms: u32) -> ServerBuilder {
    let key = "5e".repeat(32);
    ServerBuilder::new(CONFIG).file("script.yaml", &script(delay_ms)).env("WINDLASS_SEAL_KEY", &key)
}

fn file(schema: u32) -> PathBuf {
    let name = format!("golden/databases/{}_{schema}.sql", Store::of_this_program().name());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The events of a stored response from the start, as far as they are there.
async fn events(server: &Server, id: &Value) -> String {
    let id = id.as_str().expect("a response has an id");
    let path = format!("/v1/responses/{id}?stream=true");
    let request = server.request(reqwest::Method::GET, &path).bearer_auth(server.token());
    request.send().await.expect("the server answers").text().await.expect("the stream is text")
}

async fn record() {
    let mut server = builder(400).start().await;
    server.enqueue("ada", "suspend").await;
    server.agent_is("ada", "suspended").await;
    let parked = server.enqueue("bob", "park").await;
    server.agent_is("bob", "suspended").await;
    server.post("/v1/tools/pay/claim", json!({ "worker": "w1", "lease_s": 1 })).await.ok();
    until("the write is parked", || async { (server.calls(&parked).await[0]["status"] == "parked").then_some(()) }).await;
    server.post("/v1/responses", json!({ "model": "m", "input": "stream", "background": true })).await.ok();
    until("a part of the reply is stored", || async { (server.number("SELECT count(*) FROM deltas") > 1).then_some(()) }).await;
    server.kill();
    fs::write(file(SCHEMA), server.place().dump()).expect("the database can be written down");
}

async fn continues(schema: u32) {
    let prepared = builder(0);
    prepared.place().load(&fs::read_to_string(file(schema)).expect("the file of the database"));
    let server = prepared.start().await;
    assert!(server.number("SELECT max(version) FROM schema_version") >= i64::from(schema));
    let runs = server.get("/v1/windlass/runs").await.ok();
    let runs = runs["runs"].as_array().expect("a list of runs").clone();
    let run_of = |agent: &str| {
        let row = runs.iter().find(|row| row["agent_id"] == agent).unwrap_or_else(|| panic!("a run of {agent}"));
        row["run_id"].as_str().expect("a run has an id").to_owned()
    };
    // A suspended run: its call is claimed and reported.
    let call = server.claim("echo").await;
    assert_eq!(call["arguments"], json!({ "text": "alpha" }));
    server.report(&call, json!("beta")).await.ok();
    let ended = server.ended(&run_of("ada")).await;
    assert_eq!(ended["task_status"], "success", "{ended}");
    // A parked write: a person records its result.
    let parked = run_of("bob");
    let call = server.calls(&parked).await[0].clone();
    assert_eq!((&call["status"], &call["tool"]), (&json!("parked"), &json!("pay")), "{call}");
    let decision = json!({
        "run_id": parked, "tool_call_id": call["tool_call_id"], "action": "record", "status": "success", "result": "paid",
    });
    server.post("/v1/windlass/reconcile", decision).await.ok();
    assert_eq!(server.ended(&parked).await["task_status"], "success");
    // A reply in the middle of its stream: it continues where it was cut.
    let row = runs.iter().find(|row| row["agent_id"] != "ada" && row["agent_id"] != "bob").expect("the run of the response");
    let id = row["run_id"].as_str().expect("a run has an id").replace("run_", "resp_");
    let made = until("the response is over", || async {
        let object = server.get(&format!("/v1/responses/{id}")).await.ok();
        (object["status"] == "completed").then_some(object)
    })
    .await;
    assert_eq!(made["output"][0]["content"][0]["text"], TEXT);
    let stream = events(&server, &json!(id)).await;
    let deltas = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let deltas: Vec<String> = deltas
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(deltas.len() > 2, "the parts that the earlier server announced are announced as they were: {stream}");
    assert_eq!(deltas.concat(), TEXT);
}

#[tokio::test]
async fn runs_of_an_earlier_version_continue() {
    if std::env::var_os("WINDLASS_UPDATE_GOLDEN").is_some() {
        record().await;
    }
    continues(SCHEMA).await;
}
