//! The offline model: it answers from a script, or by keywords in the input, and is deterministic.
//!
//! The same script and request give the same events, byte for byte: there is no clock, no randomness and no memory between requests. A test
//! can therefore kill the process at any point and know what the next attempt will receive. Ids of calls consist of the iteration and the
//! position (`call_1_0`); tokens are computed from lengths unless a script gives them.
//!
//! # Scripts
//!
//! A script is YAML. The first rule that matches answers; if none does, the entry of `laps` for the iteration; if there is none either, the
//! call fails permanently with `script_ended`.
//!
//! ```yaml
//! rules:
//!   - when: { input: weather, iteration: 1 }   # all conditions that are given must hold; a rule without `when` always matches
//!     reply:
//!       think: The user wants the weather.   # reasoning before the text, with a summary
//!       text: Let me see.
//!       calls: [{ tool: fetch, arguments: { url: "http://example.org" } }]
//!       usage: { in: 12, out: 5, cached: 4, reasoning: 2 }
//!       finish: length               # or content_filter: the answer stops short
//!       delay_ms: 200                # before the first chunk
//!       chunk: 8                     # bytes of text per chunk
//!       chunk_delay_ms: 10           # between chunks
//!       fail: { code: 429, message: slow down, retry_after_ms: 50, times: 2 }   # the first two attempts of the iteration
//!       cut_after: { chunks: 1, times: 3 }   # or `cut_after: 1`: the stream breaks after this number of chunks
//!   - when: { result: sunny }        # a result since the last user message contains this
//!     reply: { text: It is sunny. }
//!   - when: { any: true }
//!     reply: { text: I do not know. }
//! laps:                              # one reply per iteration
//!   - { text: first }
//!   - { text: second }
//! ```
//!
//! `input` matches a part of the last user message. Arguments that are a text are sent as they are, valid or not. Without `times`, every
//! attempt fails or is cut. A reply that both fails and is cut fails first, then is cut.
//!
//! # Keywords
//!
//! Without a script the last user message decides. The case of these keywords does not matter:
//!
//! - `call <tool>` or `call <tool> {json}`: one call for each mention of a tool that is offered.
//! - `submit` or `submit {json}`: if `submit_result` is offered, submits the object, or else every field of the tool, filled with the
//!   results or the input. Calls that are mentioned come first.
//! - `wait <ms>`: a pause before the first chunk, a minute at most.
//! - `fail <status>`: the first attempt of the first iteration fails like a provider that answers with that HTTP status.
//! - `cut after <n>`: the first attempt of the first iteration breaks after this number of chunks.
//!
//! Once there are results, the answer repeats them. Any other input is repeated.

mod keywords;
mod play;
mod script;

use std::path::Path;

use windlass_ports::{Model, ModelRequest, ModelStream};

use self::script::Script;
pub use self::script::ScriptError;
use crate::{conversation::ConversationEnd, limits::SCRIPTED_CONCURRENCY};

/// A model that needs no network.
#[derive(Clone, Debug)]
pub struct Scripted {
    name: String,
    concurrency: usize,
    source: Source,
}

/// The source of the answers.
#[derive(Clone, Debug)]
enum Source {
    Keywords,
    Script(Script),
}

impl Scripted {
    /// A model that answers by keywords in the input.
    pub fn by_words(name: impl Into<String>) -> Self {
        Scripted { name: name.into(), concurrency: SCRIPTED_CONCURRENCY, source: Source::Keywords }
    }

    /// A model that follows the script in this YAML.
    pub fn from_yaml(name: impl Into<String>, yaml: &str) -> Result<Self, ScriptError> {
        let source = Source::Script(Script::parse(yaml)?);
        Ok(Scripted { name: name.into(), concurrency: SCRIPTED_CONCURRENCY, source })
    }

    /// A model that follows the script in this file. The file is read once.
    pub fn from_file(name: impl Into<String>, path: &Path) -> Result<Self, ScriptError> {
        Self::from_yaml(name, &script::read(path)?)
    }

    /// Sets how many calls the model accepts at the same time.
    pub fn with_concurrency(self, concurrency: usize) -> Self {
        Scripted { concurrency, ..self }
    }
}

impl Model for Scripted {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let conversation = ConversationEnd::read(&request.messages);
        let steps = match &self.source {
            Source::Keywords => play::steps(&keywords::reply(&conversation, &request.tools), &request),
            Source::Script(script) => match script.reply(&conversation, request.iteration) {
                Ok(reply) => play::steps(reply, &request),
                Err(error) => vec![play::Step::Fail(error)],
            },
        };
        play::stream(steps)
    }

    fn provider(&self) -> &str {
        &self.name
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }
}
