//! `server`: the address, what connections may take, and how the server stops.

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

/// `server`: the address, what connections may take, and how the server stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// `behind_proxy` and `proxies`: whether a proxy with TLS stands in front, so that the address need not be loopback, and which
    /// proxies are believed when they name their clients.
    pub peers: PeerRules,
    /// Names that requests may address the server by, in small letters.
    pub hosts: Vec<String>,
    /// How many connections may be open.
    pub connections: usize,
    /// How many of them one peer may have; `None` is 1,000, and no limit for peers on this machine.
    pub connections_per_peer: Option<usize>,
    /// How long running calls get when the server stops (`drain_s`).
    pub drain: Duration,
    /// How long a client may take to send the head of a request.
    pub head: Duration,
    /// How long it may take to send the body.
    pub body: Duration,
    /// Certificate and key; with them the server speaks HTTPS and may listen on any address.
    pub tls: Option<TlsFiles>,
}

impl Server {
    /// Takes the address of the option `--listen`, under the same rule as the file's.
    pub fn set_listen(&mut self, text: &str) -> Result<(), ConfigError> {
        let fail = |message| ConfigError { origin: Origin::Flag("--listen"), message };
        let address = text.parse().map_err(|_| fail(format!("expected {ADDRESS_WANTED}, found {text:?}")))?;
        check_address(address, self.peers.behind_proxy || self.tls.is_some()).map_err(fail)?;
        self.listen = address;
        Ok(())
    }

    /// Where clients on this machine reach the server that listens on `address`. A certificate is issued for a name rather than for an
    /// address, so that with TLS the first of `hosts` is used if there is one.
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

/// The addresses of proxies, whose word about their clients is taken.
fn read_proxies(field: Option<Field>, behind_proxy: bool) -> Result<Vec<Network>, ConfigError> {
    let Some(field) = field else { return Ok(Vec::new()) };
    if !behind_proxy {
        return Err(field.fail("only a server with server.behind_proxy: true has proxies"));
    }
    let network = |field: Field| field.text()?.parse().map_err(|_| field.expected("an IP address or a network such as 10.1.0.0/16"));
    elements(Some(field))?.into_iter().map(network).collect()
}

/// A name that clients use for the server.
fn read_host(field: &Field) -> Result<String, ConfigError> {
    let text = field.text()?;
    let name = Hosts::name_of(&text).filter(|name| name.len() == text.trim_end_matches('.').len());
    name.ok_or_else(|| field.expected("a host without a port, such as agents.example.com"))
}

/// What an address looks like, for errors.
const ADDRESS_WANTED: &str = "an IP address with a port, such as 127.0.0.1:7600";

/// Tokens travel in the clear over plain HTTP, so other machines reach the server through TLS only.
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
