//! The Responses protocol, of OpenAI and of compatible servers.
//!
//! The provider stores nothing: every call sends the whole conversation with `store: false`, and reasoning comes back sealed if the request
//! asks for reasoning.

mod answer;
mod request;

use serde_json::Value;
use windlass_ports::ModelRequest;

pub(crate) use self::answer::Answer;
use crate::remote::{Key, Protocol};

/// The provider whose reasoning is sent back to these servers.
const REASONING_PROVIDER: &str = "openai";

/// The Responses protocol.
pub enum Responses {}

impl Protocol for Responses {
    type Answer = Answer;

    const PATH: &'static [&'static str] = &["responses"];
    const KEY: Key = Key::Bearer;

    fn body(request: &ModelRequest, model: &str) -> Value {
        request::body(request, model)
    }

    fn answer(iteration: u32) -> Answer {
        Answer::new(iteration)
    }

    /// The protocol has no prefill.
    fn takes_prefill(_text: &str) -> bool {
        false
    }
}
