//! `server`: the address, the limits of connections, and the drain.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use windlass_doors::{Hosts, Network, PeerRules};

use crate::tls::TlsFiles;

use super::{
    error::{ConfigError, Origin},
    reader::{Field, Keys, Section},
    sections::elements,
};

pub(super) const SERVER: Keys = Keys {
    known: &["listen", "behind_proxy", "proxies", "hosts", "connections", "connections_per_peer", "drain_s", "head", "body", "tls"],
    later: &[],
};

const TLS: Keys = Keys { known: &["cert", "key"], later: &[] };

/// The settings of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// `behind_proxy` and `proxies`: whether a proxy with TLS stands in front, so that the address need not be loopback, and which
    /// proxies are believed when they name their clients.
    pub peers: PeerRules,
    /// Names that requests may have in their `Host` header, in lower case.
    pub hosts: Vec<String>,
    /// Connections that may be open.
    pub connections: usize,
    /// Connections per peer; `None` is 1,000, and unlimited for peers on this machine.
    pub connections_per_peer: Option<usize>,
    /// `drain_s`: how long the server lets running calls finish when it stops.
    pub drain: Duration,
    /// The time limit for a client to send the head of a request.
    pub head: Duration,
    /// The time limit for a client to send the body of a request.
    pub body: Duration,
    /// Certificate and key; with them the server speaks HTTPS and may listen on any address.
    pub tls: Option<TlsFiles>,
}

impl Server {
    /// Sets the address of the option `--listen`, with the same checks as the file's.
    pub fn set_listen(&mut self, text: &str) -> Result<(), ConfigError> {
        let fail = |message| ConfigError { origin: Origin::Flag("--listen"), message };
        let address = text.parse().map_err(|_| fail(format!("expected {ADDRESS_WANTED}, found {text:?}")))?;
        check_address(address, self.peers.behind_proxy || self.tls.is_some()).map_err(fail)?;
        self.listen = address;
        Ok(())
    }

    /// The URL for clients on this machine of a server that listens on `address`. With TLS it has the first of `hosts`, if there is one,
    /// because a certificate is issued for a name rather than for an address.
    pub fn url(&self, address: SocketAddr) -> String {
        let (scheme, name) = match &self.tls {
            Some(_) => ("https", self.hosts.first()),
            None => ("http", None),
        };
        if let Some(name) = name {
            return format!("{scheme}://{name}:{}", address.port());
        }
        let ip = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7600),
            peers: PeerRules::default(),
            hosts: Vec::new(),
            connections: 10_000,
            connections_per_peer: None,
            drain: Duration::from_secs(10),
            head: Duration::from_secs(30),
            body: Duration::from_secs(60),
            tls: None,
        }
    }
}

pub(super) fn read_server(mut section: Section) -> Result<Server, ConfigError> {
    let default = Server::default();
    let behind_proxy = section.read_or("behind_proxy", false, Field::flag)?;
    let proxies = read_proxies(section.take("proxies"), behind_proxy)?;
    let tls = section.take("tls").map(read_tls).transpose()?;
    let drain_s: u32 = section.read_or("drain_s", 10, |field| field.whole(0))?;
    let listen = section.read_or("listen", default.listen, |field| {
        let address = field.text()?.parse().map_err(|_| field.expected(ADDRESS_WANTED))?;
        check_address(address, behind_proxy || tls.is_some()).map_err(|message| field.fail(message))?;
        Ok(address)
    })?;
    Ok(Server {
        listen,
        peers: PeerRules { behind_proxy, proxies },
        hosts: elements(section.take("hosts"))?.iter().map(read_host).collect::<Result<_, _>>()?,
        connections: section.read_or("connections", default.connections, |field| field.whole(1))?,
        connections_per_peer: section.read("connections_per_peer", |field| field.whole(1))?,
        drain: Duration::from_secs(drain_s.into()),
        head: section.read_or("head", default.head, Field::duration)?,
        body: section.read_or("body", default.body, Field::duration)?,
        tls,
    })
}

fn read_tls(field: Field) -> Result<TlsFiles, ConfigError> {
    let mut section = field.section(&TLS)?;
    Ok(TlsFiles { cert: section.require("cert")?.some_text()?.into(), key: section.require("key")?.some_text()?.into() })
}

/// Reads the addresses of the proxies whose information about their clients is trusted.
fn read_proxies(field: Option<Field>, behind_proxy: bool) -> Result<Vec<Network>, ConfigError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    if !behind_proxy {
        return Err(field.fail("only a server with server.behind_proxy: true has proxies"));
    }
    let network = |field: Field| field.text()?.parse().map_err(|_| field.expected("an IP address or a network such as 10.1.0.0/16"));
    elements(Some(field))?.into_iter().map(network).collect()
}

/// Reads a host name that clients use for the server.
fn read_host(field: &Field) -> Result<String, ConfigError> {
    let text = field.text()?;
    let name = Hosts::name_of(&text).filter(|name| name.len() == text.trim_end_matches('.').len());
    name.ok_or_else(|| field.expected("a host without a port, such as agents.example.com"))
}

/// A description of a valid address, for errors.
const ADDRESS_WANTED: &str = "an IP address with a port, such as 127.0.0.1:7600";

/// Refuses plain HTTP on addresses that other machines can reach, because tokens would travel unencrypted.
fn check_address(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if address.ip().to_canonical().is_loopback() || has_tls {
        return Ok(());
    }
    Err(format!(
        "{address} can be reached from other machines without TLS; listen on {}:{}, set server.tls, or put a proxy with TLS in \
         front and set server.behind_proxy: true",
        Ipv4Addr::LOCALHOST,
        address.port()
    ))
}
