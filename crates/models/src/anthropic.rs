//! The Messages protocol, of Anthropic and of compatible servers.

mod answer;
mod parts;
mod request;
mod thinking;

use serde_json::Value;
use windlass_ports::ModelRequest;

pub(crate) use self::answer::Answer;
use crate::remote::{Key, Protocol};

/// The provider whose reasoning is sent back to these servers.
const REASONING_PROVIDER: &str = "anthropic";

/// The prefix that marks a seal as redacted reasoning, of which the provider shows no text. It cannot be a signature: those contain no
/// colon.
const REDACTED: &str = "redacted:";

/// The Messages protocol.
pub enum Messages {}

impl Protocol for Messages {
    type Answer = Answer;

    const PATH: &'static [&'static str] = &["v1", "messages"];
    const KEY: Key = Key::Header("x-api-key");
    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", "2023-06-01")];

    fn body(request: &ModelRequest, model: &str) -> Value {
        request::body(request, model)
    }

    fn answer(iteration: u32) -> Answer {
        Answer::new(iteration)
    }

    /// These servers refuse a prefill that ends in white space.
    fn takes_prefill(text: &str) -> bool {
        !text.ends_with(char::is_whitespace)
    }
}
