//! Servers of the Messages protocol: Anthropic's own, and those that speak like it.

mod answer;
mod parts;
mod request;
mod thinking;

use windlass_ports::{Model, ModelRequest, ModelStream};

pub(crate) use self::answer::Answer;
use crate::remote::{ConfigError, Key, Protocol, Remote, RemoteConfig};

const PROTOCOL: Protocol =
    Protocol { path: &["v1", "messages"], key: Key::Header("x-api-key"), headers: &[("anthropic-version", "2023-06-01")] };

/// Whose thoughts this provider takes back.
const THOUGHTS: &str = "anthropic";

/// What marks the seal of a thought that the provider shows nothing of. No signature has a colon in it.
const REDACTED: &str = "redacted:";

/// A model behind a server of the Messages protocol.
#[derive(Debug)]
pub struct Anthropic(Remote);

impl Anthropic {
    /// Makes the client. Nothing is sent before the first call.
    pub fn new(config: RemoteConfig) -> Result<Self, ConfigError> {
        Remote::new(config, &PROTOCOL).map(Anthropic)
    }
}

impl Model for Anthropic {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let body = request::body(&request, self.0.model_for(&request));
        self.0.post(&body, Answer::new(request.iteration))
    }

    fn provider(&self) -> &str {
        self.0.name()
    }

    fn concurrency(&self) -> usize {
        self.0.concurrency
    }
}
