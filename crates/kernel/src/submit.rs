//! `submit_result`: the built-in tool with which a model hands in named fields. It is never sent to a tool service and needs no
//! registration.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use crate::{
    content::{self, Deliverable, DeliveredField},
    manifest::ResultField,
};

/// The name of the tool.
pub const SUBMIT_RESULT: &str = "submit_result";

/// The JSON Schema that the model reads: one property for each wanted field.
pub fn tool_schema(fields: &[ResultField]) -> Value {
    let properties: BTreeMap<&str, Value> =
        fields.iter().map(|field| (field.name.as_str(), json!({ "description": field.description }))).collect();
    json!({ "type": "object", "properties": properties, "required": required(fields) })
}

/// The names of the required fields.
pub(crate) fn required(wanted: &[ResultField]) -> Vec<&str> {
    wanted.iter().filter(|field| field.required).map(|field| field.name.as_str()).collect()
}

/// The deliverable that these arguments make. The error says what the model should correct.
pub(crate) fn deliverable(wanted: &[ResultField], arguments: &str) -> Result<Bytes, String> {
    let given: BTreeMap<String, &RawValue> =
        serde_json::from_str(arguments).map_err(|_| "the arguments are not a JSON object of fields".to_owned())?;
    let is_given = |name: &str| given.get(name).is_some_and(|value| value.get() != "null");
    let missing: Vec<&str> = required(wanted).into_iter().filter(|name| !is_given(name)).collect();
    if !missing.is_empty() {
        return Err(format!("required fields are missing: {}", missing.join(", ")));
    }
    let order = |name: &str| wanted.iter().position(|field| field.name == name).unwrap_or(usize::MAX);
    let mut fields: Vec<DeliveredField<'_>> =
        given.iter().map(|(name, value)| DeliveredField { name: name.clone(), value: Some(value), item_id: None }).collect();
    fields.sort_by_key(|field| order(&field.name));
    Ok(content::encode(&Deliverable::Fields(fields)))
}
