//! The promises of the turn machine, with the real binary, on SQLite. `tests/turns_postgres` has the same on PostgreSQL.

mod additions;
mod bad_input;
mod boxes;
mod core;
mod deliver;
mod enqueue;
mod keys;
mod models;
mod only_sqlite;
mod operations;
mod recovery;
mod report;
mod states;
mod support;
mod tool_calls;
mod wakeup;
