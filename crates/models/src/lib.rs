//! Model providers: each turns a [`windlass_ports::ModelRequest`] into one stream of [`windlass_ports::ModelEvent`].
//!
//! [`OpenAiChat`] speaks to any server of the Chat Completions protocol, [`OpenAiResponses`] to one of the Responses protocol,
//! [`Anthropic`] to one of the Messages protocol; [`Scripted`] answers offline and deterministically; and [`Registry`] finds a model by
//! name. A provider trusts nothing that it reads: every size has a limit in [`limits`], and any failure ends the stream with one error that
//! says whether a retry may help.
//!
//! Deliberately absent: retries, limits on concurrency and backoff, which are the engine's part; environment variables and configuration
//! files, which are the binary's.

mod anthropic;
mod arguments;
mod cap;
mod content_budget;
mod conversation;
mod exchange;
mod failure;
#[doc(hidden)]
pub mod fuzzing;

pub mod limits;
mod name;
mod openai_chat;
mod openai_responses;
mod registry;
mod remote;
mod retry_after;
mod scripted;
#[cfg(test)]
mod testing;
mod upstream;

pub use registry::{Entry, PASS_THROUGH, Registry};
pub use remote::{ConfigError, Remote, RemoteConfig};
pub use scripted::{ScriptError, Scripted};

/// A model behind a server of the Chat Completions protocol.
pub type OpenAiChat = Remote<openai_chat::ChatCompletions>;

/// A model behind a server of the Responses protocol.
pub type OpenAiResponses = Remote<openai_responses::Responses>;

/// A model behind a server of the Messages protocol.
pub type Anthropic = Remote<anthropic::Messages>;
