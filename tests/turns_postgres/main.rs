//! What the turn machine promises, over the real binary, on PostgreSQL with NATS: the tests of `tests/turns`, word for word.
//!
//! The harness knows by this program's name where its servers belong. What runs on one store only is in the two modules that say so,
//! each with its reason; a test of tidy holds the two lists of modules together.

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
#[path = "../turns/look.rs"]
mod look;
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
#[path = "../turns/tool_calls.rs"]
mod tool_calls;
#[path = "../turns/wakeup.rs"]
mod wakeup;

mod only_postgres;
