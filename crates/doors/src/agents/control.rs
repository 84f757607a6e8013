//! The control field by which a tool's result says what follows it.

use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_kernel::AfterExecution;

/// What the result itself asks to follow: `result.__cg_control.after_execution`, if it is there and valid.
pub fn wished_after(result: &RawValue) -> Option<AfterExecution> {
    #[derive(Deserialize)]
    struct Wish<'a> {
        #[serde(rename = "__cg_control", borrow, default)]
        control: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Control {
        after_execution: String,
    }
    let wish: Wish<'_> = object(result)?;
    let control: Control = object(wish.control?)?;
    match control.after_execution.as_str() {
        "suspend" => Some(AfterExecution::Suspend),
        "terminate" => Some(AfterExecution::Terminate),
        _ => None,
    }
}

/// Reads a JSON object. An array is refused, though serde would read its elements as fields.
fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    let text = value.get().trim_start();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(result: &str) -> Option<AfterExecution> {
        wished_after(&RawValue::from_string(result.to_owned()).unwrap())
    }

    #[test]
    fn c_047_a_valid_control_field_overrides_after_execution() {
        for (result, wished) in [
            (r#"{"__cg_control":{"after_execution":"terminate"}}"#, AfterExecution::Terminate),
            (r#"{"__cg_control":{"after_execution":"suspend"}}"#, AfterExecution::Suspend),
            (r#" {"x":[1,{"y":2}],"__cg_control":{"more":1,"after_execution":"terminate"},"z":null} "#, AfterExecution::Terminate),
            (r#"{"bytes":"\ud800 \udfff","__cg_control":{"after_execution":"terminate"}}"#, AfterExecution::Terminate),
            (r#"{"big":1e999,"__cg_control":{"why":"\ud800","after_execution":"terminate"}}"#, AfterExecution::Terminate),
            (r#"{"\u005f_cg_control":{"after_execution":"terminat\u0065"}}"#, AfterExecution::Terminate),
        ] {
            assert_eq!(wish(result), Some(wished), "{result}");
        }
    }

    #[test]
    fn c_047_an_invalid_control_field_is_ignored() {
        for result in [
            "null",
            "5",
            r#""terminate""#,
            "[]",
            r#"[["terminate"]]"#,
            r#"[{"after_execution":"terminate"}]"#,
            "{}",
            r#"{"after_execution":"terminate"}"#,
            r#"{"__cg_control":null}"#,
            r#"{"__cg_control":"terminate"}"#,
            r#"{"__cg_control":["terminate"]}"#,
            r#"{"__cg_control":{}}"#,
            r#"{"__cg_control":{"after_execution":null}}"#,
            r#"{"__cg_control":{"after_execution":true}}"#,
            r#"{"__cg_control":{"after_execution":"Terminate"}}"#,
            r#"{"__cg_control":{"after_execution":"stop"}}"#,
            r#"{"__cg_control":{"after_execution":"\ud800"}}"#,
            r#"{"__cg_control":{"after_execution":["terminate"]}}"#,
            r#"{"__cg_control":{"after_execution":{"terminate":null}}}"#,
            r#"{"result":{"__cg_control":{"after_execution":"terminate"}}}"#,
        ] {
            assert_eq!(wish(result), None, "{result}");
        }
    }
}
