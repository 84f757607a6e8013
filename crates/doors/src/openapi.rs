//! The OpenAPI document of all doors, written by hand in parts.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The parts of the document. Those after the first only add paths and components.
const PARTS: [&str; 7] = [
    include_str!("../openapi/base.yaml"),
    include_str!("../openapi/responses.yaml"),
    include_str!("../openapi/output.yaml"),
    include_str!("../openapi/requests.yaml"),
    include_str!("../openapi/conversations.yaml"),
    include_str!("../openapi/agents.yaml"),
    include_str!("../openapi/windlass.yaml"),
];

/// The merged document, built at the first request for it.
static DOCUMENT: LazyLock<Result<Bytes, String>> = LazyLock::new(|| document().map(|document| document.to_string().into()));

pub(crate) async fn openapi() -> Result<Response, ApiError> {
    let document = DOCUMENT.as_ref().map_err(|error| ApiError::internal(error))?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.clone()).into_response())
}

fn document() -> Result<Value, String> {
    let mut whole = Map::new();
    for part in PARTS {
        let part: Map<String, Value> = serde_saphyr::from_str(part).map_err(|error| error.to_string())?;
        merge(&mut whole, part, "")?;
    }
    Ok(whole.into())
}

/// Adds the members of `from` to `into`. A member that both have must be an object in both, since nothing may be described twice.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>, at: &str) -> Result<(), String> {
    for (key, value) in from {
        let at = format!("{at}/{key}");
        match (into.get_mut(&key), value) {
            (None, value) => drop(into.insert(key, value)),
            (Some(Value::Object(there)), Value::Object(more)) => merge(there, more, &at)?,
            (Some(_), _) => return Err(format!("{at} stands in two parts")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_component_is_used() {
        let document = document().expect("the parts fit");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in &found {
            let place = reference.strip_prefix('#').expect("a reference is within the document");
            assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
        }
        for kind in ["parameters", "schemas", "responses"] {
            for name in document["components"][kind].as_object().expect("there are components").keys() {
                assert!(found.contains(&format!("#/components/{kind}/{name}")), "nothing refers to {kind}/{name}");
            }
        }
    }

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(elements) => elements.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn nothing_is_described_twice() {
        let object = |value: Value| value.as_object().cloned().expect("an object");
        let mut into = object(json!({ "paths": { "/a": 1 }, "openapi": "3.1.0" }));
        assert_eq!(merge(&mut into, object(json!({ "paths": { "/b": 2 } })), ""), Ok(()));
        assert_eq!(into["paths"], json!({ "/a": 1, "/b": 2 }));
        let twice = merge(&mut into, object(json!({ "paths": { "/b": 3 } })), "");
        assert_eq!(twice, Err("/paths//b stands in two parts".to_owned()));
    }
}
