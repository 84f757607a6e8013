//! Calls whose arguments a person changes before they start.

use bytes::Bytes;
use jsonschema::PatternOptions;
use serde_json::Value;
use windlass_kernel::{ItemId, ItemKind, RequestedCall, RunId, Tenant, content};

use crate::{api::EngineError, engine::Engine};

impl Engine {
    /// The content of the call that a person saw as the item `shows`, with other arguments, which must be a JSON object that fits the
    /// schema of the tool. Whether the call may still be changed is decided when the answer is applied.
    pub async fn edited_call(&self, tenant: &Tenant, run: RunId, shows: ItemId, arguments: &str) -> Result<Bytes, EngineError> {
        let inner = self.inner();
        let (view, item) = (inner.views.run(tenant, run).await?, inner.views.item(tenant, shows).await?);
        let shown = item.filter(|item| item.kind == ItemKind::Call);
        let call: content::Call = shown.and_then(|item| serde_json::from_slice(&item.content).ok()).ok_or(EngineError::NotShown)?;
        let tool = view.as_ref().and_then(|view| view.manifest.tool(&call.tool)).ok_or(EngineError::NotShown)?;
        check(&tool.parameters, arguments)?;
        let (number, requested) = (call.call, call.requested());
        let content = content::edited_call(number, &RequestedCall { arguments: arguments.to_owned(), ..requested });
        let limit = inner.settings.item_bytes_max;
        if content.len() > limit { Err(EngineError::ItemTooLarge { bytes: content.len(), limit }) } else { Ok(content) }
    }
}

/// Refuses arguments that are no JSON object or do not fit the schema. A schema may come from a stranger's tool server: its patterns run in
/// linear time, and it can't refer to another document.
fn check(schema: &Value, arguments: &str) -> Result<(), EngineError> {
    let bad = |place: String, reason: String| EngineError::BadArguments { place, reason };
    let at_root = |reason: String| bad("/".to_owned(), reason);
    let value: Value = serde_json::from_str(arguments).map_err(|error| at_root(error.to_string()))?;
    if !value.is_object() {
        return Err(at_root("they must be a JSON object".to_owned()));
    }
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    let validator = options.build(schema).map_err(|error| EngineError::UnusableSchema(error.to_string()))?;
    validator.validate(&value).map_err(|error| {
        let place = error.instance_path().to_string();
        bad(if place.is_empty() { "/".to_owned() } else { place }, error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_fit_the_schema_or_the_place_is_named() {
        let schema =
            json!({ "type": "object", "required": ["to"], "properties": { "to": { "type": "array", "items": { "type": "string" } } } });
        let refusal = |arguments: &str| check(&schema, arguments).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refusal(r#"{"to":["ann"],"more":1}"#), "");
        assert!(refusal(r#"{"to":["ann",7]}"#).contains("at /to/1: "), "{}", refusal(r#"{"to":["ann",7]}"#));
        assert!(refusal("{}").contains("at /: "), "{}", refusal("{}"));
        for text in ["", "{", "[]", "7", "null"] {
            assert!(refusal(text).contains("at /: "), "{text}");
        }
    }

    #[test]
    fn a_hostile_schema_costs_little_and_fetches_nothing() {
        for (schema, is_usable) in [
            (json!({}), true),
            (json!({ "$ref": "#" }), true),
            (json!({ "allOf": [{ "$ref": "#" }] }), true),
            (json!({ "properties": { "a": { "pattern": "(a+)+$" } } }), true),
            (json!({ "$ref": "http://127.0.0.1:9/schema" }), false),
            (json!({ "$ref": "file:///etc/passwd" }), false),
            (json!({ "type": "objekt" }), false),
        ] {
            let arguments = json!({ "a": "a".repeat(10_000) }).to_string();
            let is_checked = !matches!(check(&schema, &arguments), Err(EngineError::UnusableSchema(_)));
            assert_eq!(is_checked, is_usable, "{schema}");
        }
    }
}
