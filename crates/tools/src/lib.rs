//! MCP tool servers: those of the configuration, over Streamable HTTP or as child processes, and those that a request declares, over
//! Streamable HTTP.
//!
//! The official crate implements the protocol. This crate adds which addresses a request may name (`egress`), how its credentials are
//! stored (`seal`, `secrets`, `headers`), how much a server may send (`http`), that a process ends with all its children (`process`), that
//! the runs of a tenant share one session (`pool`, `single_flight`), and how answers become results (`outcome`).
//!
//! Deliberately absent: retries of a call that may have reached the server, since the kernel decides about a second start; and requests of
//! a server to us, such as sampling or a person's input.

mod egress;
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
mod single_flight;
mod webhook;

pub use egress::{Allowed, BadAllowed, Egress};
pub use headers::check_header;
pub use seal::{Seal, SealError};
pub use servers::{Limits, ServerConfig, Servers, SetupError};
pub use webhook::Webhook;

/// Why a server cannot be used. The caller adds the server's label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    /// A request may not name this address.
    Refused(String),
    /// The server failed. The message contains no secrets.
    Failed(String),
    /// No request was sent, because too many sessions are open.
    Busy(String),
}
