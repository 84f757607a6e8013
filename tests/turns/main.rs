//! What the turn machine promises, over the real binary.

mod report;
mod deliver;
mod core;
mod look;
mod states;
mod boxes;
mod recovery;
mod enqueue;
mod wakeup;
mod tool_calls;
mod models;
mod bad_input;
mod operations;
