//! The content format of these tests: a result may say `{"then":"terminate"}`.

use serde_json::value::RawValue;
use windlass_kernel::{AfterExecution, header::ItemHeader};
use windlass_ports::ContentReader;

/// A result that asks for the end of its run.
pub const TERMINATE: &str = r#"{"then":"terminate"}"#;

pub struct TestReader;

impl ContentReader for TestReader {
    fn header(&self, _instruction: &[u8]) -> Option<ItemHeader> {
        None
    }

    fn wished_after(&self, result: &RawValue) -> Option<AfterExecution> {
        (result.get() == TERMINATE).then_some(AfterExecution::Terminate)
    }
}
