//! Where a server of a test listens.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// An address that is one server's, and nobody else's: the system gives the port away to no other, also while no server runs. Whoever
/// goes on knocking at a dead server's door would come in at the next one that got its port, and there be taken for that one's client.
pub struct Address {
    at: SocketAddr,
    /// Bound, but deaf.
    _held: TcpSocket,
}

impl Address {
    /// A free port of this machine.
    #[expect(clippy::new_without_default, reason = "an address is taken from the system, it has no default")]
    pub fn new() -> Self {
        let held = TcpSocket::new_v4().expect("a socket");
        // Servers ask for the same, and so they can both have it.
        held.set_reuseaddr(true).expect("an address can be shared");
        held.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        Address { at: held.local_addr().expect("it has an address"), _held: held }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.at.port()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}
