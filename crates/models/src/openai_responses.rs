//! Servers of the Responses protocol: OpenAI's own, and those that speak like it.
//!
//! Nothing is kept there: every call sends the whole conversation with `store: false`, and what the model thought comes back
//! sealed if the request asks for thought.

mod answer;
mod request;

use serde_json::Value;
use windlass_ports::ModelRequest;

pub(crate) use self::answer::Answer;
use crate::remote::{Key, Protocol};

/// Whose thoughts this provider takes back.
const THOUGHTS: &str = "openai";

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

    /// The protocol has no word for it.
    fn takes_prefill(_words: &str) -> bool {
        false
    }
}
