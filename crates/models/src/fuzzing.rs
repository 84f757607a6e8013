//! Entry points for fuzzing: reads answers without a server.

use std::{sync::Arc, time::Duration};

use reqwest::Response;
use windlass_ports::ModelStream;

use crate::{anthropic, exchange::Exchange, openai_chat, openai_responses, upstream::Upstream};

/// The protocol of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderProtocol {
    /// Chat Completions.
    Chat,
    /// Responses.
    Responses,
    /// Messages.
    Messages,
}

impl ProviderProtocol {
    /// The model events that a call would produce from this answer.
    pub fn read(self, response: Response) -> ModelStream {
        let (name, url) = ("fuzzed".to_owned(), "http://127.0.0.1/v1".to_owned());
        let limit = Duration::from_secs(120);
        let upstream = Arc::new(Upstream { name, url, setting: None, first_byte: limit, idle: limit, secrets: Vec::new() });
        match self {
            ProviderProtocol::Chat => Exchange::answered(upstream, response, openai_chat::Answer::new(0)),
            ProviderProtocol::Responses => Exchange::answered(upstream, response, openai_responses::Answer::new(0)),
            ProviderProtocol::Messages => Exchange::answered(upstream, response, anthropic::Answer::new(0)),
        }
    }
}
