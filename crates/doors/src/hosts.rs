//! Checks `Host` and `Origin`, so that a web page cannot reach a server that listens on loopback.
//!
//! For the browser, a page whose own name resolves to 127.0.0.1 (DNS rebinding) may send any request to that address. But the browser sends
//! the page's name as `Host`, and the page's origin when it opens a WebSocket.

use std::net::SocketAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, Uri, header, uri::Authority},
    response::Response,
};

use crate::{DoorState, auth::OPEN_PATHS, error::ApiError, spelling::shortened};

/// The names of this machine, as browsers and clients on it use them.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The names that a request may have in its `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The accepted names. `None` accepts any name.
    accepted: Option<Vec<String>>,
    /// The names of `server.hosts`. Pages on these hosts may open WebSockets.
    configured: Vec<String>,
}

impl Hosts {
    /// The names that a server on the address `listen` accepts. On loopback these are the names of this machine and the `configured` ones
    /// (`server.hosts`); elsewhere and behind a proxy only the configured ones, or any name if there are none.
    pub fn new(listen: SocketAddr, behind_proxy: bool, configured: Vec<String>) -> Self {
        let ip = listen.ip().to_canonical();
        let accepted = match (ip.is_loopback() && !behind_proxy, configured.is_empty()) {
            (true, _) => {
                let own = Authority::try_from(SocketAddr::new(ip, 0).to_string()).ok().map(|authority| authority.host().to_owned());
                Some(LOOPBACK_NAMES.map(str::to_owned).into_iter().chain(own).chain(configured.clone()).collect())
            }
            (false, false) => Some(configured.clone()),
            (false, true) => None,
        };
        Hosts { accepted, configured }
    }

    /// The host name in an authority such as `Example.com:7600`, in lower case and without the port.
    pub fn name_of(authority: &str) -> Option<String> {
        let parsed = authority.parse::<Authority>().ok().filter(|_| !authority.contains('@'))?;
        let name = parsed.host().trim_end_matches('.').to_ascii_lowercase();
        (!name.is_empty()).then_some(name)
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        if let Some(accepted) = &self.accepted {
            check_host(accepted, uri, headers)?;
        }
        if is_upgrade(headers) { self.check_origin(headers) } else { Ok(()) }
    }

    /// Refuses a page of another server. Clients other than browsers send no `Origin`.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = headers.get(header::HOST).and_then(|value| Hosts::name_of(value.to_str().ok()?));
        for value in headers.get_all(header::ORIGIN) {
            let text = value.to_str().unwrap_or_default();
            let name = text.split_once("://").and_then(|(_, authority)| Hosts::name_of(authority));
            let is_ours = name.as_ref().is_some_and(|name| {
                host.as_ref() == Some(name)
                    || self.configured.contains(name)
                    || self.accepted.as_ref().is_some_and(|all| all.contains(name))
            });
            if !is_ours {
                let message =
                    format!("pages of {} may not open WebSockets here; the operator can add the host to server.hosts", shortened(text));
                return Err(ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", message));
            }
        }
        Ok(())
    }
}

fn check_host(accepted: &[String], uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut given = headers.get_all(header::HOST).iter().map(|value| value.to_str().unwrap_or_default());
    let named = uri.authority().map(Authority::as_str);
    let (first, second) = (given.next(), given.next());
    let fail = |message: String| {
        let hint = "server.hosts lists the names of this server beside those of loopback";
        Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", message).hint(Some(hint.to_owned())))
    };
    if second.is_some() || (first.is_none() && named.is_none()) {
        return fail("the request needs one Host header".to_owned());
    }
    for authority in [first, named].into_iter().flatten() {
        if !Hosts::name_of(authority).is_some_and(|name| accepted.contains(&name)) {
            return fail(format!("this server does not serve the host {}", shortened(authority)));
        }
    }
    Ok(())
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::UPGRADE).iter().any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("websocket")))
}

/// The answer to a request for another host. Health checks are answered under any name, since they reveal nothing.
pub(crate) fn refusal(state: &DoorState, request: &Request) -> Option<Response> {
    if OPEN_PATHS.contains(&request.uri().path()) {
        return None;
    }
    let error = state.hosts.check(request.uri(), request.headers()).err()?;
    Some(crate::in_dialect(request.uri(), error))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const LOOPBACK: &str = "127.0.0.1:7600";
    const PUBLIC: &str = "0.0.0.0:7600";

    fn hosts(listen: &str, behind_proxy: bool, configured: &[&str]) -> Hosts {
        Hosts::new(listen.parse().expect("an address"), behind_proxy, configured.iter().map(|&name| name.to_owned()).collect())
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"));
        }
        headers
    }

    fn takes(hosts: &Hosts, pairs: &[(&'static str, &str)]) -> bool {
        hosts.check(&Uri::from_static("/v1/models"), &headers(pairs)).is_ok()
    }

    #[test]
    fn tm_15_on_loopback_only_names_of_this_machine_and_configured_ones_are_served() {
        let rules = hosts(LOOPBACK, false, &["agents.example.com"]);
        for host in ["localhost", "LocalHost:7600", "127.0.0.1:1", "[::1]", "[::1]:7600", "agents.example.com:443", "localhost."] {
            assert!(takes(&rules, &[("host", host)]), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7600", "localhost.evil.example", "127.0.0.1.evil.example", "", "a@localhost", "10.0.0.1", "::1"]
        {
            assert!(!takes(&rules, &[("host", host)]), "{host}");
        }
        assert!(!takes(&rules, &[]) && !takes(&rules, &[("host", "localhost"), ("host", "localhost")]));
        let absolute = |uri: &'static str| rules.check(&Uri::from_static(uri), &headers(&[("host", "localhost")])).is_ok();
        assert!(absolute("http://localhost:7600/metrics") && !absolute("http://evil.example/metrics"));
        assert!(takes(&hosts("127.8.8.8:1", false, &[]), &[("host", "127.8.8.8:1")]), "its own address");
    }

    #[test]
    fn tm_15_elsewhere_configured_names_count_if_there_are_any() {
        for rules in [hosts(LOOPBACK, true, &[]), hosts(PUBLIC, true, &[])] {
            assert!(takes(&rules, &[("host", "anything")]) && takes(&rules, &[]));
        }
        for rules in [hosts(LOOPBACK, true, &["a.example"]), hosts(PUBLIC, true, &["a.example"])] {
            assert!(takes(&rules, &[("host", "A.example:443")]) && !takes(&rules, &[("host", "b.example")]));
            assert!(!takes(&rules, &[("host", "localhost")]), "the proxy sends the public name");
        }
    }

    #[test]
    fn tm_15_a_page_of_another_server_opens_no_socket() {
        let upgrade = ("upgrade", "WebSocket");
        let rules = hosts(LOOPBACK, false, &["a.example"]);
        let host = ("host", "localhost:7600");
        for origin in ["http://localhost:7600", "http://localhost:3000", "http://127.0.0.1:7600", "https://a.example"] {
            assert!(takes(&rules, &[host, upgrade, ("origin", origin)]), "{origin}");
        }
        for origin in ["https://evil.example", "null", "", "file://", "http://localhost.evil.example", "http://localhost@evil.example"] {
            assert!(!takes(&rules, &[host, upgrade, ("origin", origin)]), "{origin}");
            assert!(takes(&rules, &[host, ("origin", origin)]), "without an upgrade nothing can be read: {origin}");
        }
        assert!(takes(&rules, &[host, upgrade]), "programs have no origin");
        let open = hosts(PUBLIC, true, &[]);
        assert!(takes(&open, &[("host", "a.example"), upgrade, ("origin", "https://a.example")]));
        assert!(!takes(&open, &[("host", "a.example"), upgrade, ("origin", "https://b.example")]));
    }
}
