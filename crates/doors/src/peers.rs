//! Finds the client that limits per peer count: the other end of the connection, or behind a proxy the client that the proxy names.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use axum::http::HeaderMap;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Bits of an IPv6 address that name a client's network. A client can usually use every address below them.
const IPV6_NETWORK_BITS: u8 = 64;

/// The IP addresses that share the first `prefix` bits. A single address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is neither an IP address nor a network such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a network such as 10.1.0.0/16")]
pub struct BadNetwork;

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().map_err(|_| BadNetwork)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadNetwork)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(BadNetwork) } else { Ok(Network { address, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    /// Whether the network contains the address. An IPv4 address inside an IPv6 address counts as the IPv4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(ip)) => {
                first_bits(ours.to_bits().into(), self.prefix, 32) == first_bits(ip.to_bits().into(), self.prefix, 32)
            }
            (IpAddr::V6(ours), IpAddr::V6(ip)) => {
                first_bits(ours.to_bits(), self.prefix, 128) == first_bits(ip.to_bits(), self.prefix, 128)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The first `prefix` of the lowest `width` bits of a number, shifted to the right.
fn first_bits(number: u128, prefix: u8, width: u8) -> u128 {
    number.checked_shr(u32::from(width - prefix)).unwrap_or(0)
}

/// The key by which limits per peer tell clients apart: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerKey(IpAddr);

impl PeerKey {
    /// The key of the client at the address `ip`.
    pub fn of(ip: IpAddr) -> Self {
        PeerKey(match ip.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS)),
            other @ (IpAddr::V4(_) | IpAddr::V6(_)) => other,
        })
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rules by which the client of a request is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerRules {
    /// `server.behind_proxy`: connections come from a proxy.
    pub behind_proxy: bool,
    /// `server.proxies`: the proxies whose `X-Forwarded-For` the server believes.
    pub proxies: Vec<Network>,
}

impl PeerRules {
    /// Whether all connections from `ip` belong to one client. Connections from a proxy carry many clients.
    pub fn is_client(&self, ip: IpAddr) -> bool {
        match self.behind_proxy {
            true => !self.proxies.is_empty() && !self.is_proxy(ip),
            false => true,
        }
    }

    /// The client of a request that came over a connection from `ip`. `None` if it cannot be determined; limits per peer then do not apply.
    pub(crate) fn client(&self, ip: IpAddr, headers: &HeaderMap) -> Option<PeerKey> {
        if self.is_client(ip) {
            return Some(PeerKey::of(ip));
        }
        if !self.is_proxy(ip) {
            return None;
        }
        // Each proxy appends the address that connected to it. Entries before the last one that a trusted proxy added were written by the
        // client and cannot be believed.
        let values: Vec<&str> = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
        let hops = values.iter().rev().flat_map(|value| value.rsplit(',')).map(|hop| address_of(hop.trim()));
        hops.map_while(|hop| hop).find(|hop| !self.is_proxy(*hop)).map(PeerKey::of)
    }

    fn is_proxy(&self, ip: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(ip))
    }
}

/// The address of a hop, which some proxies write with a port.
fn address_of(hop: &str) -> Option<IpAddr> {
    hop.parse().ok().or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn client(rules: &PeerRules, from: &str, forwarded: &[&str]) -> Option<String> {
        let value = |text: &&str| (HeaderName::from_static(FORWARDED_FOR), HeaderValue::from_str(text).expect("a header"));
        rules.client(ip(from), &forwarded.iter().map(value).collect()).map(|key| key.to_string())
    }

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        let network = |text: &str| text.parse::<Network>();
        for (text, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.3", "10.2.0.1"),
            ("127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("::/0", "::1", "1.2.3.4"),
        ] {
            let network = network(text).expect(text);
            assert!(network.contains(ip(inside)) && !network.contains(ip(outside)), "{text}");
        }
        for text in ["", "10.0.0.0/33", "::1/129", "host", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(network(text), Err(BadNetwork), "{text}");
        }
    }

    #[test]
    fn without_a_proxy_the_other_end_is_the_client_whatever_it_says() {
        assert_eq!(client(&PeerRules::default(), "1.2.3.4", &["9.9.9.9"]), Some("1.2.3.4".to_owned()));
        assert_eq!(client(&PeerRules::default(), "2001:db8::1:2:3:4", &[]), Some("2001:db8::".to_owned()), "a client has a network");
    }

    #[test]
    fn behind_a_proxy_the_last_hop_that_is_no_proxy_is_the_client() {
        let unnamed = PeerRules { behind_proxy: true, proxies: Vec::new() };
        assert_eq!(client(&unnamed, "10.0.0.1", &["9.9.9.9"]), None, "no proxy is configured as trusted");
        let proxies = vec!["10.0.0.0/24".parse().expect("a network")];
        let rules = PeerRules { behind_proxy: true, proxies };
        assert_eq!(client(&rules, "10.0.0.1", &["7.7.7.7, 9.9.9.9"]), Some("9.9.9.9".to_owned()));
        assert_eq!(client(&rules, "10.0.0.1", &["7.7.7.7", "9.9.9.9:4711, 10.0.0.2"]), Some("9.9.9.9".to_owned()));
        assert_eq!(client(&rules, "5.5.5.5", &["9.9.9.9"]), Some("5.5.5.5".to_owned()), "it came past the proxies");
        for forwarded in [&[][..], &["unknown"], &["9.9.9.9, nonsense"], &["10.0.0.2"]] {
            assert_eq!(client(&rules, "10.0.0.1", forwarded), None, "{forwarded:?}");
        }
    }
}
