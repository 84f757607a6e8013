//! The engine over real stores, with models, tools, publishers and faults that each test scripts.
//!
//! Time is tokio's, and paused: it advances only when no task can run, so `settle` waits for everything that can happen.
#![expect(clippy::unwrap_used, reason = "these are tests: a panic is how they fail")]

mod approvals;
mod bells;
mod children;
mod costs;
mod doorbell;
mod drain;
mod erase;
mod facts;
mod iterations;
mod known;
mod leases;
mod limits;
mod notices;
mod outbox;
mod panics;
mod provider;
mod repeats;
mod requests;
mod retention;
mod retries;
mod steering;
mod stop;
mod store_faults;
mod support;
mod takeover;
mod usage;
