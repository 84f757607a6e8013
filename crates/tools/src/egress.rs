//! Restricts the addresses to which a request can make this process connect.
//!
//! A name is resolved here, every address behind it is checked, and the connection goes to the checked addresses: an attacker who controls
//! the name cannot answer the check with one address and the connection with another.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Bytes of a URL that a request may name.
const URL_BYTES_MAX: usize = 2048;

/// The rules for outgoing connections: the public internet, and what the operator allows beyond it.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    hosts: BTreeSet<String>,
    networks: Vec<Network>,
}

impl Egress {
    /// Allows `allowed` and all public addresses.
    pub fn new(allowed: impl IntoIterator<Item = Allowed>) -> Self {
        let mut egress = Egress::default();
        for allowed in allowed {
            match allowed {
                Allowed::Host(host) => drop(egress.hosts.insert(host)),
                Allowed::Network { address, prefix } => egress.networks.push(Network { address, prefix }),
            }
        }
        egress
    }

    /// Checks a URL of a request as far as possible without resolving its name.
    pub(crate) fn check_url(&self, text: &str) -> Result<Url, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("it is longer than {URL_BYTES_MAX} bytes"));
        }
        // The parser's error is not repeated: it does not help, and the text may contain a password.
        let url = Url::parse(text).map_err(|_| "it is not a URL".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("only http and https are spoken".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("credentials belong in headers, not in the address".to_owned());
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("it has no host")?;
        if let Some(ip) = literal(host) {
            self.check(host, ip)?;
        }
        Ok(url)
    }

    /// Resolves the name of a URL that [`Egress::check_url`] accepted, and checks that every address is allowed.
    pub(crate) async fn check_names(&self, url: &Url) -> Result<(), String> {
        let host = url.host_str().ok_or("it has no host")?;
        match literal(host) {
            Some(ip) => self.check(host, ip),
            None => self.resolve(host).await.map(drop),
        }
    }

    async fn resolve(&self, host: &str) -> Result<Vec<SocketAddr>, String> {
        // All refused names get one message: a request must not learn which names exist in this network, nor what they resolve to.
        let refused = || format!("{host} does not resolve to addresses that may be used: they must be public, or in egress.allow");
        // The port 0 is a placeholder; the connector uses the URL's.
        let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => found.collect(),
            Err(error) => {
                tracing::debug!(host, %error, "the name of a declared tool server cannot be resolved");
                return Err(refused());
            }
        };
        // One forbidden address is enough to refuse the name, since the HTTP client chooses which address it connects to.
        if let Some(address) = found.iter().find(|address| !self.admits(host, address.ip())) {
            tracing::debug!(host, address = %address.ip(), "the name of a declared tool server resolves to an address that is not public");
            return Err(refused());
        }
        Ok(found)
    }

    fn check(&self, host: &str, ip: IpAddr) -> Result<(), String> {
        match self.admits(host, ip) {
            true => Ok(()),
            false => Err(format!("{host} is not a public address, and egress.allow does not have it")),
        }
    }

    /// Whether a request may make this process connect to `ip`, under the name that it gives.
    fn admits(&self, host: &str, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let named = self.hosts.contains(&host.trim_end_matches('.').to_ascii_lowercase());
        named || is_public(ip) || self.networks.iter().any(|network| network.has(ip))
    }
}

/// Refuses to send credentials without TLS, except to this machine: others on the way could read them.
pub(crate) fn check_credentials(url: &Url) -> Result<(), String> {
    let is_near = |host: &str| match literal(host) {
        Some(ip) => ip.to_canonical().is_loopback(),
        None => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    };
    match url.scheme() == "https" || url.host_str().is_some_and(is_near) {
        true => Ok(()),
        false => {
            Err("`authorization` and `headers` are sent over https:// only, or to a loopback address; use https://, or leave them out"
                .to_owned())
        }
    }
}

/// The IP address, if the host is one and not a name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// A DNS resolver that gives the HTTP client only allowed addresses.
pub(crate) struct Guard(pub(crate) Arc<Egress>);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let egress = self.0.clone();
        Box::pin(async move { Ok(Box::new(egress.resolve(name.as_str()).await?.into_iter()) as Addrs) })
    }
}

/// One entry of `egress.allow`: a host, an address, or a network such as `10.1.0.0/16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A host name in lower case, whatever it resolves to.
    Host(String),
    /// A network: all addresses that share its first bits.
    Network {
        /// An address in the network.
        address: IpAddr,
        /// The number of bits that the addresses share.
        prefix: u8,
    },
}

/// The text is not an entry of `egress.allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a host, an IP address or a network such as 10.1.0.0/16")]
pub struct BadAllowed;

impl FromStr for Allowed {
    type Err = BadAllowed;

    fn from_str(text: &str) -> Result<Self, BadAllowed> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| BadAllowed)?)),
            None => (text, None),
        };
        if let Some(address) = literal(address) {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.unwrap_or(bits);
            return if prefix <= bits { Ok(Allowed::Network { address, prefix }) } else { Err(BadAllowed) };
        }
        let host = text.trim_end_matches('.').to_ascii_lowercase();
        let label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        // Numbers with dots that are no valid address are a typing mistake, not a name.
        let is_number = host.chars().all(|c| c.is_ascii_digit() || c == '.');
        if prefix.is_none() && !is_number && host.len() <= 253 && host.split('.').all(label) {
            Ok(Allowed::Host(host))
        } else {
            Err(BadAllowed)
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Host(host) => f.write_str(host),
            Allowed::Network { address, prefix } => write!(f, "{address}/{prefix}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    fn has(&self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(ours), IpAddr::V4(ip)) => same_start(ours.into(), ip.into(), self.prefix.into(), 32),
            (IpAddr::V6(ours), IpAddr::V6(ip)) => same_start_wide(ours.into(), ip.into(), self.prefix),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn same_start(one: u32, other: u32, prefix: u32, bits: u32) -> bool {
    (one ^ other).checked_shr(bits - prefix).unwrap_or(0) == 0
}

fn same_start_wide(one: u128, other: u128, prefix: u8) -> bool {
    (one ^ other).checked_shr(128 - u32::from(prefix)).unwrap_or(0) == 0
}

/// Whether the address belongs to the public internet.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// IPv4 networks that are not public: private, reserved or special ones.
const CLOSED_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    // Carrier-grade NAT; some clouds have their metadata service there.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata service of clouds at 169.254.169.254.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    // A public number, but inside of every virtual machine on Azure it is Azure's own service.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !CLOSED_V4.iter().any(|(network, prefix)| same_start((*network).into(), ip.into(), *prefix, 32))
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let [high, low] = [g, h].map(u16::to_be_bytes);
    let inner = Ipv4Addr::new(high[0], high[1], low[0], low[1]);
    // An IPv4 address inside an IPv6 address is checked as the IPv4 address.
    if (a, b, c, d, e, f) == (0, 0, 0, 0, 0, 0xffff) || (a, b, c, d, e, f) == (0x64, 0xff9b, 0, 0, 0, 0) {
        return is_public_v4(inner);
    }
    // Only this eighth of the address space is assigned to the internet, except for a few parts: tunnels that hide an IPv4 address, and
    // documentation.
    let given_out = a & 0xe000 == 0x2000;
    let is_tunnel = a == 0x2002 || (a == 0x2001 && b < 0x0200);
    let is_documentation = (a, b) == (0x2001, 0x0db8) || (a == 0x3fff && b < 0x1000);
    given_out && !is_tunnel && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(allowed: &[&str]) -> Egress {
        Egress::new(allowed.iter().map(|text| text.parse().expect("an entry")))
    }

    #[test]
    fn addresses_that_are_not_public_are_refused_in_every_spelling() {
        let inside = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            // Forms that URL parsers accept as IPv4: octal, hexadecimal, shortened, and a single number.
            "0177.0.0.1",
            "0x7f.1",
            "127.1",
            "2130706433",
            "0xa9fea9fe",
            "[::]",
            "[::1]",
            "[fd00:ec2::254]",
            "[fe80::1]",
            "[fc00::1]",
            "[ff02::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001:0:7f00:1::]",
            "[2001:db8::1]",
            "[fec0::1]",
        ];
        for host in inside {
            for url in [format!("http://{host}/mcp"), format!("https://{host}:8443/")] {
                let refused = egress(&[]).check_url(&url).expect_err(&url);
                assert!(refused.contains("egress.allow"), "{url}: {refused}");
            }
        }
        for host in
            ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "example.com", "localhost."]
        {
            egress(&[]).check_url(&format!("https://{host}/")).unwrap_or_else(|why| panic!("{host}: {why}"));
        }
    }

    #[test]
    fn what_is_no_plain_address_is_refused() {
        for (url, why) in [
            ("", "not a URL"),
            ("mcp", "not a URL"),
            ("http://", "not a URL"),
            ("ftp://example.com/", "only http"),
            ("file:///etc/passwd", "only http"),
            ("http://user:secret@example.com/", "credentials"),
            ("http://user@example.com/", "credentials"),
        ] {
            let refused = egress(&[]).check_url(url).expect_err(url);
            assert!(refused.contains(why) && !refused.contains("secret"), "{url}: {refused}");
        }
        let long = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX));
        assert!(egress(&[]).check_url(&long).is_err());
    }

    #[test]
    fn tm_16_credentials_go_over_http_to_loopback_alone() {
        let check = |url: &str| check_credentials(&Url::parse(url).expect("a URL"));
        for url in [
            "https://a.example/",
            "http://127.0.0.1:1/",
            "http://127.8.8.8/",
            "http://[::1]/",
            "http://LOCALHOST.:1/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert_eq!(check(url), Ok(()), "{url}");
        }
        for url in ["http://a.example/", "http://10.0.0.1/", "http://localhost.a.example/", "http://0.0.0.0/", "http://[fd00::1]/"] {
            let refused = check(url).expect_err(url);
            assert!(refused.contains("https://"), "{refused}");
        }
    }

    #[test]
    fn an_operator_opens_hosts_addresses_and_networks() {
        let egress = egress(&["127.0.0.1", "10.1.0.0/16", "fd00::/8", "Tools.Internal.", "0.0.0.0/32"]);
        for host in ["127.0.0.1", "10.1.200.3", "[fd12::1]", "[::ffff:10.1.0.1]", "0.0.0.0"] {
            egress.check_url(&format!("http://{host}/")).unwrap_or_else(|why| panic!("{host}: {why}"));
        }
        for host in ["127.0.0.2", "10.2.0.1", "[fe80::1]", "169.254.169.254"] {
            assert!(egress.check_url(&format!("http://{host}/")).is_err(), "{host}");
        }
        assert_eq!(egress.check("tools.internal", Ipv4Addr::LOCALHOST.into()), Ok(()));
        assert!(egress.check("other.internal", Ipv4Addr::new(127, 0, 0, 2).into()).is_err());
    }

    #[test]
    fn an_entry_that_is_none_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0.0/x", "::/129", "http://host", "a b", "host/8", "256.1.1.1", "host:80", "a..b"] {
            assert_eq!(text.parse::<Allowed>(), Err(BadAllowed), "{text}");
        }
        assert_eq!("::1".parse::<Allowed>().expect("an address").to_string(), "::1/128");
        assert_eq!("0.0.0.0/0".parse::<Allowed>().expect("a network").to_string(), "0.0.0.0/0");
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_resolves_to() {
        let url = Url::parse("http://localhost:1/").expect("a URL");
        let refused = egress(&[]).check_names(&url).await.expect_err("it is this machine");
        assert!(refused.contains("localhost") && !refused.contains("127."), "{refused}");
        assert_eq!(egress(&["localhost"]).check_names(&url).await, Ok(()));
        assert_eq!(egress(&["127.0.0.1", "::1"]).check_names(&url).await, Ok(()));
    }

    #[tokio::test]
    async fn tm_23_a_name_that_exists_is_refused_in_the_words_for_one_that_does_not() {
        let refused = async |host: &str, allowed: &[&str]| {
            let url = Url::parse(&format!("http://{host}:1/")).expect("a URL");
            egress(allowed).check_names(&url).await.expect_err("it is refused").replace(host, "HOST")
        };
        let exists = refused("localhost", &[]).await;
        assert_eq!(refused("nowhere.invalid", &[]).await, exists);
        assert_eq!(refused("nowhere.invalid", &["nowhere.invalid"]).await, exists);
    }

    #[tokio::test]
    async fn the_connection_itself_is_guarded() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://localhost:{}/", listener.local_addr().expect("it has an address").port());
        // Without the first check, as if the name had resolved to another address at that time.
        let ask = |egress: Egress| {
            let client = reqwest::Client::builder().no_proxy().dns_resolver(Guard(Arc::new(egress))).build().expect("a client");
            tokio::spawn(client.get(&url).send())
        };
        let refused = ask(egress(&[])).await.expect("it ends").expect_err("it is inside");
        assert!(refused.is_connect(), "{refused:?}");
        let allowed = ask(egress(&["localhost"]));
        listener.accept().await.expect("the allowed one comes, and is the first");
        allowed.abort();
    }
}
