//! The server's own OpenAPI document, merged from its parts as the server does it.
//!
//! Here its objects are closed: a field that the document does not describe is a violation. For clients they stay open, because a later
//! version may add fields.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The folder of the parts, from the workspace.
const FOLDER: &str = "crates/doors/openapi";

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder").join(FOLDER);
    let mut whole = Map::new();
    for entry in std::fs::read_dir(folder).expect("the document has parts") {
        let path = entry.expect("a part can be listed").path();
        let text = std::fs::read_to_string(&path).expect("a part can be read");
        merge(&mut whole, serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    whole.into()
});

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| Contract::read(&DOCUMENT));

struct Contract {
    response: Validator,
    compaction: Validator,
    events: BTreeMap<String, Validator>,
    socket_error: Validator,
}

impl Contract {
    fn read(document: &Value) -> Self {
        let mut components = document["components"].clone();
        close(&mut components);
        let compiled = |name: &str| {
            let schema = json!({ "$ref": format!("#/components/schemas/{name}"), "components": components });
            jsonschema::draft202012::new(&schema).unwrap_or_else(|error| panic!("{name} is no schema: {error}"))
        };
        let mut events = BTreeMap::new();
        for reference in components["schemas"]["ResponseEvent"]["oneOf"].as_array().expect("there are events") {
            let name = reference["$ref"].as_str().and_then(|path| path.rsplit('/').next()).expect("an event is a reference");
            let kind = &components["schemas"][name]["properties"]["type"];
            let kinds = kind["enum"].as_array().cloned().unwrap_or_else(|| vec![kind["const"].clone()]);
            for kind in kinds {
                let known = events.insert(kind.as_str().expect("an event has a type").to_owned(), compiled(name));
                assert!(known.is_none(), "{kind} is described twice");
            }
        }
        Contract { response: compiled("Response"), compaction: compiled("CompactedInput"), events, socket_error: compiled("SocketError") }
    }
}

/// The document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

pub(super) fn event_types() -> Vec<&'static str> {
    CONTRACT.events.keys().map(String::as_str).collect()
}

pub(super) fn faults_of_response(response: &Value) -> Vec<String> {
    faults(&CONTRACT.response, response)
}

pub(super) fn faults_of_compaction(compaction: &Value) -> Vec<String> {
    faults(&CONTRACT.compaction, compaction)
}

pub(super) fn faults_of_event(event: &Value) -> Vec<String> {
    let kind = event["type"].as_str().unwrap_or_default();
    match CONTRACT.events.get(kind) {
        Some(validator) => faults(validator, event),
        None => vec![format!("the OpenAPI document has no event {kind:?}")],
    }
}

pub(super) fn faults_of_socket_error(frame: &Value) -> Vec<String> {
    faults(&CONTRACT.socket_error, frame)
}

fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    validator.iter_errors(value).map(|error| format!("OpenAPI document: {error} at {}", error.instance_path())).collect()
}

/// Adds the members of a part to the whole.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => merge(there, more),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Forbids fields that are not described in every object whose fields are described and that does not allow others explicitly.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            let kind = members.get("type");
            let is_object = kind.is_some_and(|kind| kind == "object" || kind == &json!(["object", "null"]));
            if is_object && members.get("properties").is_some_and(Value::is_object) {
                members.entry("additionalProperties").or_insert(false.into());
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
