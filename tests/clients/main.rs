//! The real binary under the clients that people use: the OpenAI SDKs for Python and JavaScript, what agents are built with upon them,
//! and Codex.
//!
//! What a client does stands in a small program of its own in its own language, which prints what it saw as JSON. `scripts/clients`
//! installs the clients. The one for Rust is part of this program.

mod codex;
mod frameworks;
mod kills;
mod program;
mod retries;
mod rust;
mod sdks;
