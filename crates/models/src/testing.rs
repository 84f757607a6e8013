//! Helpers for the tests of several providers.

use windlass_kernel::{RunId, ToolChoice};
use windlass_ports::{ModelMessage, ModelRequest};

/// A request with this conversation and nothing else.
pub(crate) fn request(messages: Vec<ModelMessage>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        run: RunId(uuid::Uuid::from_u128(1)),
        iteration: 1,
        attempt: 1,
        instructions: None,
        messages,
        tools: [].into(),
        choice: ToolChoice::Auto,
        one_call: false,
        parameters: None,
        prefill: None,
    }
}
