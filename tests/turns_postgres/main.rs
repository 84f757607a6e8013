//! The promises of the turn machine, with the real binary, on PostgreSQL with NATS: the tests of `tests/turns`, unchanged.
//!
//! The harness recognises the store from this program's name. Two modules contain the tests for one store only, each with its reason; a
//! test in tidy compares the two lists of modules.

#[path = "../turns/additions.rs"]
mod additions;
#[path = "../turns/bad_input.rs"]
mod bad_input;
#[path = "../turns/boxes.rs"]
mod boxes;
#[path = "../turns/core.rs"]
mod core;
#[path = "../turns/deliver.rs"]
mod deliver;
#[path = "../turns/enqueue.rs"]
mod enqueue;
#[path = "../turns/keys.rs"]
mod keys;
#[path = "../turns/models.rs"]
mod models;
#[path = "../turns/operations.rs"]
mod operations;
#[path = "../turns/recovery.rs"]
mod recovery;
#[path = "../turns/report.rs"]
mod report;
#[path = "../turns/states.rs"]
mod states;
#[path = "../turns/support.rs"]
mod support;
#[path = "../turns/tool_calls.rs"]
mod tool_calls;
#[path = "../turns/wakeup.rs"]
mod wakeup;

mod only_postgres;
