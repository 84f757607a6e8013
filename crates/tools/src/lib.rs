//! Tool servers that speak MCP: those of the configuration, over Streamable HTTP or as processes of ours, and those a request
//! brings along, over Streamable HTTP.
//!
//! The protocol is the official crate's. Ours is what stands around it: which addresses a request may name (`egress`), how
//! its credentials are kept (`seal`, `secrets`, `headers`), how much a server may send (`http`), that a process ends with all it started (`process`), that the runs of a tenant share one session
//! (`pool`, `flight`), and how answers become results (`outcome`).
//!
//! What is deliberately absent: retries of a call that may have reached the server, since a second start is the kernel's
//! decision; and anything a server may ask of us in return, such as sampling or a person's input.

mod egress;
mod flight;
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod http;
mod outcome;
mod output;
mod pool;
mod process;
mod seal;
mod secrets;
mod servers;
mod session;

pub use egress::{Allowed, BadAllowed, Egress};
pub use headers::check_header;
pub use seal::{Seal, SealError};
pub use servers::{Limits, ServerConfig, Servers, SetupError};

/// Why a server is of no use. Its label is added where it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// Its address is not one that a request may name.
    Refused(String),
    /// It does not answer as it should: in words without secrets.
    Failed(String),
    /// It was not asked, because too many sessions are open.
    Busy(String),
}
