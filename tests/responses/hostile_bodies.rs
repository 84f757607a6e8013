//! Bodies that are too large, too slow, of another type or hardly JSON: the refusal is clear, memory is bounded, and other clients notice
//! nothing.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use windlass_tests::{Answer, Mode, PATIENCE, Server, ServerBuilder, responses::check_refusal};

use crate::support::{ask, scripted, scripted_with};

const SCRIPT: &str = "laps: [ { text: fine } ]";
const MEGABYTE: usize = 1 << 20;
/// The default limit of a body in bytes.
const LIMIT: u64 = 8 << 20;

/// Opens a connection and sends the head of a request.
async fn begun(server: &Server, more: &str) -> TcpStream {
    let address = server.base().trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n{more}\r\n\r\n",
        server.token()
    );
    socket.write_all(head.as_bytes()).await.expect("a head");
    socket
}

/// Reads the answer of a connection that is closed after it.
async fn answered(socket: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    tokio::time::timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.expect("a clear end").expect("the answer is not lost");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("an answer has a head: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
    Answer { status, body: serde_json::from_str(body).unwrap_or(Value::Null) }
}

fn check_too_large(answer: &Answer) {
    check_refusal(answer);
    assert_eq!((answer.status, answer.code()), (413, "request_too_large"), "{}", answer.body);
    assert!(
        answer.body["error"]["message"].as_str().is_some_and(|message| message.contains("8388608")),
        "it has the limit: {}",
        answer.body
    );
}

async fn check_serves(server: &Server) {
    assert_eq!(server.respond(Mode::Streamed, ask("hi")).await.text(), "fine");
    assert!(!server.log().contains("panic"), "{}", server.log());
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_a_408_and_nothing_is_stored() {
    let (server, _tools) = scripted_with(SCRIPT, "server: { body: 300ms }\n").await;
    let before = server.database().snapshot();
    let mut socket = begun(&server, "connection: close\r\ncontent-length: 1000").await;
    socket.write_all(br#"{"model": "m", "input": "#).await.expect("half a body");
    let answer = answered(&mut socket).await;
    check_refusal(&answer);
    assert_eq!((answer.status, answer.code()), (408, "request_timeout"), "{}", answer.body);
    assert_eq!(server.database().snapshot(), before);
    check_serves(&server).await;
}

#[tokio::test]
async fn a_body_of_fifty_megabytes_is_refused_and_never_held() {
    let (server, _tools) = scripted(SCRIPT).await;
    check_serves(&server).await;
    let before = server.peak_bytes();
    // A client that writes the whole body before it reads still gets the refusal.
    let mut socket = begun(&server, &format!("connection: close\r\ncontent-length: {}", 50 * MEGABYTE)).await;
    let megabyte = vec![b' '; MEGABYTE];
    for _ in 0..50 {
        socket.write_all(&megabyte).await.expect("it is taken from the wire");
    }
    check_too_large(&answered(&mut socket).await);
    let announced = server.grown_since(before);
    // The allocator keeps some of the buffers that were read into and dropped. A stored body would be fifty megabytes.
    assert!(announced < 2 * LIMIT, "what is announced as too large is not kept: {announced}");
    // Without a length, the server buffers as much as the limit allows; a growing buffer takes twice that for a moment.
    let mut socket = begun(&server, "connection: close\r\ntransfer-encoding: chunked").await;
    for _ in 0..50 {
        socket.write_all(format!("{MEGABYTE:x}\r\n").as_bytes()).await.expect("it is taken from the wire");
        socket.write_all(&megabyte).await.expect("it is taken from the wire");
        socket.write_all(b"\r\n").await.expect("it is taken from the wire");
    }
    socket.write_all(b"0\r\n\r\n").await.expect("it is taken from the wire");
    check_too_large(&answered(&mut socket).await);
    let chunked = server.grown_since(before);
    assert!(chunked < 5 * LIMIT, "{chunked}");
    // Chunks of one byte each. The server keeps none of their frames.
    let mut socket = begun(&server, "connection: close\r\ntransfer-encoding: chunked").await;
    let pieces = b"1\r\n \r\n".repeat(MEGABYTE / 2);
    socket.write_all(&pieces).await.expect("it is taken from the wire");
    socket.write_all(b"0\r\n\r\n").await.expect("it is taken from the wire");
    let answer = answered(&mut socket).await;
    check_refusal(&answer);
    assert_eq!(answer.code(), "invalid_json");
    let in_bytes = server.grown_since(before).saturating_sub(chunked);
    assert!(in_bytes < LIMIT, "{in_bytes}");
    // An ordinary client.
    check_too_large(&server.post_bytes("/v1/responses", vec![b'x'; 50 * MEGABYTE]).await);
    assert_eq!(server.number("SELECT count(*) FROM runs"), 1);
    check_serves(&server).await;
}

#[tokio::test]
async fn a_body_of_fifty_megabytes_that_is_allowed_is_read_and_what_is_wrong_in_it_named() {
    let config = "models: [ { name: m, provider: scripted, script: script.yaml } ]\nlimits: { body_bytes: 64000000 }";
    let server = ServerBuilder::new(config).file("script.yaml", SCRIPT).start().await;
    check_serves(&server).await;
    let before = server.peak_bytes();
    let answer = server.post("/v1/responses", ask(&"x".repeat(50 * MEGABYTE))).await;
    check_refusal(&answer);
    assert_eq!((answer.status, &answer.body["error"]["param"]), (400, &json!("input")), "{}", answer.body);
    let grown = server.grown_since(before);
    assert!(grown < 4 * 50 * MEGABYTE as u64, "{grown}");
    check_serves(&server).await;
}

#[tokio::test]
async fn a_client_that_asks_first_is_refused_before_it_sends_anything() {
    let (server, _tools) = scripted(SCRIPT).await;
    let asks = |length: usize| format!("connection: close\r\nexpect: 100-continue\r\ncontent-length: {length}");
    let mut socket = begun(&server, &asks(50 * MEGABYTE)).await;
    check_too_large(&answered(&mut socket).await);
    let body = ask("hi").to_string();
    let mut socket = begun(&server, &asks(body.len())).await;
    let mut line = [0; 25];
    socket.read_exact(&mut line).await.expect("it gets 100 Continue");
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body.as_bytes()).await.expect("it continues");
    assert_eq!(answered(&mut socket).await.status, 200);
}

#[tokio::test]
async fn bodies_that_never_arrive_cost_nothing_and_delay_no_other_client() {
    let (server, _tools) = scripted(SCRIPT).await;
    check_serves(&server).await;
    let before = server.peak_bytes();
    let mut waiting = Vec::new();
    for index in 0..100 {
        let length = if index % 2 == 0 { format!("content-length: {LIMIT}") } else { "transfer-encoding: chunked".to_owned() };
        let mut socket = begun(&server, &length).await;
        let start = if index % 2 == 0 { "{\"input\":\"" } else { "5\r\n{\"inp\r\n" };
        socket.write_all(start.as_bytes()).await.expect("the start of a body");
        waiting.push(socket);
    }
    // The request declares too large a body and sends none of it: the refusal comes immediately.
    let began = Instant::now();
    let mut socket = begun(&server, &format!("connection: close\r\ncontent-length: {}", 50 * MEGABYTE)).await;
    check_serves(&server).await;
    check_too_large(&answered(&mut socket).await);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let grown = server.grown_since(before);
    assert!(grown < 100 * 256 * 1024, "a hundred silent clients have some buffers, and not the length that they declared: {grown}");
    drop(waiting);
    check_serves(&server).await;
    assert_eq!(server.number("SELECT count(*) FROM runs"), 3);
}

#[tokio::test]
async fn what_is_sent_as_something_else_than_json_is_refused_by_its_type() {
    let (server, _tools) = scripted(SCRIPT).await;
    let post = |kind: Option<&str>, body: String| {
        let request = server.request(Method::POST, "/v1/responses").body(body);
        server.send(match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        })
    };
    for kind in [
        "text/xml",
        "application/xml; charset=utf-8",
        "text/html",
        "multipart/form-data; boundary=x",
        "image/png",
        "application/jsonl",
        "application/x-ndjson",
        "application/cbor",
        "json",
    ] {
        let answer = post(Some(kind), "<input>hi</input>".to_owned()).await;
        check_refusal(&answer);
        assert_eq!((answer.status, answer.code()), (415, "unsupported_media_type"), "{kind}: {}", answer.body);
        let message = answer.body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("application/json"), "it has a hint: {message}");
    }
    // A large one is refused as well, and the connection is not broken.
    let answer = post(Some("multipart/form-data; boundary=x"), "x".repeat(20 * MEGABYTE)).await;
    assert_eq!((answer.status, answer.code()), (415, "unsupported_media_type"), "{}", answer.body);
    assert_eq!(server.number("SELECT count(*) FROM runs"), 0);
    let fine = [
        None,
        Some("application/json"),
        Some("application/json; charset=utf-8"),
        Some("Application/JSON;charset=UTF-8"),
        Some("application/vnd.openai+json"),
        Some("application/problem+json ; x=y"),
        Some("text/json"),
        // The content type that curl and browsers use by default.
        Some("application/x-www-form-urlencoded"),
        Some("text/plain;charset=UTF-8"),
        Some("application/octet-stream"),
    ];
    for kind in fine {
        let answer = post(kind, ask("hi").to_string()).await;
        assert_eq!(answer.status, 200, "{kind:?}: {}", answer.body);
    }
}

/// Bodies, each with the code of its refusal, or none if it is accepted.
fn odd_bodies() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let field = |json: &str| format!("{{\"model\":\"m\",\"input\":\"hi\",\"x\":{json}}}").into_bytes();
    let text = |json: &str| format!("{{\"model\":\"m\",\"input\":{json}}}").into_bytes();
    let nested = |open: &str, close: &str, depth: usize| format!("{}{}", open.repeat(depth), close.repeat(depth));
    vec![
        (b"\xff\xfe{\x00}\x00".to_vec(), Some("invalid_json")),
        (text("\"hi\"").into_iter().chain([0xff]).collect(), Some("invalid_json")),
        ([b"{\"model\":\"m\",\"input\":\"".as_slice(), b"\xc3\x28", b"\"}"].concat(), Some("invalid_json")),
        ([b"\xef\xbb\xbf".as_slice(), &text("\"hi\"")].concat(), Some("invalid_json")),
        (b"\x00".to_vec(), Some("invalid_json")),
        (vec![b' '; 1000], Some("invalid_json")),
        ([text("\"hi\""), text("\"hi\"")].concat(), Some("invalid_json")),
        (b"[".repeat(10_000), Some("invalid_json")),
        (nested("[", "]", 10_000).into_bytes(), Some("invalid_json")),
        (field(&nested("[", "]", 10_000)), Some("invalid_json")),
        (field(&nested("{\"a\":", "1}", 10_000)), Some("invalid_json")),
        (text(&nested("[", "]", 10_000)), Some("invalid_json")),
        (field("1e999"), Some("invalid_json")),
        (field("-1e999"), Some("invalid_json")),
        (field(&"9".repeat(10_000)), Some("invalid_json")),
        (field("NaN"), Some("invalid_json")),
        (field("Infinity"), Some("invalid_json")),
        (field("01"), Some("invalid_json")),
        (field("'x'"), Some("invalid_json")),
        (field("{\"a\":1,\"a\":2}"), Some("invalid_json")),
        (field("{\"a\":1,\"\\u0061\":2}"), Some("invalid_json")),
        (text("\"\\ud800\""), Some("invalid_json")),
        (text("\"\\udc00\\ud800\""), Some("invalid_json")),
        (field("{\"\\ud800\":1}"), Some("invalid_json")),
        (text("\"\\x41\""), Some("invalid_json")),
        (text("\"a\nb\""), Some("invalid_json")),
        (field("18446744073709551616"), None),
        (field("-0"), None),
        (field("1e-999"), None),
        (field(&nested("[", "]", 50)), None),
        (text("\"\\ud83d\\ude00\\u0000\""), None),
    ]
}

#[tokio::test]
async fn bodies_that_are_hardly_json_are_refused_or_taken_and_never_a_fault() {
    let (server, _tools) = scripted(SCRIPT).await;
    let mut taken = 0;
    for (body, code) in odd_bodies() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = server.post_bytes("/v1/responses", body).await;
        match code {
            Some(code) => {
                check_refusal(&answer);
                assert_eq!((answer.status, answer.code()), (400, code), "{shown:?}: {}", answer.body);
            }
            None => {
                assert_eq!(answer.status, 200, "{shown:?}: {}", answer.body);
                taken += 1;
            }
        }
    }
    // The same in a field that the server parses: the error names the field.
    for (number, param) in [("1e999", ""), ("-1", "max_turns"), ("1e30", "max_turns"), ("0.5", "max_turns")] {
        let body = format!("{{\"model\":\"m\",\"input\":\"hi\",\"max_turns\":{number}}}");
        let answer = server.post_bytes("/v1/responses", body.into_bytes()).await;
        check_refusal(&answer);
        assert_eq!((answer.status, answer.body["error"]["param"].as_str().unwrap_or_default()), (400, param), "{number}: {}", answer.body);
    }
    assert_eq!(server.number("SELECT count(*) FROM runs"), taken);
    check_serves(&server).await;
}

#[tokio::test]
async fn headers_that_make_no_sense_are_refused() {
    let server = ServerBuilder::new("models: [ { name: m, provider: scripted } ]").start().await;
    let body = ask("hi").to_string();
    for head in [
        "content-length: -1".to_owned(),
        "content-length: 99999999999999999999999".to_owned(),
        format!("content-length: {}\r\ncontent-length: 1", body.len()),
        "transfer-encoding: nonsense".to_owned(),
    ] {
        let mut socket = begun(&server, &head).await;
        let _ = socket.write_all(body.as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.expect("a clear end");
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer}");
    }
    for (name, value) in [("idempotency-key", "k".repeat(10_000)), ("traceparent", "x".repeat(10_000)), ("windlass-status", "?".to_owned())]
    {
        let answer = server.send(server.request(Method::POST, "/v1/responses").header(name, value).json(&ask("hi"))).await;
        assert!([200, 400].contains(&answer.status), "{name}: {} {}", answer.status, answer.body);
        if answer.status == 400 {
            check_refusal(&answer);
        }
    }
    assert!(!server.log().contains("panic") && !server.log().contains("by our own fault"), "{}", server.log());
}
