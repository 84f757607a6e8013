//! The stream of a response: one for the whole loop, with one beginning and one end, the same in every mode.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_tests::{Mode, Next, ResponseRecord, Server, StreamEvent, in_every_mode, responses::Grammar, until};

use crate::support::{ask, ask_with, function, mcp, scripted, scripted_with, with};

/// A script for every kind of end, each selected by an input.
const SCRIPTS: &str = r#"
rules:
  - when: { input: three, iteration: 1 }
    reply: { text: "Let me see, it takes a while.", chunk: 6, calls: [{ tool: echo, arguments: { text: alpha } }, { tool: fail, arguments: {} }], usage: { in: 11, out: 3 } }
  - when: { input: three, iteration: 2 }
    reply: { calls: [{ tool: add, arguments: { a: 2, b: 3 } }, { tool: unheard_of, arguments: {} }], usage: { in: 12, out: 4 } }
  - when: { input: three, iteration: 3 }
    reply: { text: "It is alpha, and five.", chunk: 5, usage: { in: 13, out: 5 } }
  - when: { input: client, iteration: 1 }
    reply: { text: "Yours.", calls: [{ tool: mine, arguments: { n: 1 } }, { tool: mine, arguments: { n: 2 } }], usage: { in: 7, out: 7 } }
  - { when: { input: short }, reply: { text: too long an ans, finish: length, usage: { in: 5, out: 5 } } }
  - { when: { input: loop }, reply: { calls: [{ tool: echo, arguments: { text: again } }], usage: { in: 1, out: 1 } } }
  - when: { input: broken, iteration: 1 }
    reply: { text: "First this.", calls: [{ tool: echo, arguments: { text: kept } }], usage: { in: 3, out: 3 } }
  - { when: { input: broken, iteration: 2 }, reply: { fail: { code: 400, message: no more } } }
  - { when: { input: plain }, reply: { text: "Just words, in several pieces.", chunk: 7, usage: { in: 2, out: 9 } } }
"#;

const INPUTS: [&str; 6] = ["three", "client", "short", "loop", "broken", "plain"];

fn request(input: &str) -> Value {
    with(ask_with(input, &[mcp(), function("mine")]), json!({ "max_turns": 4 }))
}

#[tokio::test]
async fn a_026_a_027_a_028_one_beginning_one_end_and_only_items_between() {
    let (server, _tools) = scripted(SCRIPTS).await;
    in_every_mode(async |mode| {
        for input in INPUTS {
            let made = server.respond(mode, request(input)).await;
            let kinds = made.kinds();
            let opening: &[&str] = match made.object["background"] == true {
                true => &["response.created", "response.queued", "response.in_progress"],
                false => &["response.created", "response.in_progress"],
            };
            assert_eq!(kinds[..opening.len()], *opening);
            let lifecycle = |kind: &&&str| {
                let names = ["created", "queued", "in_progress", "completed", "incomplete", "failed", "requires_action", "cancelled"];
                names.iter().any(|name| **kind == format!("response.{name}"))
            };
            assert_eq!(kinds.iter().filter(lifecycle).count(), opening.len() + 1, "{input}: {kinds:?}");
            let last = match made.status() {
                "completed" | "requires_action" => "response.completed",
                "incomplete" => "response.incomplete",
                _ => "response.failed",
            };
            assert_eq!(kinds.last(), Some(&last), "{input}");
            // Calls, results and text: each item is added once and finished once.
            let items = made.object["output"].as_array().expect("an output").len();
            let count = |kind: &str| kinds.iter().filter(|given| **given == kind).count();
            assert_eq!((count("response.output_item.added"), count("response.output_item.done")), (items, items), "{input}");
            let (calls, ended) = (made.items("mcp_call").len(), count("response.mcp_call.completed") + count("response.mcp_call.failed"));
            assert_eq!((count("response.mcp_call.in_progress"), ended), (calls, calls), "{input}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_026_every_event_is_written_whole() {
    let (server, _tools) = scripted(SCRIPTS).await;
    let body = Mode::Streamed.asks(request("three")).to_string();
    let address = server.base().trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        server.token(),
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(&address).await.expect("a connection");
    socket.write_all(format!("{head}{body}").as_bytes()).await.expect("a request");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.expect("an answer");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, mut rest) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.to_lowercase().contains("transfer-encoding: chunked"), "{head}");
    let mut chunks = Vec::new();
    loop {
        let (size, after) = rest.split_once("\r\n").expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        chunks.push(&after[..size]);
        rest = &after[size + 2..];
    }
    assert_eq!(chunks.last(), Some(&"data: [DONE]\n\n"));
    for chunk in &chunks {
        assert!(chunk.ends_with("\n\n") && chunk.matches("\n\n").count() == 1, "one event, one chunk: {chunk:?}");
    }
    assert!(chunks.len() > 20);
}

#[tokio::test]
async fn a_031_a_043_the_same_script_gives_the_same_in_every_mode() {
    let (server, _tools) = scripted(SCRIPTS).await;
    for input in INPUTS {
        let mut made: Vec<ResponseRecord> = Vec::new();
        for mode in [Mode::Plain, Mode::Streamed, Mode::Background, Mode::Followed] {
            made.push(server.respond(mode, request(input)).await);
        }
        for other in &made[1..] {
            assert_eq!(other.essence(), made[0].essence(), "{input}: {:?} and {:?}", other.mode, made[0].mode);
            let echo = |made: &ResponseRecord| {
                let mut object = made.object.clone();
                for key in ["id", "created_at", "completed_at", "output", "background", "windlass"] {
                    object[key] = Value::Null;
                }
                object
            };
            assert_eq!(echo(other), echo(&made[0]), "{input}");
        }
        let usage = &made[0].object["usage"];
        assert_eq!(
            usage["total_tokens"].as_u64(),
            Some(usage["input_tokens"].as_u64().unwrap_or(0) + usage["output_tokens"].as_u64().unwrap_or(0))
        );
    }
}

#[tokio::test]
async fn a_042_text_comes_in_deltas_that_make_up_the_answer() {
    let (server, _tools) = scripted(SCRIPTS).await;
    for mode in Mode::every().iter().filter(|mode| mode.streams()) {
        let made = server.respond(*mode, request("three")).await;
        let deltas: Vec<&str> = made
            .events
            .iter()
            .filter(|event| event.kind() == "response.output_text.delta")
            .filter_map(|e| e.data["delta"].as_str())
            .collect();
        assert_eq!(deltas.concat(), "Let me see, it takes a while.It is alpha, and five.");
        assert_eq!(made.text(), "Let me see, it takes a while.|It is alpha, and five.");
        assert_eq!(made.shape(), ["message", "mcp_call", "mcp_call", "mcp_call", "mcp_call", "message"]);
    }
}

fn data(events: &[StreamEvent]) -> Vec<Value> {
    events.iter().map(|event| event.data.clone()).collect()
}

/// The events after a number, as a reader gets them that reconnects.
async fn resumed(server: &Server, id: &str, after: u64) -> Vec<StreamEvent> {
    let (events, is_whole) = server.follow(id, Some(after)).await.rest().await;
    assert!(is_whole);
    events
}

#[tokio::test]
async fn a_stream_can_be_taken_up_after_every_event() {
    let (server, _tools) = scripted(SCRIPTS).await;
    in_every_mode(async |mode| {
        let made = server.respond(mode, request("three")).await;
        let all = data(&made.events);
        for after in 0..all.len() as u64 {
            let rest = resumed(&server, made.id(), after).await;
            assert_eq!(data(&rest), all[after as usize + 1..], "after {after}");
        }
        let beyond = server.get(&format!("/v1/responses/{}?stream=true&starting_after={}", made.id(), all.len())).await;
        assert_eq!((beyond.status, &beyond.body["error"]["param"]), (400, &json!("starting_after")), "no client can have seen that number");
    })
    .await;
}

#[tokio::test]
async fn a_stream_can_be_resumed_while_it_runs() {
    let script = "laps: [ { text: one two three four five six, chunk: 4, chunk_delay_ms: 30 } ]";
    let (server, _tools) = scripted(script).await;
    let asked = server.ask(Mode::Streamed, ask("count"));
    let delta = asked.event("response.output_text.delta").await;
    let id = asked.id().await;
    asked.hang_up();
    let number = delta.data["sequence_number"].as_u64().expect("a number");
    let rest = resumed(&server, &id, number).await;
    let whole = server.replay(&id).await;
    assert_eq!(data(&rest), data(&whole)[number as usize + 1..]);
    assert_eq!(whole[number as usize].data, delta.data, "earlier events stay as they were");
    let mut grammar = Grammar::default();
    whole.iter().for_each(|event| grammar.take(&event.data));
    assert_eq!(grammar.ended().expect("an end")["status"], "completed");
}

#[tokio::test]
async fn wrong_parameters_of_a_stream_are_refused() {
    let (server, _tools) = scripted(SCRIPTS).await;
    let made = server.respond(Mode::Plain, request("plain")).await;
    for (query, param) in [
        ("?stream=true&starting_after=x", "starting_after"),
        ("?stream=true&starting_after=-1", "starting_after"),
        ("?starting_after=3", "starting_after"),
        ("?stream=maybe", "stream"),
    ] {
        let answer = server.get(&format!("/v1/responses/{}{query}", made.id())).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!(param)), "{query}: {}", answer.body);
    }
}

#[tokio::test]
async fn the_same_key_is_the_same_response() {
    let (server, tools) = scripted(SCRIPTS).await;
    // A socket has one handshake for all its requests, so a request has no key of its own.
    for &mode in Mode::every().iter().filter(|mode| **mode != Mode::Socket) {
        let key = format!("key-{mode:?}");
        let headers = [("idempotency-key", key.as_str())];
        let before = tools.starts("echo").len();
        let first = server.ask_with(mode, request("three"), &headers).made(&server).await;
        let again = server.ask_with(mode, request("three"), &headers).made(&server).await;
        assert_eq!((again.id(), &again.object), (first.id(), &first.object));
        assert_eq!(data(&again.events), data(&first.events), "the same stream from its beginning");
        assert_eq!(tools.starts("echo").len() - before, 1, "nothing is run again");
        let other =
            server.authorized(reqwest::Method::POST, "/v1/responses").header("idempotency-key", &key).json(&mode.asks(request("plain")));
        let refused = server.send(other).await;
        assert_eq!((refused.status, refused.code()), (409, "idempotency_key_reused"), "{}", refused.body);
        let without = server.respond(mode, request("three")).await;
        assert_ne!(without.id(), first.id(), "never by the body alone");
    }
}

#[tokio::test]
async fn a_026_a_silence_is_filled_with_a_heartbeat_that_shows_the_output_so_far() {
    let script = "laps: [ { text: Let me ask., calls: [{ tool: look_up, arguments: {} }] }, { text: done } ]";
    let (server, _tools) = scripted_with(script, "responses: { heartbeat: 500ms }").await;
    let asked = server.ask(Mode::Streamed, with(ask("go"), json!({ "windlass": { "tools": ["look_up"] } })));
    let call = server.claim("look_up").await;
    let id = asked.id().await;
    let mut other = server.follow(&id, None).await;
    let mut heartbeats = Vec::new();
    while heartbeats.len() < 2 {
        match other.next().await {
            Next::Event(event) if event.kind() == "response.in_progress" => heartbeats.push(event),
            Next::Event(_) => {}
            next @ (Next::Done | Next::Comment | Next::Closed | Next::Broken) => panic!("events keep a stream alive, not {next:?}"),
        }
    }
    // The first is the opening; the second is a heartbeat, which is the same for every reader.
    let shown = &heartbeats[1].data["response"]["output"];
    assert_eq!((&shown[0]["content"][0]["text"], &shown[1]["status"]), (&json!("Let me ask."), &json!("in_progress")));
    server.report(&call, json!("found")).await.ok();
    let made = asked.made(&server).await;
    assert_eq!(made.text(), "Let me ask.|done");
    assert!(made.events.iter().any(|event| event.data == heartbeats[1].data), "it has a number of its own, and stays");
}

#[tokio::test]
async fn a_reader_that_follows_from_the_beginning_costs_the_store_no_reads() {
    let (server, _tools) = scripted(SCRIPTS).await;
    let server = server.restart(&[("WINDLASS_LOG", "info,windlass_doors=trace")]).await;
    // The number of reads of the store by readers that started at the response's first event, and by those that started at a later one.
    let reads = |id: &str| {
        let log = server.log();
        let run = id.trim_start_matches("resp_");
        let reads = log.lines().filter(|line| line.contains("the store is asked for what happened") && line.contains(run));
        let (first, later): (Vec<_>, Vec<_>) = reads.partition(|line| line.contains("\"from\":0,") || line.contains("from=0"));
        (first.len(), later.len())
    };
    let plain = server.post("/v1/responses", request("three")).await.ok();
    let streamed = with(request("three"), json!({ "stream": true }));
    let streamed = server.request(reqwest::Method::POST, "/v1/responses").bearer_auth(server.token()).json(&streamed);
    let stream = streamed.send().await.expect("an answer").text().await.expect("a whole stream");
    assert!(stream.contains("response.completed"), "{stream}");
    let streamed = stream.split_once("\"id\":\"resp_").expect("an id").1;
    for id in [plain["id"].as_str().expect("an id"), &streamed[..32]] {
        assert_eq!(reads(id).0, 0, "nothing is read back: {}", server.log());
        server.get(&format!("/v1/responses/resp_{}", id.trim_start_matches("resp_"))).await.ok();
        // Log lines arrive in order, so when this one is there, all earlier ones are.
        until("a later reader reads the store", || async { (reads(id).0 == 1).then_some(()) }).await;
        // After a second notification without news the reader asks whether it has missed something. That happens if it has read deltas
        // before their notification arrives. A reader that reads the run back from the store asks for every commit, which are ten here.
        assert!(reads(id).1 <= 2, "{:?}: {}", reads(id), server.log());
    }
}
