//! Servers of the Responses protocol: OpenAI's own, and those that speak like it.
//!
//! Nothing is kept there: every call sends the whole conversation with `store: false`, and what the model thought comes back
//! sealed if the request asks for thought.

mod answer;
mod request;

use windlass_ports::{Model, ModelRequest, ModelStream};

pub(crate) use self::answer::Answer;
use crate::remote::{ConfigError, Key, Protocol, Remote, RemoteConfig};

const PROTOCOL: Protocol = Protocol { path: &["responses"], key: Key::Bearer, headers: &[] };

/// Whose thoughts this provider takes back.
const THOUGHTS: &str = "openai";

/// A model behind a server of the Responses protocol.
#[derive(Debug)]
pub struct OpenAiResponses(Remote);

impl OpenAiResponses {
    /// Makes the client. Nothing is sent before the first call.
    pub fn new(config: RemoteConfig) -> Result<Self, ConfigError> {
        Remote::new(config, &PROTOCOL).map(OpenAiResponses)
    }
}

impl Model for OpenAiResponses {
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
