//! The shapes of content that a script can't show.

use expect_test::expect;
use serde_json::value::RawValue;
use windlass_kernel::{CallNumber, TaskStatus, content};

#[test]
fn a_result_is_kept_byte_for_byte() {
    let came = r#"{ "b":1.0, "a":"\ud800\u0000", "a":1e999 }"#;
    let kept = content::result(CallNumber(3), TaskStatus::Partial, &RawValue::from_string(came.to_owned()).expect("JSON"));
    expect![[r#"{"call":3,"status":"partial","result":{ "b":1.0, "a":"\ud800\u0000", "a":1e999 }}"#]]
        .assert_eq(std::str::from_utf8(&kept).expect("UTF-8"));
    let read: content::CallResult<'_> = serde_json::from_slice(&kept).expect("a result is read back");
    assert_eq!(read.result.get(), came);
}

#[test]
fn a_refusal_reads_like_any_result() {
    let refusal = content::refusal(CallNumber(1), TaskStatus::Failed, "unknown_tool", "there is no tool \"x\"");
    let read: content::CallResult<'_> = serde_json::from_slice(&refusal).expect("a refusal is a result");
    assert_eq!((read.call, read.status), (CallNumber(1), TaskStatus::Failed));
    expect![[r#"{"error":{"code":"unknown_tool","message":"there is no tool \"x\""}}"#]].assert_eq(read.result.get());
}

#[test]
fn c_063_result_fields_are_a_list_of_field_objects_and_nothing_else() {
    let read = |text: &str| serde_json::from_str::<content::FieldsSchema>(text);
    let schema = read(r#"{"fields":[{"name":"title","required":true},{"name":"note","description":"why"}]}"#).expect("a schema");
    assert_eq!(
        schema.fields.iter().map(|field| (field.name.as_str(), field.required)).collect::<Vec<_>>(),
        [("title", true), ("note", false)]
    );
    for wrong in
        [r#"[{"name":"title"}]"#, r#"{"fields":{"title":{}}}"#, r#"{"fields":["title"]}"#, r#"{"fields":[{"name":"a","kind":"b"}]}"#]
    {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_model_reads_one_property_per_wanted_field() {
    let fields = serde_json::from_str::<Vec<_>>(r#"[{"name":"title","description":"short","required":true},{"name":"note"}]"#);
    let schema = windlass_kernel::submit_result_schema(&fields.expect("fields"));
    expect![[r#"{"properties":{"note":{"description":""},"title":{"description":"short"}},"required":["title"],"type":"object"}"#]]
        .assert_eq(&schema.to_string());
}

#[test]
fn kinds_and_statuses_are_read_back_as_they_are_spelled() {
    for kind in windlass_kernel::ItemKind::ALL {
        assert_eq!(windlass_kernel::ItemKind::parse(kind.as_str()), Some(kind));
        assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
    }
    for name in ["success", "failed", "canceled", "timeout", "partial"] {
        assert_eq!(TaskStatus::parse(name).map(TaskStatus::as_str), Some(name));
    }
    for name in ["idle", "dispatched", "running", "suspended"] {
        assert_eq!(windlass_kernel::HeadStatus::parse(name).map(windlass_kernel::HeadStatus::as_str), Some(name));
    }
    assert_eq!(windlass_kernel::HeadStatus::parse("paused"), None);
}
