//! What the engine asks about content in the formats of the APIs.

use serde_json::value::RawValue;
use windlass_kernel::{AfterExecution, header::ItemHeader};
use windlass_ports::ContentReader;

use crate::{agents, responses};

/// Reads the items of the Responses API, which the agents API takes too, and the control field of tools' results.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireReader;

impl ContentReader for WireReader {
    fn header(&self, instruction: &[u8]) -> Option<ItemHeader> {
        responses::header(instruction)
    }

    fn wished_after(&self, result: &RawValue) -> Option<AfterExecution> {
        agents::wished_after(result)
    }
}
