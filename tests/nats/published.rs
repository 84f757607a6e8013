//! The subjects, bodies, headers and ids of commands and events.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use windlass_tests::{FakeModel, Listener, Message, NatsServer, PATIENCE, Scene, Server, ServerBuilder, SseEvent, until};

use crate::CONFIG;

async fn server(nats: &NatsServer) -> Server {
    ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await
}

/// Plays a run with one call of `echo` to its end.
async fn whole_run(server: &Server) -> String {
    let run = server.enqueue("a", "call echo").await;
    let call = server.claim("echo").await;
    server.report(&call, json!("there")).await.ok();
    server.ended(&run).await;
    run
}

fn bodies(messages: &[Message]) -> Vec<&Value> {
    messages.iter().map(|message| &message.body).collect()
}

#[tokio::test]
async fn c_024_every_enqueue_is_published_as_a_wakeup() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let first = server.enqueue("a", "call echo").await;
    let queued = server.enqueue("a", "hello").await;
    let wakeups = listener.wait_for("windlass.default.cmd.agent.a.wakeup", 2).await;
    let ids: Vec<&str> = wakeups.iter().map(|wakeup| wakeup.id.as_str()).collect();
    assert_eq!(ids, [format!("{first}.0.0"), format!("{queued}.0.0")]);
}

#[tokio::test]
async fn c_080_a_wakeup_names_its_agent_and_nothing_that_matters() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    server.enqueue("a", "hello").await;
    let wakeups = listener.wait_for("windlass.default.cmd.agent.a.wakeup", 1).await;
    assert_eq!(bodies(&wakeups), [&json!({ "agent_id": "a" })]);
}

#[tokio::test]
async fn c_041_a_call_is_published_to_its_tool_with_pointers_and_no_arguments() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let run = server.enqueue("a", "call echo").await;
    let commands = listener.wait_for("windlass.default.cmd.tool.echo", 1).await;
    let call = server.claim("echo").await;
    let body = json!({
        "tool_name": "echo", "tool_call_id": call["tool_call_id"], "agent_id": "a", "agent_turn_id": run,
        "turn_epoch": call["turn_epoch"], "step_id": call["step_id"], "after_execution": "suspend",
    });
    assert_eq!(bodies(&commands), [&body]);
}

#[tokio::test]
async fn c_055_task_step_and_state_events_are_published_as_the_stream_has_them() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let run = whole_run(&server).await;
    listener.wait_for_end(&run).await;
    let streamed: Vec<(String, Value)> = server
        .events_until_end("a", &run)
        .await
        .into_iter()
        .map(|event| (format!("windlass.default.{}", event.event), event.data))
        .collect();
    let published: Vec<(String, Value)> = listener
        .once()
        .into_iter()
        .filter(|message| message.subject.contains(".evt."))
        .map(|message| (message.subject, message.body))
        .collect();
    assert_eq!(published, streamed);
    assert_eq!(listener.all().len(), listener.once().len(), "without a fault everything is published once");
}

#[tokio::test]
async fn c_082_the_end_of_a_turn_is_published_with_its_status_its_box_and_its_deliverable() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let run = whole_run(&server).await;
    listener.wait_for_end(&run).await;
    let tasks = listener.on("windlass.default.evt.agent.a.task");
    let ended = server.run(&run).await;
    let body = json!({
        "agent_turn_id": run, "status": "success", "output_box_id": ended["output_box_id"],
        "deliverable_card_id": ended["deliverable_item_id"],
    });
    assert_eq!(bodies(&tasks), [&body]);
}

#[tokio::test]
async fn c_083_a_step_is_published_with_its_turn_its_step_and_its_phase() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let run = whole_run(&server).await;
    listener.wait_for_end(&run).await;
    let steps = listener.on("windlass.default.evt.agent.a.step");
    let phases: Vec<&Value> = steps.iter().map(|step| &step.body["phase"]).collect();
    assert_eq!(phases, ["started", "executing", "started", "completed"]);
    let step = |iteration: u32| format!("step_{}_{iteration}", run.trim_start_matches("run_"));
    assert_eq!(steps[0].body, json!({ "agent_turn_id": run, "step_id": step(1), "phase": "started" }));
    assert_eq!(steps[3].body, json!({ "agent_turn_id": run, "step_id": step(2), "phase": "completed" }));
}

#[tokio::test]
async fn c_022_messages_carry_the_trace_and_the_step_that_asked() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let server = server(&nats).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = server.request(reqwest::Method::POST, "/v1/agents/a/enqueue");
    let request = request
        .header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"))
        .json(&json!({ "input": "hello", "parent_step_id": "step_7" }));
    let run = server.send(request).await.ok()["run_id"].as_str().expect("a run").to_owned();
    listener.wait_for_end(&run).await;
    for message in listener.all() {
        assert!(message.traceparent.starts_with(&format!("00-{trace}-")) && message.traceparent.len() == 55, "{message:?}");
        assert_eq!(message.parent_step, "step_7");
    }
}

#[tokio::test]
async fn names_with_dots_are_one_word_of_a_subject() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let config = format!(
        "{CONFIG}{}auth: {{ tokens: [ {{ token: test-token-of-22-characters, tenant: acme.eu, scopes: ['*'] }} ] }}\n",
        nats.config()
    );
    let server = ServerBuilder::new(&config).start().await;
    let run = server.enqueue("a.b", "call dotted.tool").await;
    let call = server.claim("dotted.tool").await;
    server.report(&call, json!(1)).await.ok();
    listener.wait_for_end(&run).await;
    let subjects: BTreeSet<String> = listener.all().into_iter().map(|message| message.subject).collect();
    let wanted =
        ["cmd.agent.a%2Eb.wakeup", "cmd.tool.dotted%2Etool", "evt.agent.a%2Eb.state", "evt.agent.a%2Eb.step", "evt.agent.a%2Eb.task"];
    assert_eq!(subjects, wanted.map(|subject| format!("windlass.acme%2Eeu.{subject}")).into());
}

/// A tool name that only the model uses makes no command, however long the name is.
#[tokio::test]
async fn a_tool_that_only_the_model_knows_is_no_command_and_stops_nothing() {
    let nats = NatsServer::start().await;
    let listener = nats.listen().await;
    let name: &'static str = "x".repeat(2 << 20).leak();
    let model = FakeModel::start(vec![
        Scene::Call(vec![("> nowhere *", json!({})), ("echo", json!({}))]),
        Scene::Call(vec![(name, json!({}))]),
        Scene::Fail(400, Vec::new()),
    ])
    .await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}{}", nats.config(), model.config())).start().await;
    let run = server.enqueue("a", "go").await;
    let call = server.claim("echo").await;
    server.report(&call, json!(1)).await.ok();
    server.ended(&run).await;
    listener.wait_for_end(&run).await;
    let commands: Vec<Message> = listener.once().into_iter().filter(|message| message.subject.contains(".cmd.tool.")).collect();
    assert_eq!(commands.iter().map(|command| command.subject.as_str()).collect::<Vec<_>>(), ["windlass.default.cmd.tool.echo"]);
    assert!(listener.all().iter().all(|message| message.body.to_string().len() < 1000));
}

/// A server that is started again whenever it dies.
struct Undying {
    server: Option<Server>,
    deaths: u32,
}

impl Undying {
    /// Returns the server, and starts it again if it has died.
    async fn alive(&mut self) -> &Server {
        let mut server = self.server.take().expect("there is a server");
        if !server.is_running() {
            server.gone().await;
            server = server.restart(&[]).await;
            self.deaths += 1;
        }
        self.server.insert(server)
    }

    /// Sends a POST request with a key until there is an answer.
    async fn post(&mut self, path: &str, body: &Value) -> Value {
        loop {
            let server = self.alive().await;
            let request = server.request(reqwest::Method::POST, path).header("idempotency-key", "the-key").json(body);
            if let Ok(answer) = server.try_send(request).await {
                return answer.ok();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits, and restarts the server meanwhile if it dies.
    async fn until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < PATIENCE, "{what}: it did not happen");
            self.alive().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn f_008_f_009_a_kill_in_the_middle_loses_no_message_and_changes_no_id() {
    let points =
        ["effect.publish.before:1", "effect.publish.after:1", "effect.publish.before:2", "effect.publish.after:2", "commit.end.after"];
    for point in points {
        let nats = NatsServer::start().await;
        let listener = nats.listen().await;
        let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).env("WINDLASS_CRASH_AT", point).start().await;
        let mut server = Undying { server: Some(server), deaths: 0 };
        let answer = server.post("/v1/agents/a/enqueue", &json!({ "input": "call echo" })).await;
        let run = answer["run_id"].as_str().expect("a run").to_owned();
        server.until("the call is published", || !listener.on("windlass.default.cmd.tool.echo").is_empty()).await;
        let claimed = server.post("/v1/tools/echo/claim", &json!({ "worker": "w", "max": 1, "lease_s": 60 })).await;
        let call = &claimed["calls"][0]["tool_call_id"];
        let report = json!({ "agent_turn_id": run, "tool_call_id": call, "status": "success", "result": 1 });
        server.post("/v1/agents/a/report", &report).await;
        let is_last = |message: &Message| message.body["agent_turn_id"] == run.as_str() && message.body["status"] == "idle";
        server.until("the end is published", || listener.all().iter().any(is_last)).await;
        // After a page was sent, the death at the crash point may still be on its way.
        until(&format!("{point}: the ordered death"), || {
            let is_dead = server.deaths > 0 || !server.server.as_mut().is_some_and(Server::is_running);
            std::future::ready(is_dead.then_some(()))
        })
        .await;
        let streamed = server.alive().await.events_until_end("a", &run).await;
        until("everything is published", || async { (listener.once().len() >= streamed.len() + 2).then_some(()) }).await;
        assert_eq!(server.deaths, 1, "{point}");
        check(&listener, &run, &streamed);
    }
}

/// The published messages match the journal: nothing is missing, nothing has a second id, and the first deliveries are in order.
fn check(listener: &Listener, run: &str, streamed: &[SseEvent]) {
    let once = listener.once();
    let (events, commands): (Vec<&Message>, Vec<&Message>) = once.iter().partition(|message| message.subject.contains(".evt."));
    let place = |id: &str| id.split_once('.').expect("an id has its run in front").1.to_owned();
    let published: Vec<_> = events.iter().map(|event| (place(&event.id), event.subject.clone(), event.body.clone())).collect();
    let stored: Vec<_> =
        streamed.iter().map(|event| (place(&event.id), format!("windlass.default.{}", event.event), event.data.clone())).collect();
    assert_eq!(published, stored);
    let commands: Vec<&str> = commands.iter().map(|command| command.subject.as_str()).collect();
    assert_eq!(commands, ["windlass.default.cmd.agent.a.wakeup", "windlass.default.cmd.tool.echo"]);
    assert!(once.iter().all(|message| message.id.starts_with(run)));
}
