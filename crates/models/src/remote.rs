//! What providers over HTTP have in common, whatever their protocol: address, key, and HTTP client.
//!
//! A call is one POST with a streamed answer. Nothing is retried here and nothing survives the stream: dropping it closes the request.
//! Redirects are not followed, because they could send the key to another server.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc, time::Duration};

use reqwest::{
    Client, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde_json::Value;
use windlass_ports::{Model, ModelRequest, ModelStream};

use crate::{
    exchange::{Answer, Exchange},
    upstream::Upstream,
};

/// The configuration of one provider.
#[derive(Clone)]
pub struct RemoteConfig {
    /// The name of the provider in error messages.
    pub name: String,
    /// The address before the path that the protocol appends.
    pub base_url: String,
    /// The API key, if the server needs one.
    pub api_key: Option<String>,
    /// The provider's name of the model. `None` sends the name that the run asked for.
    pub model: Option<String>,
    /// Calls that may be open at the same time, over all models with the same address and protocol.
    pub concurrency: usize,
    /// Milliseconds in which a connection must be open.
    pub connect_timeout_ms: u64,
    /// Milliseconds in which the answer must begin.
    pub first_byte_timeout_ms: u64,
    /// Milliseconds between two events of an answer.
    pub idle_timeout_ms: u64,
    /// The configuration's path of this provider, such as `models[0]`, for error messages.
    pub setting: Option<String>,
    /// Whether the model can continue a text that it is given as the beginning of its answer.
    pub prefill: bool,
    /// Additional headers of every request.
    pub headers: BTreeMap<String, String>,
}

impl RemoteConfig {
    /// A configuration with this crate's defaults.
    pub fn new(name: impl Into<String>, base_url: impl Into<String>) -> Self {
        RemoteConfig {
            name: name.into(),
            base_url: base_url.into(),
            api_key: None,
            model: None,
            concurrency: 64,
            connect_timeout_ms: 10_000,
            first_byte_timeout_ms: 600_000,
            idle_timeout_ms: 120_000,
            setting: None,
            prefill: false,
            headers: BTreeMap::new(),
        }
    }
}

/// Hides the key and the values of headers, which may contain keys too.
impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("name", &self.name)
            .field("base_url", &place_of(&self.base_url))
            .field("api_key", &self.api_key.as_ref().map(|_| "[hidden]"))
            .field("model", &self.model)
            .field("concurrency", &self.concurrency)
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .field("first_byte_timeout_ms", &self.first_byte_timeout_ms)
            .field("idle_timeout_ms", &self.idle_timeout_ms)
            .field("setting", &self.setting)
            .field("prefill", &self.prefill)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The address is not an HTTP address.
    #[error("the base_url of {name} is not an http or https address")]
    BaseUrl {
        /// The name of the provider.
        name: String,
    },
    /// The key or a header has characters that a header cannot contain.
    #[error("{what} of {name} cannot be sent as a header")]
    Header {
        /// The name of the provider.
        name: String,
        /// The name of the header, or "the key"; never the value.
        what: String,
    },
    /// No process-wide TLS provider is installed. The binary must install one at its start.
    #[error("no TLS provider is installed in this process")]
    NoTlsProvider,
    /// The HTTP client cannot be built.
    #[error("cannot make an HTTP client for {name}")]
    Client {
        /// The name of the provider.
        name: String,
        /// The cause.
        source: reqwest::Error,
    },
}

/// A protocol: how requests are written and answers are read.
pub trait Protocol: Send + Sync + 'static {
    /// Assembles an answer.
    type Answer: Answer;

    /// The segments of the path below the base address.
    const PATH: &'static [&'static str];
    /// The header that carries the key.
    const KEY: Key;
    /// The headers of every request.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// The body of a request. `model` is the provider's name of the model.
    fn body(request: &ModelRequest, model: &str) -> Value;

    /// A new, empty answer for this iteration.
    fn answer(iteration: u32) -> Self::Answer;

    /// Whether the model can be asked to continue this text.
    fn takes_prefill(_text: &str) -> bool {
        true
    }
}

/// The header that carries the key.
#[derive(Clone, Copy)]
pub enum Key {
    /// `authorization: Bearer …`
    Bearer,
    /// A header with this name, whose value is the key itself.
    Header(&'static str),
}

/// A model of a provider with the protocol `P`.
pub struct Remote<P> {
    client: Client,
    endpoint: Url,
    headers: HeaderMap,
    model: Option<String>,
    concurrency: usize,
    prefill: bool,
    upstream: Arc<Upstream>,
    protocol: PhantomData<P>,
}

impl<P: Protocol> Remote<P> {
    /// Builds the HTTP client. No connection is opened before the first call.
    pub fn new(config: RemoteConfig) -> Result<Self, ConfigError> {
        // The HTTP client panics without a TLS provider, and a library should return an error instead.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(ConfigError::NoTlsProvider);
        }
        let endpoint = endpoint(&config, P::PATH)?;
        let headers = headers::<P>(&config)?;
        let mut client =
            Client::builder().redirect(redirect::Policy::none()).connect_timeout(Duration::from_millis(config.connect_timeout_ms));
        if is_loopback(&endpoint) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|source| ConfigError::Client { name: config.name.clone(), source })?;
        let RemoteConfig { name, api_key, model, concurrency, prefill, headers: more, setting, .. } = config;
        let upstream = Arc::new(Upstream {
            name,
            url: place_of(endpoint.as_str()),
            setting,
            first_byte: Duration::from_millis(config.first_byte_timeout_ms),
            idle: Duration::from_millis(config.idle_timeout_ms),
            secrets: api_key.into_iter().chain(more.into_values()).collect(),
        });
        Ok(Remote { client, endpoint, headers, model, concurrency, prefill, upstream, protocol: PhantomData })
    }
}

impl<P: Protocol> Model for Remote<P> {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let body = P::body(&request, self.model.as_deref().unwrap_or(&request.model));
        let http = self.client.post(self.endpoint.clone()).headers(self.headers.clone()).body(body.to_string());
        Exchange::start(Arc::clone(&self.upstream), http, P::answer(request.iteration))
    }

    fn provider(&self) -> &str {
        &self.upstream.name
    }

    fn line(&self) -> &str {
        self.endpoint.as_str()
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn takes_prefill(&self, text: &str) -> bool {
        self.prefill && P::takes_prefill(text)
    }
}

/// Leaves out the address and the headers: both may contain secrets.
impl<P> fmt::Debug for Remote<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.upstream.name).field("model", &self.model).finish_non_exhaustive()
    }
}

fn endpoint(config: &RemoteConfig, path: &[&str]) -> Result<Url, ConfigError> {
    let bad = || ConfigError::BaseUrl { name: config.name.clone() };
    let mut url = Url::parse(config.base_url.trim()).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad());
    }
    // Some configurations have the version in the address and some do not.
    let is_given = path.first().is_some_and(|first| *first == "v1" && url.path().trim_end_matches('/').ends_with("/v1"));
    let path = if is_given { &path[1..] } else { path };
    // The path is extended by segments, so that a query, which some gateways need, stays at its end.
    url.path_segments_mut().map_err(|()| bad())?.pop_if_empty().extend(path);
    Ok(url)
}

fn headers<P: Protocol>(config: &RemoteConfig) -> Result<HeaderMap, ConfigError> {
    let bad = |what: String| ConfigError::Header { name: config.name.clone(), what };
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in P::HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = &config.api_key {
        let (name, shown) = match P::KEY {
            Key::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
            Key::Header(name) => (HeaderName::from_static(name), key.clone()),
        };
        let value = HeaderValue::from_str(&shown).map_err(|_| bad("the api_key".to_owned()))?;
        headers.insert(name, secret(value));
    }
    for (name, value) in &config.headers {
        let invalid = || bad(format!("the header {name}"));
        let value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, secret(value));
    }
    Ok(headers)
}

/// Marks the value as sensitive, so that the HTTP client's logs leave it out.
fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Whether the server is on this machine. It is then never reached through the proxy in the environment.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Scheme, host, port and path of an address. The other parts may contain secrets.
fn place_of(url: &str) -> String {
    let Ok(mut url) = Url::parse(url.trim()) else {
        return "[not an address]".to_owned();
    };
    url.set_query(None);
    // These calls fail only for an address without a host, which has no user and no password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anthropic::Messages;

    #[test]
    fn debug_output_hides_what_may_be_secret() {
        let mut config = RemoteConfig::new("p", "https://me:word@example.org/v1?key=k-3");
        config.api_key = Some("sk-1".to_owned());
        config.headers.insert("x-team".to_owned(), "t-2".to_owned());
        let shown = format!("{config:?}");
        for secret in ["sk-1", "t-2", "word", "k-3"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("x-team") && shown.contains("https://example.org/v1"), "{shown}");
    }

    #[test]
    fn the_endpoint_is_below_the_base_url() {
        let of = |base: &str| endpoint(&RemoteConfig::new("p", base), &["chat", "completions"]).map(String::from);
        assert_eq!(of("http://h/v1").unwrap(), "http://h/v1/chat/completions");
        assert_eq!(of("http://h/v1/").unwrap(), "http://h/v1/chat/completions");
        assert_eq!(of("https://h?v=1").unwrap(), "https://h/chat/completions?v=1");
        for bad in ["", "h/v1", "ftp://h/v1", "http://"] {
            assert!(matches!(of(bad), Err(ConfigError::BaseUrl { .. })), "{bad}");
        }
    }

    #[test]
    fn a_version_is_not_put_behind_an_address_that_ends_with_it() {
        for base in ["http://h", "http://h/", "http://h/v1", "http://h/v1/"] {
            let url = endpoint(&RemoteConfig::new("p", base), &["v1", "messages"]).map(String::from);
            assert_eq!(url.unwrap(), "http://h/v1/messages", "{base}");
        }
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_refused_without_being_shown() {
        let mut config = RemoteConfig::new("p", "http://h");
        config.api_key = Some("sk\n1".to_owned());
        let error = headers::<Messages>(&config).unwrap_err();
        assert_eq!(error.to_string(), "the api_key of p cannot be sent as a header");
    }

    #[test]
    fn a_process_without_tls_gets_an_error() {
        let made = Remote::<Messages>::new(RemoteConfig::new("p", "http://h"));
        assert!(matches!(made, Err(ConfigError::NoTlsProvider)), "{made:?}");
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let loopback = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(loopback("http://127.0.0.1:1/") && loopback("http://[::1]/") && loopback("http://localhost/"));
        assert!(!loopback("http://example.org/") && !loopback("http://10.0.0.1/"));
    }
}
