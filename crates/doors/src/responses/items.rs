//! Output items in their wire format, made from the stored items of runs.

use serde_json::{Value, json, value::RawValue};
use windlass_kernel::{CallKey, CallNumber, Manifest, RunId, TaskStatus, content};

use super::{
    note::{Note, Spelling},
    request::CUSTOM_INPUT,
};

/// The server label of tools that belong to no tool server.
const OWN_LABEL: &str = "windlass";

/// The id of an item: globally unique, the same in every event, and readable by [`place_of`].
pub(super) fn item_id(prefix: &str, run: RunId, index: usize) -> String {
    format!("{prefix}_{}_{index}", run.0.simple())
}

/// The run and the index in an id that [`item_id`] made; `None` for every other id.
pub(super) fn place_of(id: &str) -> Option<(RunId, usize)> {
    let (_, rest) = id.split_once('_')?;
    let (run, index) = rest.split_once('_')?;
    let run = Some(run).filter(|run| run.len() == 32).and_then(|run| uuid::Uuid::try_parse(run).ok())?;
    Some((RunId(run), index.parse().ok()?))
}

pub(super) fn message(id: &str, text: &str, status: &str) -> Value {
    json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": [text_part(text)] })
}

pub(super) fn empty_message(id: &str) -> Value {
    json!({ "type": "message", "id": id, "role": "assistant", "status": "in_progress", "content": [] })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A reasoning item before its content.
pub(super) fn empty_reasoning(id: &str) -> Value {
    json!({ "type": "reasoning", "id": id, "summary": [], "status": "in_progress" })
}

/// A reasoning item: its summary, and the additions that the client asked for. The provider's name is prefixed to the encrypted content, so
/// that a later request can send it back to the same provider.
pub(super) fn reasoning(id: &str, reasoning: &content::Reasoning, spelling: Spelling) -> Value {
    let summary: Vec<Value> = reasoning.summary.iter().map(|text| summary_part(text)).collect();
    let mut item = json!({ "type": "reasoning", "id": id, "summary": summary, "status": "completed" });
    if let Some(sealed) = reasoning.sealed.as_ref().filter(|_| spelling.sealed) {
        item["encrypted_content"] = format!("{}:{sealed}", reasoning.provider).into();
    }
    if spelling.raw && !reasoning.text.is_empty() {
        item["content"] = json!([{ "type": "reasoning_text", "text": reasoning.text }]);
    }
    item
}

pub(super) fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// A compaction item with an encrypted summary.
pub(super) fn compaction(id: &str, sealed: &str, status: &str) -> Value {
    json!({ "type": "compaction", "id": id, "encrypted_content": sealed, "status": status })
}

/// The wire format of one kind of client calls: the type of the items, the field with the arguments, and the events about them.
pub(super) struct Handover {
    pub prefix: &'static str,
    kind: &'static str,
    pub field: &'static str,
    pub delta: &'static str,
    pub done: &'static str,
}

const FUNCTION: Handover = Handover {
    prefix: "fc",
    kind: "function_call",
    field: "arguments",
    delta: "response.function_call_arguments.delta",
    done: "response.function_call_arguments.done",
};

const CUSTOM: Handover = Handover {
    prefix: "ctc",
    kind: "custom_tool_call",
    field: "input",
    delta: "response.custom_tool_call_input.delta",
    done: "response.custom_tool_call_input.done",
};

impl Handover {
    /// The kind of a call, and its arguments for the client. A custom tool gets the text of the one argument; if the model did not wrap its
    /// text in an object, the tool gets the raw arguments.
    pub fn of(call: &content::Call, note: &Note) -> (&'static Self, String) {
        if !note.names.get(&call.tool).is_some_and(|client| client.is_custom) {
            return (&FUNCTION, call.arguments.clone());
        }
        let arguments: Option<Value> = serde_json::from_str(&call.arguments).ok();
        let input = arguments.as_ref().and_then(|arguments| arguments.get(CUSTOM_INPUT)?.as_str());
        (&CUSTOM, input.map_or_else(|| call.arguments.clone(), str::to_owned))
    }

    /// A call for the client to make.
    pub fn item(&self, id: &str, key: CallKey, call: &content::Call, note: &Note, given: &str, status: &str) -> Value {
        let mut item = json!({
            "type": self.kind, "id": id, "call_id": key.to_string(), "name": call.tool, self.field: given, "status": status,
        });
        if let Some(client) = note.names.get(&call.tool) {
            item["name"] = client.name.clone().into();
            if let Some(namespace) = &client.namespace {
                item["namespace"] = namespace.clone().into();
            }
        }
        item
    }
}

/// The result of a call, in the pair form.
pub(super) fn function_output(id: &str, key: CallKey, output: &str) -> Value {
    json!({ "type": "function_call_output", "id": id, "call_id": key.to_string(), "output": output, "status": "completed" })
}

/// A call that the server makes.
pub(super) fn mcp_call(id: &str, call: &content::Call, manifest: &Manifest, arguments: &str) -> Value {
    let (label, name) = address(call, manifest);
    let asked = call.approval.as_ref().zip(call.takes).map(|(approval, call)| approval_id(CallKey { run: approval.run, call }));
    json!({
        "type": "mcp_call", "id": id, "server_label": label, "name": name, "arguments": arguments, "output": null, "error": null,
        "approval_request_id": asked, "status": "in_progress",
    })
}

/// A request for the client's approval of a call.
pub(super) fn approval_request(key: CallKey, call: &content::Call, manifest: &Manifest) -> Value {
    let (label, name) = address(call, manifest);
    json!({ "type": "mcp_approval_request", "id": approval_id(key), "server_label": label, "name": name, "arguments": call.arguments })
}

/// The id of a request for approval. It names the call, so that an answer is understood without reading the response again.
pub(super) fn approval_id(key: CallKey) -> String {
    item_id("mcpr", key.run, key.call.0 as usize)
}

/// The call in an id that [`approval_id`] made; `None` for every other id.
pub(super) fn approval_key(id: &str) -> Option<CallKey> {
    let (run, number) = place_of(id)?;
    let key = CallKey { run, call: CallNumber(u32::try_from(number).ok()?) };
    (approval_id(key) == id).then_some(key)
}

/// The server label and the name under which clients know the tool of a call.
fn address<'a>(call: &'a content::Call, manifest: &'a Manifest) -> (&'a str, &'a str) {
    let remote = manifest.tool(&call.tool).and_then(|tool| tool.remote.as_ref());
    remote.map_or((OWN_LABEL, call.tool.as_str()), |remote| (remote.server.as_str(), remote.name.as_str()))
}

/// The tools of a server, as the manifest has pinned them.
pub(super) fn mcp_list_tools(id: &str, label: &str, manifest: &Manifest) -> Value {
    let offered = manifest.tools.iter().filter_map(|tool| {
        let remote = tool.remote.as_ref().filter(|remote| remote.server == label)?;
        Some(json!({ "name": remote.name, "description": tool.description, "input_schema": tool.parameters }))
    });
    json!({ "type": "mcp_list_tools", "id": id, "server_label": label, "tools": offered.collect::<Vec<_>>() })
}

/// The result of a call.
pub(super) struct Outcome {
    pub call: CallNumber,
    pub text: String,
    pub is_error: bool,
}

impl Outcome {
    /// Reads the content of a result item. Of an error object, the text is its message.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let result: content::CallResult<'_> = serde_json::from_slice(bytes).ok()?;
        let is_error = result.status != TaskStatus::Success;
        let error_text = is_error.then(|| error_message(result.result)).flatten();
        Some(Outcome { call: result.call, text: error_text.unwrap_or_else(|| as_text(result.result)), is_error })
    }
}

/// The message of an error object.
fn error_message(raw: &RawValue) -> Option<String> {
    let value: Value = serde_json::from_str(raw.get()).ok()?;
    value.get("error")?.get("message")?.as_str().map(str::to_owned)
}

fn as_text(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_approval_is_found_by_its_id() {
        let key = CallKey { run: RunId(uuid::Uuid::from_u128(7)), call: CallNumber(3) };
        let id = approval_id(key);
        assert_eq!((id.as_str(), approval_key(&id)), ("mcpr_00000000000000000000000000000007_3", Some(key)));
        for other in ["", "mcpr_3", "mcpr_682d_3", "mcpr_00000000000000000000000000000007_03", "mcpr_00000000000000000000000000000007_+3"] {
            assert_eq!(approval_key(other), None, "{other}");
        }
        assert_eq!(approval_key(&id.replace("mcpr", "mcp")), None, "another item");
    }

    #[test]
    fn an_item_is_found_by_its_id() {
        let run = RunId(uuid::Uuid::from_u128(7));
        assert_eq!(place_of(&item_id("msg", run, 12)), Some((run, 12)));
        for id in ["", "msg", "msg_7_1", "msg_00000000000000000000000000000007", "msg_00000000000000000000000000000007_x"] {
            assert_eq!(place_of(id), None, "{id}");
        }
    }
}
