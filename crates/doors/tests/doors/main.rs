//! The doors over the real engine, with the store in memory and the offline model.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop where it is")]

mod access;
mod agents;
mod bad_input;
mod calls;
mod children;
mod events;
mod failures;
mod interrupts;
mod lists;
mod logins;
mod metrics;
mod misuse;
mod openapi;
mod overload;
mod prompts;
mod quotas;
mod replay;
mod rights;
mod support;
mod templates;
mod windlass_api;
mod wire;
