//! NATS is late, goes down, never comes up, or refuses the server. Work continues all the same, and the outbox loses nothing.

use std::collections::BTreeMap;

use serde_json::json;
use windlass_tests::{Listener, NatsServer, Server, ServerBuilder, until};

use crate::CONFIG;

async fn whole_run(server: &Server, agent: &str) -> String {
    let run = server.enqueue_body(agent, json!({ "input": "call echo", "tools": ["echo"] })).await;
    let call = server.claim("echo").await;
    server.report(&call, json!("there")).await.ok();
    assert_eq!(server.ended(&run).await["task_status"], "success");
    run
}

/// Everything published of these runs is complete and came in the order of the journal.
async fn complete(listener: &Listener, server: &Server, runs: &[(String, String)]) {
    for (_, run) in runs {
        listener.wait_for_end(run).await;
    }
    let mut published: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for message in listener.once() {
        let mut parts = message.id.split('.');
        let run = parts.next().expect("a run").to_owned();
        let mut number = || parts.next().expect("a number").parse().expect("a number");
        published.entry(run).or_default().push((number(), number()));
    }
    for (agent, run) in runs {
        let places = &published[run];
        assert!(places.is_sorted(), "{run}: {places:?}");
        let streamed = server.events_until_end(agent, run).await;
        let of_run = streamed.iter().filter(|event| event.data["agent_turn_id"] == run.as_str()).count();
        assert_eq!(places.len(), of_run + 2, "{run}: its events, its wakeup and its one command");
    }
}

fn waiting(server: &Server) -> i64 {
    server.number("SELECT count(*) FROM outbox")
}

fn lines(server: &Server, text: &str) -> usize {
    server.log().lines().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn nats_may_come_after_the_server() {
    let mut nats = NatsServer::down(&[]);
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    whole_run(&server, "a").await;
    assert!(waiting(&server) > 0);
    nats.up().await;
    until("everything is published", || async { (waiting(&server) == 0).then_some(()) }).await;
    let listener = nats.listen().await;
    let run = whole_run(&server, "b").await;
    complete(&listener, &server, &[("b".to_owned(), run)]).await;
    assert_eq!(lines(&server, "NATS cannot be reached"), 1, "{}", server.log());
    assert_eq!(lines(&server, "NATS is back"), 1, "{}", server.log());
}

#[tokio::test]
async fn c_005_f_008_nats_may_go_and_come_back_and_nothing_is_lost() {
    let mut nats = NatsServer::start().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let before = whole_run(&server, "a").await;
    until("everything is published", || async { (waiting(&server) == 0).then_some(()) }).await;
    nats.kill();
    let mut runs = Vec::new();
    for n in 0..5 {
        let agent = format!("agent-{n}");
        let run = whole_run(&server, &agent).await;
        runs.push((agent, run));
    }
    let kept = waiting(&server);
    assert!(kept >= 15, "the outbox has {kept} rows");
    assert_eq!(server.run(&before).await["status"], "ended");
    // Core NATS keeps nothing for later subscribers, so the listener has to be connected first.
    server.signal(rustix::process::Signal::STOP);
    nats.up().await;
    let listener = nats.listen().await;
    server.signal(rustix::process::Signal::CONT);
    complete(&listener, &server, &runs).await;
    until("the outbox is empty", || async { (waiting(&server) == 0).then_some(()) }).await;
    assert_eq!(lines(&server, "NATS is lost"), 1, "{}", server.log());
    assert_eq!(lines(&server, "NATS is back"), 1, "{}", server.log());
    assert_eq!(lines(&server, "publishing stopped"), 1, "{}", server.log());
}

#[tokio::test]
async fn nats_killed_again_and_again_loses_nothing() {
    let mut nats = NatsServer::start().await;
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    let mut listeners = Vec::new();
    let mut runs = Vec::new();
    for n in 0..4 {
        server.signal(rustix::process::Signal::STOP);
        nats.kill();
        nats.up().await;
        listeners.push(nats.listen().await);
        server.signal(rustix::process::Signal::CONT);
        for m in 0..3 {
            let agent = format!("agent-{n}-{m}");
            let run = whole_run(&server, &agent).await;
            runs.push((agent, run));
        }
    }
    until("the outbox is empty", || async { (waiting(&server) == 0).then_some(()) }).await;
    // A kill may fall between a message and its confirmation. Then the listener has the message twice, with the same id.
    let mut published: BTreeMap<String, (String, serde_json::Value)> = BTreeMap::new();
    until("every end was published", || {
        published.clear();
        for message in listeners.iter().flat_map(Listener::once) {
            let known = published.entry(message.id.clone()).or_insert_with(|| (message.subject.clone(), message.body.clone()));
            assert_eq!(*known, (message.subject, message.body));
        }
        let tasks = published.values().filter(|(subject, _)| subject.ends_with(".task")).count();
        std::future::ready((tasks == runs.len()).then_some(()))
    })
    .await;
    let mut events = 0;
    for (agent, run) in &runs {
        events += server.events_until_end(agent, run).await.len() + 2;
    }
    assert_eq!(published.len(), events);
}

#[tokio::test]
async fn c_005_without_nats_all_the_time_everything_completes() {
    let nats = NatsServer::down(&[]);
    let server = ServerBuilder::new(&format!("{CONFIG}{}", nats.config())).start().await;
    for n in 0..10 {
        whole_run(&server, &format!("agent-{}", n % 3)).await;
    }
    assert!(waiting(&server) >= 30);
    assert_eq!(lines(&server, "NATS cannot be reached"), 1, "{}", server.log());
    let began = std::time::Instant::now();
    server.signal(rustix::process::Signal::TERM);
    let mut server = server;
    assert!(server.gone().await.success());
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "it stops without waiting for NATS");
}

#[tokio::test]
async fn a_password_is_accepted_and_never_printed() {
    let nats = NatsServer::with(&["--user", "ann", "--pass", "s3cr@t"]).await;
    let url = nats.url().replace("nats://", "nats://ann:s3cr%40t@");
    let server = ServerBuilder::new(CONFIG).env("WINDLASS_DOORBELL__URL", &url).env("WINDLASS_LOG", "debug").start().await;
    whole_run(&server, "a").await;
    until("everything is published", || async { (waiting(&server) == 0).then_some(()) }).await;
    let wrong = nats.url().replace("nats://", "nats://ann:wr0ng@");
    let server = server.restart(&[("WINDLASS_DOORBELL__URL", &wrong), ("WINDLASS_LOG", "trace")]).await;
    whole_run(&server, "a").await;
    assert!(waiting(&server) > 0);
    until("the reason is logged", || async { (lines(&server, "NATS cannot be reached") == 1).then_some(()) }).await;
    assert!(!server.log().contains("wr0ng"), "{}", server.log());
    let (status, log) = ServerBuilder::new(CONFIG).env("WINDLASS_DOORBELL__URL", "nats://ann:s3cret@host:nowhere").refuses();
    assert!(!status.success() && log.contains("doorbell.url") && !log.contains("s3cret"), "{log}");
}

/// The users of a NATS server: the one of the tests may not publish on some subjects; a connection without a name is the other one.
fn users(denied: &str) -> String {
    let ours = format!("{{ user: ours, password: p, permissions: {{ publish: {{ deny: [{denied}] }} }} }}");
    format!("no_auth_user: other\nauthorization {{ users: [ {ours}, {{ user: other, password: p }} ] }}\n")
}

/// NATS reports a refusal later than the message it is about, and does not name the message. The refused row must stay in the outbox.
#[tokio::test]
async fn what_nats_refuses_stays_and_is_sent_once_it_is_allowed() {
    let folder = tempfile::TempDir::new().expect("a folder for a configuration");
    let file = folder.path().join("nats.conf");
    std::fs::write(&file, users("\"windlass.*.evt.>\", \"windlass.bell\"")).expect("a configuration can be written");
    let nats = NatsServer::with(&["-c", file.to_str().expect("a plain name")]).await;
    let listener = nats.listen().await;
    let url = nats.url().replace("nats://", "nats://ours:p@");
    let server = ServerBuilder::new(&format!("{CONFIG}doorbell: {{ url: '{url}' }}\n")).start().await;
    let run = whole_run(&server, "a").await;
    until("a page was refused", || async { (lines(&server, "publishing stopped") == 1).then_some(()) }).await;
    assert!(waiting(&server) > 0);
    // By id and body. If NATS allows a subject in the middle of a page, the first message to arrive is not the first of the page.
    let events = || -> BTreeMap<String, String> {
        let all = listener.once().into_iter().filter(|message| message.subject.contains(".evt."));
        all.map(|message| (message.id, format!("{} {}", message.subject, message.body))).collect()
    };
    assert!(events().is_empty(), "NATS takes none of them");
    // Doorbell messages are still refused. Their loss stops nothing.
    std::fs::write(&file, users("\"windlass.bell\"")).expect("a configuration can be written");
    nats.reload();
    until("everything is published", || async { (waiting(&server) == 0).then_some(()) }).await;
    listener.wait_for_end(&run).await;
    let streamed = server.events_until_end("a", &run).await;
    let mut owed: Vec<String> = streamed.iter().map(|event| format!("windlass.default.{} {}", event.event, event.data)).collect();
    let mut published: Vec<String> = events().into_values().collect();
    owed.sort();
    published.sort();
    assert_eq!(published, owed);
}
