//! The doors over the real engine, with the store in memory and the offline model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod agents;
mod bad_input;
mod calls;
mod events;
mod failures;
mod lists;
mod metrics;
mod misuse;
mod openapi;
mod rights;
mod support;
mod templates;
mod windlass_api;
mod wire;
