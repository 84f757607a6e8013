//! The real binary with the clients that people use: the OpenAI SDKs for Python and JavaScript, the agent frameworks on top of them, and
//! Codex.
//!
//! The actions of each client are a small program in the client's own language, which prints what it observed as JSON. `scripts/clients`
//! installs the clients. The client for Rust is part of this program.

mod codex;
mod frameworks;
mod kills;
mod program;
mod retries;
mod rust;
mod sdks;
