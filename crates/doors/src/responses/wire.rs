//! One event as it goes over the wire.

use bytes::Bytes;
use serde_json::Value;

/// A numbered event of a response's stream.
#[derive(Clone, Debug)]
pub(super) struct WireEvent {
    pub kind: &'static str,
    pub number: u64,
    body: Value,
}

impl WireEvent {
    /// An event of this kind, with the fields of `body` besides its type and its number.
    pub fn new(kind: &'static str, number: u64, body: Value) -> Self {
        WireEvent { kind, number, body }
    }

    /// Which item of the output it is about, if it is about one.
    pub fn output_index(&self) -> Option<usize> {
        self.body.get("output_index")?.as_u64().and_then(|index| usize::try_from(index).ok())
    }

    /// The event object.
    pub fn json(mut self) -> Value {
        self.body["type"] = self.kind.into();
        self.body["sequence_number"] = self.number.into();
        self.body
    }

    /// The event as server-sent events spell it, to be written in one go: some readers lose one that comes in parts.
    pub fn sse(self) -> Bytes {
        let kind = self.kind;
        format!("event: {kind}\ndata: {}\n\n", self.json()).into()
    }
}

/// What a stream ends with.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";
