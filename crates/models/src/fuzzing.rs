//! A way in for those who throw bytes at the providers: answers without a server that gives them.

use std::{sync::Arc, time::Duration};

use reqwest::Response;
use windlass_ports::ModelStream;

use crate::{anthropic, exchange::Exchange, openai_chat, openai_responses, upstream::Upstream};

/// The protocols that answers come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Chat Completions.
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
}

impl Protocol {
    /// What a call makes of this answer.
    pub fn read(self, response: Response) -> ModelStream {
        let upstream = Arc::new(Upstream { name: "fuzzed".to_owned(), idle: Duration::from_secs(120), secrets: Vec::new() });
        match self {
            Protocol::Chat => Exchange::answered(upstream, response, openai_chat::Answer::new(0)),
            Protocol::Responses => Exchange::answered(upstream, response, openai_responses::Answer::new(0)),
            Protocol::Messages => Exchange::answered(upstream, response, anthropic::Answer::new(0)),
        }
    }
}
