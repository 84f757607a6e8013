//! Servers of the Chat Completions protocol, OpenAI's own and the many that speak like it.

mod answer;
mod request;

use windlass_ports::{Model, ModelRequest, ModelStream};

pub(crate) use self::answer::Answer;
use crate::remote::{ConfigError, Key, Protocol, Remote, RemoteConfig};

const PROTOCOL: Protocol = Protocol { path: &["chat", "completions"], key: Key::Bearer, headers: &[] };

/// A model behind a Chat Completions server.
#[derive(Debug)]
pub struct OpenAiChat(Remote);

impl OpenAiChat {
    /// Makes the client. Nothing is sent before the first call.
    pub fn new(config: RemoteConfig) -> Result<Self, ConfigError> {
        Remote::new(config, &PROTOCOL).map(OpenAiChat)
    }
}

impl Model for OpenAiChat {
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
