//! Servers of the Messages protocol: Anthropic's own, and those that speak like it.

mod answer;
mod parts;
mod request;
mod thinking;

use serde_json::Value;
use windlass_ports::ModelRequest;

pub(crate) use self::answer::Answer;
use crate::remote::{Key, Protocol};

/// Whose thoughts this provider takes back.
const THOUGHTS: &str = "anthropic";

/// What marks the seal of a thought that the provider shows nothing of. No signature has a colon in it.
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

    /// Words that end with a space are refused there.
    fn takes_prefill(words: &str) -> bool {
        !words.ends_with(char::is_whitespace)
    }
}
