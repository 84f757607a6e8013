//! The grammar of a response's stream: which event may follow which, and which of their fields must agree.

use serde_json::{Value, json};

use super::contract;

/// Event types that end a stream, with the statuses that they may have.
const ENDINGS: [(&str, &[&str]); 5] = [
    ("response.completed", &["completed", "requires_action"]),
    ("response.incomplete", &["incomplete", "cancelled"]),
    ("response.failed", &["failed"]),
    ("response.requires_action", &["requires_action", "completed"]),
    ("response.cancelled", &["cancelled"]),
];

/// Checks a stream from its beginning, and fails at the first event that is not allowed at its place.
#[derive(Default)]
pub struct Grammar {
    next: u64,
    id: Value,
    is_background: bool,
    opening: Vec<String>,
    items: Vec<Item>,
    ended: Option<Value>,
    heartbeats: usize,
}

struct Item {
    added: Value,
    parts: Vec<Part>,
    arguments: String,
    arguments_done: bool,
    outcome: Option<String>,
    done: Option<Value>,
}

#[derive(Default)]
struct Part {
    text: String,
    is_spoken: bool,
    is_done: bool,
}

impl Grammar {
    /// Checks the next event.
    pub fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap_or_else(|| panic!("an event has a type: {event}"));
        assert_eq!(event["sequence_number"], self.next, "numbers go up by one: {event}");
        self.next += 1;
        assert!(self.ended.is_none(), "nothing follows the last event: {event}");
        let faults = contract::faults_of_event(event);
        assert!(faults.is_empty(), "an event that the contract does not have: {faults:#?}\n{event:#}");
        if let Some(response) = event.get("response") {
            self.lifecycle(kind, response);
            return;
        }
        assert_eq!(self.opening.last().map(String::as_str), Some("response.in_progress"), "items come after the opening: {event}");
        match kind {
            "response.output_item.added" => self.added(event),
            "response.output_item.done" => self.done(event),
            _ => self.inside(kind, event),
        }
    }

    /// The last object, after the end of the stream.
    pub fn ended(&self) -> Option<&Value> {
        self.ended.as_ref()
    }

    /// The number of heartbeats.
    pub fn heartbeats(&self) -> usize {
        self.heartbeats
    }

    /// The sequence number of the next event.
    pub fn next(&self) -> u64 {
        self.next
    }

    fn lifecycle(&mut self, kind: &str, response: &Value) {
        if self.opening.is_empty() {
            assert_eq!(kind, "response.created", "the first event");
            assert_eq!(response["output"], json!([]), "nothing is there at the beginning");
            (self.id, self.is_background) = (response["id"].clone(), response["background"] == true);
        }
        assert_eq!(response["id"], self.id, "one id throughout");
        let expected: &[&str] = match self.is_background {
            true => &["response.created", "response.queued", "response.in_progress"],
            false => &["response.created", "response.in_progress"],
        };
        if let Some(expected) = expected.get(self.opening.len()) {
            // A response may end before it has begun to run.
            let is_ending = !self.opening.is_empty() && ENDINGS.iter().any(|(ending, _)| *ending == kind);
            if !is_ending {
                assert_eq!(kind, *expected, "the opening");
                let status = if self.is_background && kind != "response.in_progress" { "queued" } else { "in_progress" };
                assert_eq!(response["status"], status, "{kind}");
                self.opening.push(kind.to_owned());
                return;
            }
        }
        if kind == "response.in_progress" {
            self.heartbeats += 1;
            return self.snapshot(response);
        }
        let ending = ENDINGS.iter().find(|(ending, _)| *ending == kind);
        let (_, statuses) = ending.unwrap_or_else(|| panic!("{kind} is in the middle of a stream"));
        assert!(statuses.iter().any(|status| response["status"] == *status), "{kind} with {}", response["status"]);
        self.end(response);
    }

    /// A heartbeat contains the response as it is now.
    fn snapshot(&self, response: &Value) {
        let shown: Vec<&Value> = response["output"].as_array().expect("an output").iter().map(|item| &item["id"]).collect();
        let known: Vec<&Value> = self.items.iter().map(|item| &item.added["id"]).collect();
        assert_eq!(shown, known, "a snapshot shows the items so far");
        for (item, shown) in self.items.iter().zip(response["output"].as_array().expect("an output")) {
            match &item.done {
                Some(done) => assert_eq!(done, shown, "a finished item does not change"),
                None => {
                    let text: String = item.parts.iter().map(|part| part.text.as_str()).collect();
                    assert_eq!(text_of_message(shown), text, "a heartbeat shows the text so far");
                }
            }
        }
    }

    fn end(&mut self, response: &Value) {
        let output = response["output"].as_array().expect("an output");
        let done: Vec<&Value> = self.items.iter().filter_map(|item| item.done.as_ref()).collect();
        assert_eq!(done.len(), self.items.len(), "nothing stays open at the end: {:#?}", response["output"]);
        assert_eq!(done, output.iter().collect::<Vec<_>>(), "the last object repeats every finished item");
        let is_whole = output.iter().all(|item| item["status"] != "in_progress" && item["status"] != "incomplete");
        assert!(is_whole || response["status"] != "completed", "a whole response has no half items: {response:#}");
        self.ended = Some(response.clone());
    }

    fn added(&mut self, event: &Value) {
        assert_eq!(event["output_index"], self.items.len(), "items are added in the order of their places: {event}");
        let item = &event["item"];
        let zero = |key: &str, empty: &Value| assert_eq!(&item[key], empty, "an item begins empty: {event}");
        match item["type"].as_str() {
            Some("message") => zero("content", &json!([])),
            Some("function_call" | "mcp_call") => zero("arguments", &json!("")),
            Some("custom_tool_call") => zero("input", &json!("")),
            Some("mcp_list_tools") => zero("tools", &json!([])),
            Some("reasoning") => zero("summary", &json!([])),
            Some("compaction") => zero("encrypted_content", &json!("")),
            Some("function_call_output" | "mcp_approval_request") => {}
            _ => panic!("an item of an unexpected type: {event}"),
        }
        let has_progress = ["message", "reasoning", "compaction", "function_call", "custom_tool_call", "mcp_call"]
            .iter()
            .any(|kind| item["type"] == *kind);
        assert!(!has_progress || item["status"] == "in_progress", "an item begins in progress: {event}");
        assert!(item["id"].as_str().is_some_and(|id| !id.is_empty()), "an item has an id: {event}");
        assert!(self.items.iter().all(|other| other.added["id"] != item["id"]), "an id is one item's: {event}");
        let (parts, arguments, arguments_done) = (Vec::new(), String::new(), false);
        self.items.push(Item { added: item.clone(), parts, arguments, arguments_done, outcome: None, done: None });
    }

    fn done(&mut self, event: &Value) {
        let item = self.open(event, event["item"]["id"].clone());
        let done = &event["item"];
        for key in ["id", "type", "call_id", "name", "namespace", "server_label", "role"] {
            assert_eq!(done.get(key), item.added.get(key), "{key} stays the same: {event}");
        }
        assert!(item.parts.iter().all(|part| part.is_spoken && part.is_done), "parts end before their item: {event}");
        let text: String = item.parts.iter().map(|part| part.text.as_str()).collect();
        match done["type"].as_str() {
            Some("message") => {
                assert_eq!(text_of_message(done), text, "the text of a message is the sum of its deltas: {event}");
                assert_eq!(done["content"].as_array().map(Vec::len), Some(item.parts.len()), "{event}");
            }
            Some("reasoning") => {
                let summary: Vec<&Value> = done["summary"].as_array().into_iter().flatten().map(|part| &part["text"]).collect();
                let parts: Vec<&str> = item.parts.iter().map(|part| part.text.as_str()).collect();
                assert_eq!(summary, parts, "the summary of a reasoning item is the sum of its deltas: {event}");
            }
            Some(kind @ ("function_call" | "custom_tool_call" | "mcp_call")) => {
                assert!(item.arguments_done, "arguments end before their item: {event}");
                assert_eq!(done[handed_over(kind)], item.arguments.as_str(), "{event}");
            }
            _ => {}
        }
        if done["type"] == "mcp_call" {
            let expected = item.outcome.as_deref().unwrap_or("incomplete");
            assert_eq!(done["status"], expected, "an item has the status of its events: {event}");
            assert_eq!(done["error"].is_string(), expected == "failed", "{event}");
            assert_eq!(done["output"].is_string(), expected == "completed", "{event}");
        } else if !["mcp_list_tools", "mcp_approval_request"].iter().any(|kind| done["type"] == *kind) {
            assert!(["completed", "incomplete"].iter().any(|status| done["status"] == *status), "{event}");
        }
        item.done = Some(done.clone());
    }

    fn inside(&mut self, kind: &str, event: &Value) {
        let item = self.open(event, event["item_id"].clone());
        let is_of = |kind: &str| assert_eq!(item.added["type"], kind, "an event of another kind of item: {event}");
        let text_of = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} is a text: {event}")).to_owned();
        match kind {
            "response.content_part.added" => {
                is_of("message");
                assert_eq!(event["content_index"], item.parts.len(), "parts are added in order: {event}");
                assert_eq!(event["part"]["text"], "", "a part begins empty: {event}");
                item.parts.push(Part::default());
            }
            "response.reasoning_summary_part.added" => {
                is_of("reasoning");
                assert_eq!(event["summary_index"], item.parts.len(), "parts are added in order: {event}");
                assert_eq!(event["part"], json!({ "type": "summary_text", "text": "" }), "a part begins empty: {event}");
                item.parts.push(Part::default());
            }
            "response.output_text.delta" | "response.reasoning_summary_text.delta" => {
                let delta = text_of("delta");
                assert!(!delta.is_empty(), "a delta is not empty: {event}");
                item.part(event).text.push_str(&delta);
            }
            "response.output_text.done" | "response.reasoning_summary_text.done" => {
                let part = item.part(event);
                assert_eq!(event["text"], part.text.as_str(), "the pieces make up the text: {event}");
                part.is_spoken = true;
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                let part = item.part(event);
                assert!(part.is_spoken, "a part ends after its text: {event}");
                assert_eq!(event["part"]["text"], part.text.as_str(), "{event}");
                part.is_done = true;
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" | "response.mcp_call_arguments.delta" => {
                is_of(caller(kind));
                assert!(!item.arguments_done, "no piece comes after the end: {event}");
                item.arguments.push_str(&text_of("delta"));
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" | "response.mcp_call_arguments.done" => {
                is_of(caller(kind));
                // A person may change the arguments of a call that waits for approval.
                if item.arguments_done && kind == "response.mcp_call_arguments.done" {
                    item.arguments = text_of("arguments");
                }
                assert_eq!(event[handed_over(caller(kind))], item.arguments.as_str(), "the pieces make up the arguments: {event}");
                assert!(event.get("name").is_none_or(|name| *name == item.added["name"]), "a call keeps its name: {event}");
                item.arguments_done = true;
            }
            "response.mcp_call.in_progress" => is_of("mcp_call"),
            "response.mcp_call.completed" | "response.mcp_call.failed" => {
                is_of("mcp_call");
                assert!(item.outcome.is_none() && item.arguments_done, "a call ends once, after its arguments: {event}");
                item.outcome = kind.rsplit('.').next().map(str::to_owned);
            }
            "response.mcp_list_tools.in_progress" | "response.mcp_list_tools.completed" => is_of("mcp_list_tools"),
            _ => panic!("an unexpected event: {event}"),
        }
    }

    /// The open item that an event belongs to. Fails if there is none.
    fn open(&mut self, event: &Value, id: Value) -> &mut Item {
        let index = event["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let item = index.and_then(|index| self.items.get_mut(index)).unwrap_or_else(|| panic!("an event of no item: {event}"));
        assert_eq!(item.added["id"], id, "an item keeps its id: {event}");
        assert!(item.done.is_none(), "a finished item does not change: {event}");
        item
    }
}

impl Item {
    fn part(&mut self, event: &Value) -> &mut Part {
        let key = if self.added["type"] == "reasoning" { "summary_index" } else { "content_index" };
        let index = event[key].as_u64().and_then(|index| usize::try_from(index).ok());
        let part = index.and_then(|index| self.parts.get_mut(index)).unwrap_or_else(|| panic!("an event of no part: {event}"));
        assert!(!part.is_done, "a finished part does not change: {event}");
        part
    }
}

/// The type of the items that an event about arguments or input belongs to.
fn caller(kind: &str) -> &str {
    kind.trim_start_matches("response.")
        .split_once(['.'])
        .map_or(kind, |(kind, _)| kind.trim_end_matches("_arguments").trim_end_matches("_input"))
}

/// The field of a call with its arguments or input.
fn handed_over(kind: &str) -> &'static str {
    if kind == "custom_tool_call" { "input" } else { "arguments" }
}

/// The text of a message.
fn text_of_message(item: &Value) -> String {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}
