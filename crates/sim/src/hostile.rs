//! Bytes that nobody should send, to everything that reads bytes of others. Each of these takes any bytes at all and panics where a
//! promise is broken: that every reading ends, in an answer or in a refusal, and that what is kept is in proportion to what was sent.
//!
//! Each says whether the bytes were taken for what they are meant to be, so that it shows if a corpus leads nowhere.
//!
//! The targets in `fuzz` look for such bytes; their corpus is read again with every test.
//! Time is virtual, so that no wait is long and the same bytes always lead to the same end.

mod doors;
mod providers;
mod requests;
mod tool_servers;

use std::future::Future;

pub use doors::door_requests;
pub use providers::provider_streams;
pub use requests::responses_request;
pub use tool_servers::mcp_answers;

/// Takes any bytes, and says whether they were taken for what they are meant to be.
pub type Target = fn(&[u8]) -> bool;

/// Everything that takes bytes, by the name of its target.
pub const TARGETS: [(&str, Target); 4] = [
    ("responses_request", responses_request),
    ("door_requests", door_requests),
    ("provider_streams", provider_streams),
    ("mcp_answers", mcp_answers),
];

/// More bytes than this lead nowhere that fewer do not, and take long.
const BYTES_MAX: usize = 64 << 10;

/// What stands between two parts of the bytes. No JSON has one.
const BETWEEN: u8 = 0;

/// Runs to the end, however far away in virtual time.
fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime can be made").block_on(work)
}
