//! Events in their wire format, and the queue in which they wait to be sent.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

/// A numbered event of a response's stream.
#[derive(Clone, Debug)]
pub(super) struct WireEvent {
    pub kind: &'static str,
    pub number: u64,
    body: Value,
}

/// Events that wait to be sent, in order.
#[derive(Default)]
pub(super) struct PendingEvents(VecDeque<PendingEntry>);

enum PendingEntry {
    Event(WireEvent),
    TextDeltas(TextDeltas),
}

/// Consecutive deltas of one message. A slow client can have a hundred thousand of them waiting, so a waiting delta is stored as its text
/// and a length, and becomes an event only when it is taken.
struct TextDeltas {
    next: u64,
    item: String,
    index: usize,
    text: String,
    lengths: VecDeque<u32>,
    /// The offset in `text` at which the next delta begins.
    at: usize,
}

impl TextDeltas {
    fn take(&mut self) -> Option<WireEvent> {
        let end = self.at + self.lengths.pop_front()? as usize;
        let delta = self.text.get(self.at..end).unwrap_or_default();
        let body = json!({ "item_id": self.item, "output_index": self.index, "content_index": 0, "delta": delta, "logprobs": [] });
        let event = WireEvent::new("response.output_text.delta", self.next, body);
        (self.at, self.next) = (end, self.next + 1);
        Some(event)
    }
}

impl PendingEvents {
    pub fn push(&mut self, event: WireEvent) {
        self.0.push_back(PendingEntry::Event(event));
    }

    /// Adds a delta of the message with the id `item`, which has this index in the output.
    pub fn push_delta(&mut self, number: u64, item: &str, index: usize, delta: &str) {
        if !matches!(self.0.back(), Some(PendingEntry::TextDeltas(open)) if open.item == item) {
            let (item, text, lengths) = (item.to_owned(), String::new(), VecDeque::new());
            self.0.push_back(PendingEntry::TextDeltas(TextDeltas { next: number, item, index, text, lengths, at: 0 }));
        }
        if let Some(PendingEntry::TextDeltas(open)) = self.0.back_mut() {
            open.text.push_str(delta);
            open.lengths.push_back(delta.len() as u32);
        }
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<WireEvent> {
        loop {
            match self.0.front_mut()? {
                PendingEntry::TextDeltas(deltas) => match deltas.take() {
                    Some(event) => return Some(event),
                    None => drop(self.0.pop_front()),
                },
                PendingEntry::Event(_) => match self.0.pop_front() {
                    Some(PendingEntry::Event(event)) => return Some(event),
                    Some(PendingEntry::TextDeltas(_)) | None => return None,
                },
            }
        }
    }
}

impl WireEvent {
    /// An event of this type. `body` has all fields except the type and the number.
    pub fn new(kind: &'static str, number: u64, body: Value) -> Self {
        WireEvent { kind, number, body }
    }

    /// The index of the output item that the event is about, if it is about one.
    pub fn output_index(&self) -> Option<usize> {
        self.body.get("output_index")?.as_u64().and_then(|index| usize::try_from(index).ok())
    }

    /// The event object, with its type and number.
    pub fn json(mut self) -> Value {
        self.body["type"] = self.kind.into();
        self.body["sequence_number"] = self.number.into();
        self.body
    }

    /// The event as a text frame for a socket.
    pub fn frame(self) -> String {
        self.json().to_string()
    }

    /// The event in the format of server-sent events. It must be written at once: some clients lose an event that arrives in parts.
    pub fn sse(self) -> Bytes {
        let mut event = Vec::with_capacity(EVENT_BYTES);
        event.extend_from_slice(b"event: ");
        event.extend_from_slice(self.kind.as_bytes());
        event.extend_from_slice(b"\ndata: ");
        serde_json::to_writer(&mut event, &self.json()).expect("a value is always written");
        event.extend_from_slice(b"\n\n");
        event.into()
    }
}

/// The initial capacity for an event: most are not longer.
const EVENT_BYTES: usize = 256;

/// The marker at the end of a stream of server-sent events.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_events_keep_their_order() {
        let mut pending = PendingEvents::default();
        let other = |number| WireEvent::new("response.in_progress", number, json!({}));
        pending.push(other(0));
        for (number, delta) in ["one", " ", "zwölf"].into_iter().enumerate() {
            pending.push_delta(1 + number as u64, "msg_a", 0, delta);
        }
        assert_eq!(pending.pop().map(|event| event.number), Some(0));
        assert_eq!(pending.pop().map(|event| event.json()["delta"].clone()), Some(json!("one")));
        // A delta that is pushed while others are being taken follows them.
        pending.push_delta(4, "msg_a", 0, "!");
        pending.push(other(5));
        pending.push_delta(6, "msg_b", 1, "x");
        let rest: Vec<Value> = std::iter::from_fn(|| pending.pop()).map(WireEvent::json).collect();
        let numbers: Vec<u64> = rest.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6]);
        let deltas: Vec<(&str, &str)> =
            rest.iter().filter_map(|event| Some((event["item_id"].as_str()?, event["delta"].as_str()?))).collect();
        assert_eq!(deltas, [("msg_a", " "), ("msg_a", "zwölf"), ("msg_a", "!"), ("msg_b", "x")]);
    }
}
