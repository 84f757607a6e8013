//! Codex does a task with its own tools.

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_tests::{Server, ServerBuilder};

use crate::program::{Program, builder, builder_with, codex, codex_compacting, codex_on_a_socket, codex_with, shown};

pub const TASK: &str = "Replace the old line in note.txt.";
pub const BEFORE: &str = "first\nthe old line\nlast\n";
pub const AFTER: &str = "first\nthe new line\nlast\n";

/// A folder with a file to edit.
pub fn workplace() -> TempDir {
    let folder = TempDir::new().expect("a folder to work in");
    std::fs::write(folder.path().join("note.txt"), BEFORE).expect("a file to edit");
    folder
}

pub fn content(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).unwrap_or_default()
}

/// Collects every event that Codex prints until it ends.
async fn events_of(mut program: Program, server: &Server) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = program.line().await {
        events.push(event);
    }
    let (status, complaints) = program.ends().await;
    assert!(status.success(), "Codex failed ({status}): {events:#?}\n{complaints}\nthe server's log:\n{}", server.log());
    events
}

/// The items that Codex finished, each with its type. Its warnings are left out: it warns about a model that it does not know.
pub fn finished(events: &[Value]) -> Vec<(&str, &Value)> {
    let items = events.iter().filter(|event| event["type"] == "item.completed").map(|event| &event["item"]);
    items.filter_map(|item| Some((item["type"].as_str()?, item))).filter(|(kind, _)| *kind != "error").collect()
}

/// Asserts that Codex read the file, changed it and reported that, each exactly once.
fn check_done_once(folder: &TempDir, events: &[Value]) {
    let done = finished(events);
    let kinds: Vec<&str> = done.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["command_execution", "file_change", "agent_message"], "{events:#?}");
    assert_eq!(done[0].1["exit_code"], 0);
    assert_eq!(done[1].1["status"], "completed");
    assert_eq!(done[2].1["text"], "The old line is replaced.");
    assert_eq!(events.last().map(|event| &event["type"]), Some(&json!("turn.completed")));
    assert_eq!(content(folder, "note.txt"), AFTER);
    assert_eq!(content(folder, "read.txt"), BEFORE, "the command was run once");
}

#[tokio::test]
async fn a_task_that_edits_a_file_is_finished() {
    let server = builder().start().await;
    let folder = workplace();
    let events = events_of(codex(TASK, folder.path(), &server), &server).await;
    check_done_once(&folder, &events);
    let usage = &events.last().expect("it ended")["usage"];
    assert!(usage["input_tokens"].as_u64() > Some(0) && usage["output_tokens"].as_u64() > Some(0), "{usage}");
    assert_eq!(server.number("SELECT count(*) FROM runs"), 3, "one run for each answer");
}

/// Calls of a model whose name Codex knows: its only tool takes a program, which calls the other tools.
const DIALECT: &str = r#"
rules:
  - when: { result: it is edited }
    reply: { text: The old line is replaced., chunk: 4, chunk_delay_ms: 20 }
  - when: { result: the old line }
    reply:
      calls:
        - tool: exec
          arguments:
            input: |
              const patch = ["*** Begin Patch", "*** Update File: note.txt", "@@", "-the old line", "+the new line", "*** End Patch", ""];
              await tools.apply_patch(patch.join("\n"));
              text("it is edited");
  - when: { input: Replace the old line }
    reply: { calls: [{ tool: exec, arguments: { input: 'text(await tools.exec_command({ cmd: "cat note.txt | tee -a read.txt" }))' } }] }
"#;

#[tokio::test]
async fn a_task_is_finished_with_a_model_that_has_another_dialect() {
    for start in [codex_with, codex_on_a_socket] {
        let config = "models: [ { name: gpt-5.6-sol, provider: scripted, script: script.yaml } ]\n";
        let server = ServerBuilder::new(config).file("script.yaml", DIALECT).start().await;
        let folder = workplace();
        let events = events_of(start("gpt-5.6-sol", TASK, folder.path(), &server), &server).await;
        check_done_once(&folder, &events);
        assert_eq!(server.number("SELECT count(*) FROM runs"), 3, "one run for each answer");
    }
}

#[tokio::test]
async fn the_page_on_codex_shows_a_server_that_has_the_model_it_names() {
    let server = ServerBuilder::new(&shown("yaml")).env("OPENAI_API_KEY", "not asked for").start().await;
    let models = server.get("/v1/models").await.ok();
    let named = shown("toml").lines().find_map(|line| Some(line.strip_prefix("model = \"")?.trim_end_matches('"').to_owned()));
    assert_eq!(models["data"][0]["id"].as_str().map(str::to_owned), named, "{models}");
}

#[tokio::test]
async fn a_kill_during_any_of_its_requests_is_not_noticed() {
    for point in [
        "commit.enqueue.before:2",
        "commit.enqueue.after:1",
        "commit.end.before:1",
        "commit.end.after:2",
        "commit.announce.after:4",
        "commit.end.before:3",
    ] {
        let mut server = builder().env("WINDLASS_CRASH_AT", point).start().await;
        let folder = workplace();
        let program = codex(TASK, folder.path(), &server);
        server.gone().await;
        let server = server.restart(&[]).await;
        let events = events_of(program, &server).await;
        check_done_once(&folder, &events);
        assert_eq!(server.number("SELECT count(*) FROM runs"), 3, "{point}: a request that was cut joins its run");
    }
}

/// The number of runs that continue from a response that is not stored. Over HTTP such a request is refused.
pub fn chained(server: &Server) -> i64 {
    let is_chained = r#"CAST(note AS TEXT) LIKE '%"previous_response_id":"resp_%' AND CAST(note AS TEXT) LIKE '%"store":false%'"#;
    server.number(&format!("SELECT count(*) FROM runs WHERE {is_chained}"))
}

#[tokio::test]
async fn a_task_over_a_socket_is_finished() {
    let server = builder().start().await;
    let folder = workplace();
    let events = events_of(codex_on_a_socket("offline", TASK, folder.path(), &server), &server).await;
    check_done_once(&folder, &events);
    assert_eq!(
        (server.number("SELECT count(*) FROM runs"), chained(&server)),
        (3, 3),
        "each answer continues from a response of the socket"
    );
}

#[tokio::test]
async fn a_kill_during_any_of_its_requests_over_a_socket_is_not_noticed() {
    for point in ["commit.enqueue.after:1", "commit.end.before:1", "commit.end.after:2", "commit.announce.after:4", "commit.end.before:3"] {
        let mut server = builder().env("WINDLASS_CRASH_AT", point).start().await;
        let folder = workplace();
        let program = codex_on_a_socket("offline", TASK, folder.path(), &server);
        server.gone().await;
        let server = server.restart(&[]).await;
        let events = events_of(program, &server).await;
        check_done_once(&folder, &events);
        assert_eq!(server.number("SELECT count(*) FROM runs"), 3, "{point}: a request that was cut joins its run");
        assert!(chained(&server) > 0, "{point}: it spoke over a socket");
    }
}

#[tokio::test]
async fn a_kill_after_text_repeats_neither_the_text_nor_the_call_that_follows() {
    for start in [codex_with, codex_on_a_socket] {
        let tool = "tools: { external: [ { name: look_up, description: finds things, effect: read } ] }";
        let server = builder_with(&format!("{tool}\nagents: {{ helper: {{ model: offline, tools: [look_up] }} }}\n")).start().await;
        let folder = workplace();
        let mut program = start("agent/helper", "Which colour is it?", folder.path(), &server);
        let mut events = Vec::new();
        // Codex keeps the text, because its item is finished, and sends it along with its next request.
        while finished(&events).is_empty() {
            events.push(program.line().await.expect("Codex gets the text"));
        }
        let server = server.restart(&[]).await;
        let call = server.claim("look_up").await;
        server.report(&call, json!("deep blue")).await.ok();
        events.extend(events_of(program, &server).await);
        let texts: Vec<&Value> = finished(&events).into_iter().map(|(_, item)| &item["text"]).collect();
        assert_eq!(texts, ["I look it up.", "It is deep blue."], "{events:#?}");
        assert_eq!(server.number("SELECT count(*) FROM runs"), 1);
        assert_eq!(server.number("SELECT count(*) FROM calls"), 1);
    }
}

/// The number of runs of a server that are compactions.
fn compactions(server: &Server) -> i64 {
    let of_one = "SELECT hash FROM manifests WHERE CAST(body AS TEXT) LIKE '%\"compaction\":\"only\"%'";
    server.number(&format!("SELECT count(*) FROM runs WHERE manifest IN ({of_one})"))
}

/// Asserts that Codex ran its command once and continued from the summary.
fn check_continued(folder: &TempDir, events: &[Value]) {
    let kinds: Vec<&str> = finished(events).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["command_execution", "agent_message"], "{events:#?}");
    assert_eq!(finished(events)[1].1["text"], "All of it is told.", "{events:#?}");
    assert_eq!(content(folder, "ran.txt"), "once\n");
}

#[tokio::test]
async fn a_conversation_that_has_grown_too_long_is_compacted_on_the_way() {
    for is_on_a_socket in [false, true] {
        let server = builder().start().await;
        let folder = workplace();
        let program = codex_compacting(1000, is_on_a_socket, "Read much and tell it.", folder.path(), &server);
        let events = events_of(program, &server).await;
        check_continued(&folder, &events);
        assert_eq!((server.number("SELECT count(*) FROM runs"), compactions(&server)), (3, 1), "over a socket: {is_on_a_socket}");
    }
}

#[tokio::test]
async fn a_kill_during_a_compaction_is_not_noticed() {
    for (point, is_on_a_socket) in [("commit.enqueue.after:2", false), ("commit.end.before:2", false), ("commit.end.after:2", true)] {
        let mut server = builder().env("WINDLASS_CRASH_AT", point).start().await;
        let folder = workplace();
        let program = codex_compacting(1000, is_on_a_socket, "Read much and tell it.", folder.path(), &server);
        server.gone().await;
        let server = server.restart(&[]).await;
        let events = events_of(program, &server).await;
        check_continued(&folder, &events);
        assert_eq!(
            (server.number("SELECT count(*) FROM runs"), compactions(&server)),
            (3, 1),
            "{point}: a request that was cut joins its run"
        );
    }
}
