//! The Chat Completions protocol, of OpenAI and of the many compatible servers.

mod answer;
mod request;

use serde_json::Value;
use windlass_ports::ModelRequest;

pub(crate) use self::answer::Answer;
use crate::remote::{Key, Protocol};

/// The Chat Completions protocol.
pub enum ChatCompletions {}

impl Protocol for ChatCompletions {
    type Answer = Answer;

    const PATH: &'static [&'static str] = &["chat", "completions"];
    const KEY: Key = Key::Bearer;

    fn body(request: &ModelRequest, model: &str) -> Value {
        request::body(request, model)
    }

    fn answer(iteration: u32) -> Answer {
        Answer::new(iteration)
    }
}
