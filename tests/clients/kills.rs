//! Codex at work while its server is killed again and again.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use windlass_tests::{Server, ServerBuilder};

use crate::{
    codex::{AFTER, BEFORE, TASK, chained, content, finished, workplace},
    program::{Program, codex_on_a_socket, codex_with},
};

/// The time from a server's start to its kill.
const LIFE: Duration = Duration::from_secs(5);

/// The number of steps between the edit and the end.
const STEPS: usize = 8;

/// Iterations: reading, editing, the steps, and the final answer.
const ITERATIONS: usize = STEPS + 3;

/// The scripted delay of an iteration that streams nothing. Every iteration takes two seconds, silent or streaming, so that each fits
/// between two kills and all of them together need several server processes.
const SILENT: &str = "delay_ms: 2000";
const STREAMED: &str = "chunk: 4, chunk_delay_ms: 200";

/// The text that the model streams before a step that is not silent: eleven deltas.
fn text_of(step: usize) -> String {
    format!("Now comes step {step}, word for word, slowly.")
}

fn has_text(step: usize) -> bool {
    step.is_multiple_of(2)
}

const LAST_TEXT: &str = "The old line is replaced, and all is done.";

/// The model's script. Codex sends the whole conversation with every request, so the last step has to match first.
fn script() -> String {
    let call = |command: &str| format!("calls: [{{ tool: exec_command, arguments: {{ cmd: {} }} }}]", json!(command));
    let patch = "*** Begin Patch\n*** Update File: note.txt\n@@\n-the old line\n+the new line\n*** End Patch\n";
    let rule = |result: &str, reply: String| format!("  - {{ when: {{ result: {result} }}, reply: {{ {reply} }} }}\n");
    let mut rules = rule(&done(STEPS), format!("text: '{LAST_TEXT}', {STREAMED}"));
    for step in (1..=STEPS).rev() {
        let before = if step == 1 { "Success. Updated the following files".to_owned() } else { done(step - 1) };
        // The file that the commands append to shows how often each of them was executed.
        let command = call(&format!("echo {} | tee -a steps.txt", done(step)));
        let reply = if has_text(step) { format!("text: '{}', {STREAMED}", text_of(step)) } else { SILENT.to_owned() };
        rules += &rule(&before, format!("{reply}, {command}"));
    }
    rules += &rule("the old line", format!("{SILENT}, {}", call(&format!("apply_patch <<'END'\n{patch}END\n"))));
    let first = call("cat note.txt | tee -a read.txt");
    format!("rules:\n{rules}  - {{ when: {{ input: Replace the old line }}, reply: {{ {SILENT}, {first} }} }}\n")
}

fn done(step: usize) -> String {
    format!("step {step} is done")
}

/// Reads every event of Codex until it ends. Meanwhile it kills the server every `LIFE` and starts it again at the same address and with
/// the same database. Returns the events, the last server, and the number of kills.
async fn under_kills(mut program: Program, mut server: Server) -> (Vec<Value>, Server, usize) {
    let (mut events, mut kills) = (Vec::new(), 0);
    let mut end = tokio::time::Instant::now() + LIFE;
    loop {
        tokio::select! {
            line = program.line() => match line {
                Some(event) => events.push(event),
                None => break,
            },
            () = tokio::time::sleep_until(end) => {
                server = server.restart(&[]).await;
                kills += 1;
                assert!(kills < 5 * ITERATIONS, "Codex does not get on: {events:#?}\nthe server's log:\n{}", server.log());
                end = tokio::time::Instant::now() + LIFE;
            }
        }
    }
    let (status, complaints) = program.ends().await;
    assert!(status.success(), "Codex failed ({status}): {events:#?}\n{complaints}\nthe server's log:\n{}", server.log());
    (events, server, kills)
}

/// Asserts that Codex read the file, changed it, took every step and printed every text, each once and in order.
fn check_done_once(folder: &TempDir, events: &[Value]) {
    let printed = finished(events).into_iter().map(|(kind, item)| match kind {
        "agent_message" => item["text"].as_str().unwrap_or_default().to_owned(),
        kind => kind.to_owned(),
    });
    let mut expected = vec!["command_execution".to_owned(), "file_change".to_owned()];
    for step in 1..=STEPS {
        expected.extend(has_text(step).then(|| text_of(step)));
        expected.push("command_execution".to_owned());
    }
    expected.push(LAST_TEXT.to_owned());
    assert_eq!(printed.collect::<Vec<_>>(), expected, "{events:#?}");
    assert_eq!(content(folder, "note.txt"), AFTER);
    assert_eq!(content(folder, "read.txt"), BEFORE, "the file was read once");
    let steps: String = (1..=STEPS).map(|step| done(step) + "\n").collect();
    assert_eq!(content(folder, "steps.txt"), steps, "every step was taken once");
    assert_eq!(events.last().map(|event| &event["type"]), Some(&json!("turn.completed")));
}

/// Starts Codex and kills its servers until it has done its task. Returns the last server.
async fn finish_under_kills(transport: &str, start: fn(&str, &str, &Path, &Server) -> Program) -> Server {
    let config = "models: [ { name: offline, provider: scripted, script: script.yaml } ]\n";
    let server = ServerBuilder::new(config).file("script.yaml", &script()).start().await;
    let folder = workplace();
    let began = Instant::now();
    let program = start("offline", TASK, folder.path(), &server);
    let (events, server, kills) = under_kills(program, server).await;
    check_done_once(&folder, &events);
    assert_eq!(server.number("SELECT count(*) FROM runs"), ITERATIONS as i64, "a request that was cut joins its run");
    // The iterations alone take longer than this many kills.
    assert!(kills >= 4, "it was killed {kills} times");
    // Written past the test harness, which shows the output of a test only if it fails.
    let line =
        format!("Codex under kills ({transport}): {kills} kills in {} s, {ITERATIONS} iterations, 1 edit", began.elapsed().as_secs());
    let _ = writeln!(std::io::stdout(), "{line}");
    server
}

#[tokio::test]
async fn a_task_is_finished_while_the_server_is_killed_every_five_seconds() {
    let server = finish_under_kills("http", codex_with).await;
    assert_eq!(chained(&server), 0, "it spoke over HTTP");
}

#[tokio::test]
async fn a_task_over_sockets_is_finished_while_the_server_is_killed_every_five_seconds() {
    let server = finish_under_kills("socket", codex_on_a_socket).await;
    assert!(chained(&server) > 0, "it spoke over sockets");
}
