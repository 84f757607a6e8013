//! Reads server-sent events, one at a time.

use std::{collections::VecDeque, pin::Pin};

use futures_util::{Stream, StreamExt};
use serde_json::Value;

use crate::PATIENCE;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct SseEvent {
    /// The id.
    pub id: String,
    /// The name.
    pub event: String,
    /// The data.
    pub data: Value,
}

/// An open stream of events.
pub struct SseStream {
    chunks: Pin<Box<dyn Stream<Item = Option<Vec<u8>>> + Send>>,
    text: Vec<u8>,
    ready: VecDeque<SseEvent>,
}

impl SseStream {
    /// Reads the body of a response.
    pub fn new(response: reqwest::Response) -> Self {
        let chunks = response.bytes_stream().map(|chunk| chunk.ok().map(|bytes| bytes.to_vec()));
        SseStream { chunks: Box::pin(chunks), text: Vec::new(), ready: VecDeque::new() }
    }

    /// Reads the next event; `None` if the stream ended or broke.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let chunk = tokio::time::timeout(PATIENCE, self.chunks.next()).await.expect("the stream sends something");
            self.text.extend(chunk??);
            while let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                self.ready.extend(parse(&String::from_utf8_lossy(&block)));
            }
        }
    }

    /// Reads until an event satisfies the condition. Returns everything read, with that event last.
    pub async fn read_until(&mut self, mut is_last: impl FnMut(&SseEvent) -> bool) -> Vec<SseEvent> {
        let mut read = Vec::new();
        while let Some(event) = self.next().await {
            let last = is_last(&event);
            read.push(event);
            if last {
                return read;
            }
        }
        panic!("the stream ended before that: {read:#?}");
    }
}

/// A block without data is a comment.
fn parse(block: &str) -> Option<SseEvent> {
    let field =
        |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim_start().to_owned()));
    let data = field("data")?;
    Some(SseEvent {
        id: field("id").unwrap_or_default(),
        event: field("event").unwrap_or_default(),
        data: serde_json::from_str(&data).ok()?,
    })
}
