//! Reads the events of a response as a client does, and records what has arrived.

use anyhow::Context;
use reqwest::Response;
use serde_json::Value;

/// The end mark of a stream.
const DONE: &str = "[DONE]";

/// The server-sent events of one connection.
pub(super) struct Stream {
    response: Response,
    unread: Vec<u8>,
}

impl Stream {
    /// Reads the body of a response.
    pub fn open(response: Response) -> Self {
        Stream { response, unread: Vec::new() }
    }

    /// The data of the next event. An error if the connection broke, `None` at the end of the stream.
    async fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let text = String::from_utf8(block).context("an event is no text")?;
                // An event without data is a comment that keeps the connection alive.
                if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Ok(Some(data.to_owned()));
                }
                continue;
            }
            match self.response.chunk().await.context("the stream broke off")? {
                Some(bytes) => self.unread.extend(bytes),
                None => return Ok(None),
            }
        }
    }
}

/// A client that follows a response, over several connections if necessary.
#[derive(Default)]
pub(super) struct Follower {
    /// The current connection.
    pub stream: Option<Stream>,
    /// What has arrived over all connections.
    pub received: Received,
}

/// The parts of a response that a client has received.
#[derive(Default)]
pub(super) struct Received {
    pub id: Option<String>,
    /// The sequence numbers of the events, in the order of arrival.
    pub numbers: Vec<u64>,
    /// The text so far, and the number of its deltas.
    pub text: String,
    pub deltas: usize,
    /// The type of the last event.
    pub last: Option<String>,
    /// Whether the end mark has arrived.
    pub is_done: bool,
}

impl Follower {
    /// The next event. An error if the connection broke, `None` once the response is complete.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        let stream = self.stream.as_mut().context("there is no stream")?;
        let data = stream.next().await?.context("the stream ended without its end mark")?;
        if data == DONE {
            self.received.is_done = true;
            return Ok(None);
        }
        let event: Value = serde_json::from_str(&data).context("an event is no JSON")?;
        self.received.take(&event)?;
        Ok(Some(event))
    }

    /// The response's id, which the first event contains.
    pub fn id(&self) -> anyhow::Result<&str> {
        self.received.id.as_deref().context("no event brought the response's id")
    }
}

impl Received {
    fn take(&mut self, event: &Value) -> anyhow::Result<()> {
        self.numbers.push(event["sequence_number"].as_u64().context("an event has no number")?);
        if let Some(id) = event["response"]["id"].as_str() {
            self.id = Some(id.to_owned());
        }
        let kind = event["type"].as_str().context("an event has no type")?;
        if kind == "response.output_text.delta" {
            self.text.push_str(event["delta"].as_str().unwrap_or_default());
            self.deltas += 1;
        }
        self.last = Some(kind.to_owned());
        Ok(())
    }
}
