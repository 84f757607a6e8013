//! What the engine asks of the APIs about content in their formats.

use serde_json::value::RawValue;
use windlass_kernel::{AfterExecution, header::ItemHeader};

/// Reads content in the formats of the APIs. The engine stores such content and knows none of its formats.
pub trait ContentReader: Send + Sync {
    /// The header of an instruction that is an item in a client's format. `None` if it is one of the engine's own shapes.
    ///
    /// It is made when the item comes in, and again when an item is read that was stored without a header.
    fn header(&self, instruction: &[u8]) -> Option<ItemHeader>;

    /// What a tool's result itself asks to follow, if it does.
    fn wished_after(&self, result: &RawValue) -> Option<AfterExecution>;
}

/// A reader for simulations and measurements, which use the engine's own shapes only.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReader;

impl ContentReader for NoReader {
    fn header(&self, _instruction: &[u8]) -> Option<ItemHeader> {
        None
    }

    fn wished_after(&self, _result: &RawValue) -> Option<AfterExecution> {
        None
    }
}
