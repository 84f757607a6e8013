//! Any bytes as the answers of a tool server, over pipes or over HTTP.

use std::{collections::VecDeque, time::Duration};

use axum::http;
use reqwest::Response;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use uuid::Uuid;
use windlass_kernel::{CallKey, CallNumber, RunId, TaskStatus};
use windlass_tools::{Limits, fuzzing};

use super::{BETWEEN, BYTES_MAX, run};

/// The limit of one answer: lower than the longest input, so that the limit is reached.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How much longer an answer gets by being read and written again: a letter can become an escape of six letters, which can be escaped once
/// more.
const GROWTH: usize = 16;

/// Reads the bytes as a server's answers, one part for each request. The first byte chooses the transport.
pub fn mcp_answers(bytes: &[u8]) -> bool {
    let [transport, rest @ ..] = bytes else { return false };
    if rest.len() > BYTES_MAX {
        return false;
    }
    let parts: VecDeque<Vec<u8>> = rest.split(|byte| *byte == BETWEEN).map(<[u8]>::to_vec).collect();
    let limits = Limits { answer_bytes_max: ANSWER_BYTES_MAX, tools_max: 50, ..Limits::default() };
    let key = CallKey { run: RunId(Uuid::from_u128(1)), call: CallNumber(1) };
    let shown = run(async {
        let session = async {
            match transport % 2 {
                0 => over_pipes(parts, &limits, key).await,
                _ => fuzzing::over_answers(parts.into_iter().map(response).collect(), &limits, key).await,
            }
        };
        // More than the session may take in all.
        tokio::time::timeout(Duration::from_secs(3_600), session).await.expect("every session ends")
    });
    let Ok((tools, report)) = shown else { return false };
    let listed: usize = tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len()).sum();
    assert!(tools.len() <= limits.tools_max && listed <= GROWTH * rest.len(), "{listed} bytes of tools from {}", rest.len());
    assert!(report.result.len() <= GROWTH * rest.len() + 1_000, "{} bytes of a result from {}", report.result.len(), rest.len());
    serde_json::from_slice::<Value>(&report.result).expect("a result is JSON");
    report.status == TaskStatus::Success
}

async fn over_pipes(parts: VecDeque<Vec<u8>>, limits: &Limits, key: CallKey) -> fuzzing::ServerAnswer {
    let (ours, theirs) = duplex(BYTES_MAX);
    let (output, input) = tokio::io::split(ours);
    let serving = tokio::spawn(serve(theirs, parts));
    let shown = fuzzing::over_pipes(output, input, limits, key).await;
    serving.abort();
    shown
}

/// Answers every request with the next part. After the last one the pipes are closed.
async fn serve(pipes: DuplexStream, mut parts: VecDeque<Vec<u8>>) {
    let (output, mut input) = tokio::io::split(pipes);
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).expect("what we send is JSON");
        if message.get("id").is_none() || message.get("method").is_none() {
            continue;
        }
        let Some(mut part) = parts.pop_front() else { return };
        part.push(b'\n');
        if input.write_all(&part).await.is_err() {
            return;
        }
    }
}

/// An answer over HTTP. Its first byte chooses the kind.
fn response(part: Vec<u8>) -> Response {
    let (first, body) = part.split_first().map_or((b'j', &[][..]), |(first, body)| (*first, body));
    let (status, kind) = match first {
        b'e' => (200, "text/event-stream"),
        b'x' => (200, "text/html"),
        b'b' => (400, "application/json"),
        b'n' => (404, "application/json"),
        b's' => (500, "application/json"),
        b'a' => (202, "application/json"),
        _ => (200, "application/json"),
    };
    let response = http::Response::builder().status(status).header("content-type", kind).header("mcp-session-id", "s1");
    response.body(body.to_vec()).expect("an answer can be made").into()
}
