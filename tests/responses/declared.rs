//! MCP servers that a request declares: the operator has not approved them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_tests::{McpServer, Mode, QUERY, ResponseRecord, Scene, Server, ServerBuilder, in_every_mode};

use crate::support::{ask_with, declared, mcp, scripted_with, server_with_model_and_config, with};

fn without(mut tool: Value, member: &str) -> Value {
    tool.as_object_mut().expect("an object").remove(member);
    tool
}

/// The effect classes of the calls of a response.
async fn effects(server: &Server, made: &ResponseRecord) -> Vec<Value> {
    let history = server.history(made.object["windlass"]["run_id"].as_str().expect("a run")).await;
    let replied = history.iter().filter(|event| event["kind"] == "replied");
    replied.flat_map(|event| event["calls"].as_array().cloned().unwrap_or_default()).map(|call| call["effect"].clone()).collect()
}

/// The content of all files of a server, without the bytes that are no text.
fn files(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let read = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned(),
    };
    entries.map(read).collect()
}

#[tokio::test]
async fn tm_17_no_secret_of_a_declared_server_is_shown_or_stored() {
    let script = "laps: [ { calls: [{ tool: echo, arguments: { text: hi } }] }, { text: done } ]";
    let (server, _tools) = scripted_with(script, "").await;
    let other = McpServer::start().await;
    let secret = json!({
        "server_url": format!("{}?key=s3cret-query", other.url), "authorization": "s3cret-token", "headers": { "x-key": "s3cret-header" },
    });
    let nested = json!({ "type": "namespace", "name": "group", "tools": [with(declared("inner", &other), secret.clone())] });
    let added =
        json!({ "type": "additional_tools", "role": "developer", "tools": [nested, with(declared("added", &other), secret.clone())] });
    let input = json!([{ "role": "user", "content": "go" }, added]);
    let body = with(ask_with("", &[with(declared("other", &other), secret), nested]), json!({ "input": input }));
    for mode in [Mode::Plain, Mode::Streamed] {
        let made = server.respond(mode, body.clone()).await;
        assert_eq!(made.text(), "done");
        assert_eq!(made.object["tools"][0]["server_url"], format!("{}?redacted", other.url));
        let id = made.id();
        let (stored, items) = (server.response(id).await, server.get(&format!("/v1/responses/{id}/input_items")).await.body);
        let journal = server.history(made.object["windlass"]["run_id"].as_str().expect("a run")).await;
        for shown in [made.object.to_string(), stored.to_string(), items.to_string(), json!(journal).to_string()] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        assert!(items.to_string().contains("additional_tools"), "{items}");
    }
    assert_eq!((other.seen(QUERY), other.seen("x-key")), (vec!["key=s3cret-query".to_owned()], vec!["s3cret-header".to_owned()]));
    assert!(!files(server.folder()).contains("s3cret"), "nor is it in the files");
    // The same request is recognised, although it is stored without its secrets.
    let key = [("idempotency-key", "once")];
    let first = server.ask_with(Mode::Plain, body.clone(), &key).made(&server).await;
    assert_eq!(server.ask_with(Mode::Plain, body, &key).made(&server).await.id(), first.id());
}

#[tokio::test]
async fn tm_07_hints_of_a_declared_server_lift_nothing() {
    let scenes = || vec![Scene::Call(vec![("echo", json!({ "text": "hi" }))]), Scene::Say("done")];
    let other = McpServer::start().await;
    let (server, _model, _tools) = server_with_model_and_config(scenes(), "").await;
    let made = server.respond(Mode::Plain, ask_with("go", &[declared("other", &other)])).await;
    assert_eq!((made.text().as_str(), effects(&server, &made).await), ("done", vec![json!("write")]));
    // The operator may lift the restriction.
    let (server, _model, _tools) = server_with_model_and_config(scenes(), "\nmcp: { default_approval: never }").await;
    let made = server.respond(Mode::Plain, ask_with("go", &[without(declared("other", &other), "require_approval")])).await;
    assert_eq!((made.text().as_str(), effects(&server, &made).await), ("done", vec![json!("read")]));
    // The operator approves the servers of the configuration.
    let (server, _model, _tools) = server_with_model_and_config(scenes(), "").await;
    let made = server.respond(Mode::Plain, ask_with("go", &[without(mcp(), "require_approval")])).await;
    assert_eq!((made.text().as_str(), effects(&server, &made).await), ("done", vec![json!("read")]));
}

#[tokio::test]
async fn tm_10_a_tenant_without_a_place_for_its_server_gets_a_429() {
    const PLACES: usize = 64;
    let script = "laps: [ { calls: [{ tool: sleep_ms, arguments: { ms: 60000 } }] }, { text: done } ]";
    let (server, tools) = scripted_with(script, "").await;
    let other = McpServer::start().await;
    let one_more = |key: usize| with(declared("other", &other), json!({ "headers": { "x-key": key.to_string() } }));
    let busy: Vec<_> = (0..PLACES).map(|key| server.ask(Mode::Background, ask_with("go", &[one_more(key)]))).collect();
    other.runs("sleep_ms", PLACES).await;
    in_every_mode(async |mode| {
        let answer = server.refusal(mode, ask_with("go", &[one_more(PLACES)])).await;
        assert_eq!((answer.status, answer.code()), (429, "tool_servers_busy"), "{}", answer.body);
        assert_eq!(answer.body["error"]["type"], "too_many_requests", "{}", answer.body);
    })
    .await;
    // A configured server, and a declared server with an open session, can still be used.
    for tool in [mcp(), one_more(0)] {
        let id = server.post("/v1/responses", with(ask_with("go", &[tool]), json!({ "background": true }))).await.ok()["id"].clone();
        server.post(&format!("/v1/responses/{}/cancel", id.as_str().expect("an id")), json!({})).await.ok();
    }
    assert!(tools.sessions() == 1 && other.sessions() == PLACES);
    drop(busy);
}

#[tokio::test]
async fn tm_23_a_request_does_not_learn_which_names_exist_here() {
    let server = ServerBuilder::new("models: [ { name: m, provider: scripted } ]").start().await;
    let refused = async |host: &str| {
        let url = format!("https://{host}/mcp");
        let tool = json!({ "type": "mcp", "server_label": "other", "server_url": url, "require_approval": "never" });
        let answer = server.refusal(Mode::Plain, ask_with("go", &[tool])).await;
        (answer.status, answer.body.to_string().replace(host, "HOST"))
    };
    let exists = refused("localhost").await;
    assert_eq!(exists.0, 400, "{}", exists.1);
    assert_eq!(refused("nowhere.invalid").await, exists);
}
