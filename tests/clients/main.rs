//! The real binary under the clients that people use: the OpenAI SDKs for Python and JavaScript, and Codex.
//!
//! What a client does stands in a small program of its own in its own language, which prints what it saw as JSON. `scripts/clients`
//! installs the clients.

mod codex;
mod program;
mod sdks;
