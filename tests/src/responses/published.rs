//! The contract that Open Responses published, if its file is there.
//!
//! The intended differences are in one list, each with its reason, and in `docs/responses.md`. Everything else has to match.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use jsonschema::Validator;
use serde_json::{Value, json};

/// The path of the contract, from the workspace.
const FILE: &str = "../shared/contracts/openresponses/openapi.json";

/// An intended difference between this server and the contract.
pub struct Exception {
    /// The name, which is a phrase in `docs/responses.md`.
    pub name: &'static str,
    /// The reason. `docs/responses.md` contains it word for word.
    pub reason: &'static str,
    forgiven: Forgiven,
}

enum Forgiven {
    /// Output items of these types.
    Items(&'static [&'static str]),
    /// Events whose types begin with one of these.
    Events(&'static [&'static str]),
    /// Tools in the echoed request that are no functions.
    Tools,
    /// A tool choice in the echoed request that names such a tool.
    Choice,
    /// The schema in the echoed text format.
    Schema,
}

/// All intended differences.
pub const EXCEPTIONS: [Exception; 9] = [
    Exception {
        name: "Items `mcp_call` and `mcp_list_tools`",
        reason: "calls that the server runs; every client would run a `function_call` again",
        forgiven: Forgiven::Items(&["mcp_call", "mcp_list_tools"]),
    },
    Exception {
        name: "Items `mcp_approval_request`",
        reason: "calls that the client has to approve, as OpenAI has them",
        forgiven: Forgiven::Items(&["mcp_approval_request"]),
    },
    Exception {
        name: "Events `response.mcp_call…` and `response.mcp_list_tools…`",
        reason: "what those items come with in OpenAI's own protocol",
        forgiven: Forgiven::Events(&["response.mcp_call.", "response.mcp_call_arguments.", "response.mcp_list_tools."]),
    },
    Exception {
        name: "Events `response.requires_action` and `response.cancelled`",
        reason: "sent only to clients that ask for them",
        forgiven: Forgiven::Events(&["response.requires_action", "response.cancelled"]),
    },
    Exception {
        name: "Items `custom_tool_call`",
        reason: "calls of `custom` tools, which the contract does not have and Codex does",
        forgiven: Forgiven::Items(&["custom_tool_call"]),
    },
    Exception {
        name: "Events `response.custom_tool_call_input…`",
        reason: "what those items come with too",
        forgiven: Forgiven::Events(&["response.custom_tool_call_input."]),
    },
    Exception {
        name: "`tools` repeats tools of every type",
        reason: "the contract knows functions only, and a request may have others",
        forgiven: Forgiven::Tools,
    },
    Exception {
        name: "`tool_choice` repeats choices of every type",
        reason: "the contract knows functions only, and a request may choose others",
        forgiven: Forgiven::Choice,
    },
    Exception {
        name: "`text.format.schema` is repeated",
        reason: "the contract wants null there, which is a slip of its authors; the SDKs expect the schema",
        forgiven: Forgiven::Schema,
    },
];

struct Contract {
    response: Validator,
    compaction: Validator,
    events: BTreeMap<String, Validator>,
    socket_error: Validator,
}

static CONTRACT: LazyLock<Option<Contract>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").join(FILE);
    let text = std::fs::read(file).ok()?;
    Some(Contract::read(&serde_json::from_slice(&text).expect("the contract is JSON")))
});

impl Contract {
    fn read(document: &Value) -> Self {
        let components = &document["components"];
        let compiled = |name: &str| {
            let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": components });
            jsonschema::draft202012::new(&schema).unwrap_or_else(|error| panic!("{name} is no schema: {error}"))
        };
        let schemas = components["schemas"].as_object().expect("the contract has schemas");
        let events = schemas.iter().filter(|(name, _)| name.ends_with("StreamingEvent"));
        let type_of = |schema: &Value| schema["properties"]["type"]["enum"][0].as_str().expect("an event has a type").to_owned();
        Contract {
            response: compiled("ResponseResource"),
            compaction: compiled("CompactResource"),
            events: events.map(|(name, schema)| (type_of(schema), compiled(name))).collect(),
            socket_error: compiled("WebSocketErrorEvent"),
        }
    }
}

/// Whether the file of the contract is there.
pub(super) fn is_present() -> bool {
    CONTRACT.is_some()
}

/// The violations in a response.
pub(super) fn faults_of_response(response: &Value) -> Vec<String> {
    let Some(contract) = CONTRACT.as_ref() else { return Vec::new() };
    let mut response = response.clone();
    forgive_response(&mut response);
    faults(&contract.response, &response)
}

/// The violations in a compaction.
pub(super) fn faults_of_compaction(compaction: &Value) -> Vec<String> {
    CONTRACT.as_ref().map_or_else(Vec::new, |contract| faults(&contract.compaction, compaction))
}

/// The violations in an event.
pub(super) fn faults_of_event(event: &Value) -> Vec<String> {
    let Some(contract) = CONTRACT.as_ref() else { return Vec::new() };
    let kind = event["type"].as_str().unwrap_or_default();
    let is_forgiven = |exception: &Exception| match exception.forgiven {
        Forgiven::Events(starts) => starts.iter().any(|start| kind.starts_with(start)),
        Forgiven::Items(types) => types.iter().any(|name| event["item"]["type"] == *name),
        Forgiven::Tools | Forgiven::Choice | Forgiven::Schema => false,
    };
    if EXCEPTIONS.iter().any(is_forgiven) {
        return match event.get("response") {
            Some(response) => faults_of_response(response),
            None => Vec::new(),
        };
    }
    let Some(validator) = contract.events.get(kind) else { return vec![format!("the contract has no event {kind:?}")] };
    let mut event = event.clone();
    if let Some(response) = event.get_mut("response") {
        forgive_response(response);
    }
    faults(validator, &event)
}

/// The violations in an error frame of a socket.
pub(super) fn faults_of_socket_error(frame: &Value) -> Vec<String> {
    CONTRACT.as_ref().map_or_else(Vec::new, |contract| faults(&contract.socket_error, frame))
}

fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("{} at {}", error, error.instance_path())).collect()
}

/// Removes the intended differences.
fn forgive_response(response: &mut Value) {
    for exception in &EXCEPTIONS {
        match exception.forgiven {
            Forgiven::Items(types) => retain(&mut response["output"], |item| !types.iter().any(|name| item["type"] == *name)),
            Forgiven::Tools => retain(&mut response["tools"], |tool| tool["type"] == "function"),
            Forgiven::Choice => forgive_choice(&mut response["tool_choice"]),
            Forgiven::Schema => {
                let format = &mut response["text"]["format"];
                if format["type"] == "json_schema" {
                    format["schema"] = Value::Null;
                }
            }
            Forgiven::Events(_) => {}
        }
    }
}

fn forgive_choice(choice: &mut Value) {
    match choice["type"].as_str() {
        Some("function") | None => {}
        Some("allowed_tools") => {
            let before = choice["tools"].as_array().map_or(0, Vec::len);
            retain(&mut choice["tools"], |tool| tool["type"] == "function");
            if before > 0 && choice["tools"] == json!([]) {
                *choice = "auto".into();
            }
        }
        Some(_) => *choice = "auto".into(),
    }
}

fn retain(list: &mut Value, keep: impl FnMut(&Value) -> bool) {
    if let Some(list) = list.as_array_mut() {
        list.retain(keep);
    }
}
