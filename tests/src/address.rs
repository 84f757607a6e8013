//! The listen address of a test's server.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// An address that is reserved for one server: the system does not give the port to another process, even while the server is down.
/// Otherwise a client that reconnects to a dead server could reach the next server that got the same port, and be taken for a client of
/// that one.
pub struct Address {
    at: SocketAddr,
    /// Bound, but not listening.
    _held: TcpSocket,
}

impl Address {
    /// Reserves a free port of this machine.
    #[expect(clippy::new_without_default, reason = "an address is taken from the system, it has no default")]
    pub fn new() -> Self {
        let held = TcpSocket::new_v4().expect("a socket");
        // The servers set the same option, so that both can bind the port.
        held.set_reuseaddr(true).expect("an address can be shared");
        held.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        Address { at: held.local_addr().expect("it has an address"), _held: held }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.at.port()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}
