//! Model providers: each turns a [`windlass_ports::ModelRequest`] into one stream of [`windlass_ports::ModelEvent`].
//!
//! [`OpenAiChat`] speaks to any server of the Chat Completions protocol, [`Scripted`] answers offline and always the same,
//! and [`Registry`] finds a model by name. A provider trusts nothing it reads: every size has a limit in [`limits`], and
//! whatever goes wrong ends the stream with one error that says whether trying again may help.
//!
//! What is deliberately absent: retries, concurrency gates and pauses between tries, which are the engine's; environment
//! variables and configuration files, which are the binary's.

mod failure;
mod item;
pub mod limits;
mod openai_chat;
mod registry;
mod scripted;

pub use openai_chat::{ConfigError, OpenAiChat, OpenAiChatConfig};
pub use registry::{Entry, PASS_THROUGH, Registry};
pub use scripted::{ScriptError, Scripted};
