//! Hostile input for everything that reads bytes from outside. Each target takes any bytes and panics where a promise is broken: that every
//! reading ends, in an answer or in a refusal, and that what is stored is in proportion to the input.
//!
//! Each target returns whether the bytes were accepted as what they should be, so that a corpus that reaches nothing is noticed.
//!
//! The targets in `fuzz` search for such bytes; every test run reads their corpus again. Time is virtual, so that no wait takes long and
//! the same bytes always have the same outcome.

mod doors;
mod providers;
mod requests;
mod tool_servers;

use std::future::Future;

pub use doors::door_requests;
pub use providers::provider_streams;
pub use requests::responses_request;
pub use tool_servers::mcp_answers;

/// Reads any bytes, and returns whether they were accepted as what they should be.
pub type Target = fn(&[u8]) -> bool;

/// All targets, each with the name of its fuzz target.
pub const TARGETS: [(&str, Target); 4] = [
    ("responses_request", responses_request),
    ("door_requests", door_requests),
    ("provider_streams", provider_streams),
    ("mcp_answers", mcp_answers),
];

/// Longer input finds nothing that shorter input does not, and takes long.
const BYTES_MAX: usize = 64 << 10;

/// The separator between two parts of the bytes. No JSON has this byte.
const BETWEEN: u8 = 0;

/// Runs the future to its end, however much virtual time that takes.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be made").block_on(work)
}
