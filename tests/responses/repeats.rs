//! Which repeated create requests join the run of the first one, over HTTP. `tests/clients` tests real clients.

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass_tests::{FakeModel, Scene, Server, ServerBuilder, until};

use crate::support::{ask, with};

const MARKED: (&str, &str) = ("x-stainless-retry-count", "1");
const FIRST: (&str, &str) = ("x-stainless-retry-count", "0");

/// A server whose model hangs once and then answers, and another token of the same tenant.
async fn server(scenes: Vec<Scene>, env: &[(&str, &str)]) -> (Server, FakeModel) {
    let model = FakeModel::start(scenes).await;
    let tokens = "auth: { tokens: [ { token: test-token-of-22-characters, scopes: ['*'] }, { token: another-token-of-22-characters, scopes: ['*'] } ] }\n";
    let mut builder = ServerBuilder::new(&(model.config().replace("name: fake", "name: m") + tokens));
    for (name, value) in env {
        builder = builder.env(name, value);
    }
    (builder.start().await, model)
}

fn hanging() -> Vec<Scene> {
    vec![Scene::Hang, Scene::Say("done")]
}

type Sent = JoinHandle<Option<Value>>;

/// Sends a request; `None` if there is no answer.
fn send(server: &Server, body: &Value, headers: &[(&str, &str)]) -> Sent {
    let mut request = server.request(reqwest::Method::POST, "/v1/responses").json(body);
    if !headers.iter().any(|(name, _)| *name == "authorization") {
        request = request.bearer_auth("test-token-of-22-characters");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    tokio::spawn(async move { request.send().await.ok()?.json().await.ok() })
}

async fn answer(server: &Server, body: &Value, headers: &[(&str, &str)]) -> Value {
    send(server, body, headers).await.expect("no panic").expect("an answer")
}

fn runs(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM runs")
}

/// Kills the server, starts it again, and waits until it has read the runs that the earlier process left open.
async fn lost(mut server: Server) -> Server {
    server.kill();
    let server = server.restart(&[]).await;
    let knows = || async { server.log().contains("requests of lost servers can be joined").then_some(()) };
    until("the server knows of the open requests", knows).await;
    server
}

#[tokio::test]
async fn an_equal_request_joins_the_run_of_a_server_that_was_killed() {
    let (server, model) = server(hanging(), &[]).await;
    let first = send(&server, &json!({ "model": "m", "input": "go", "store": true }), &[FIRST]);
    model.asked_times(1).await;
    let server = lost(server).await;
    assert_eq!(first.await.expect("no panic"), None, "its connection broke");
    // The order of fields does not matter.
    let again = answer(&server, &json!({ "store": true, "input": "go", "model": "m" }), &[]).await;
    assert_eq!((&again["status"], runs(&server)), (&json!("completed"), 1));
    let other = answer(&server, &json!({ "store": true, "input": "go", "model": "m" }), &[]).await;
    assert_ne!(other["id"], again["id"], "it was answered, so the same again is meant");
    assert_eq!(runs(&server), 2);
}

#[tokio::test]
async fn another_body_another_token_or_a_new_key_starts_a_run_of_its_own() {
    let (server, model) = server(hanging(), &[]).await;
    let first = send(&server, &ask("go"), &[]);
    model.asked_times(1).await;
    let server = lost(server).await;
    drop(first);
    let others = [
        answer(&server, &ask("go on"), &[MARKED]).await,
        answer(&server, &ask("go"), &[MARKED, ("authorization", "Bearer another-token-of-22-characters")]).await,
        answer(&server, &ask("go"), &[MARKED, ("idempotency-key", "new")]).await,
        answer(&server, &with(ask("go"), json!({ "metadata": { "a": "b" } })), &[MARKED]).await,
    ];
    assert_eq!(runs(&server), 1 + others.len() as i64);
    answer(&server, &ask("go"), &[]).await;
    assert_eq!(runs(&server), 1 + others.len() as i64, "the equal one joins");
}

#[tokio::test]
async fn a_client_that_hung_up_is_joined_by_a_marked_retry_alone() {
    for is_marked in [false, true] {
        let (server, model) = server(hanging(), &[]).await;
        let first = send(&server, &ask("go"), &[FIRST]);
        model.asked_times(1).await;
        first.abort();
        let sent = send(&server, &ask("go"), if is_marked { &[MARKED] } else { &[] });
        if is_marked {
            // The server dies while the retry waits for the model that hangs.
            let is_read = || async { server.log().contains("a repeated request joins its run").then_some(()) };
            until("the retry joins", is_read).await;
            let server = lost(server).await;
            assert_eq!(answer(&server, &ask("go"), &[]).await["status"], "completed");
            assert_eq!(runs(&server), 1);
        } else {
            assert_eq!(sent.await.expect("no panic").expect("an answer")["status"], "completed");
            assert_eq!(runs(&server), 2);
        }
    }
}

/// The record that a client has its answer is written together with the next commit of any run.
#[tokio::test]
async fn a_request_that_was_answered_is_not_joined_after_a_kill() {
    let (server, _model) = server(vec![Scene::Say("done")], &[]).await;
    let first = answer(&server, &ask("go"), &[]).await;
    assert_eq!(server.number("SELECT count(*) FROM requests"), 1, "nothing was committed since");
    answer(&server, &ask("something else"), &[]).await;
    answer(&server, &ask("something else again"), &[("idempotency-key", "k")]).await;
    let server = server.restart(&[]).await;
    let again = answer(&server, &ask("go"), &[]).await;
    assert_ne!(again["id"], first["id"]);
}

#[tokio::test]
async fn an_end_long_before_the_server_was_lost_is_not_joined() {
    let (mut server, _model) = server(vec![Scene::Say("done")], &[("WINDLASS_CRASH_AT", "commit.end.after:1")]).await;
    let first = send(&server, &ask("go"), &[]);
    server.gone().await;
    assert_eq!(first.await.expect("no panic"), None);
    server.database().execute("UPDATE runs SET ended_at = ended_at - 120000").expect("the database takes it");
    let server = lost(server).await;
    answer(&server, &ask("go"), &[]).await;
    assert_eq!(runs(&server), 2);
}

#[tokio::test]
async fn a_background_request_whose_answer_was_lost_joins_its_run() {
    let (mut server, _model) = server(vec![Scene::Say("done")], &[("WINDLASS_CRASH_AT", "commit.enqueue.after:1")]).await;
    let body = with(ask("go"), json!({ "background": true }));
    let first = send(&server, &body, &[]);
    server.gone().await;
    assert_eq!(first.await.expect("no panic"), None);
    let server = lost(server).await;
    let again = answer(&server, &body, &[]).await;
    assert_eq!(runs(&server), 1);
    let id = again["id"].as_str().expect("an id");
    assert_eq!(server.over(id).await["status"], "completed");
}
