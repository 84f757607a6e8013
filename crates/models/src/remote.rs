//! What every server over HTTP has in common, whatever protocol it speaks: its address, its key, and a client for it.
//!
//! A call is one POST whose answer is streamed. Nothing is retried here and nothing survives the stream: dropping it closes
//! the request. Redirects are not followed, since they could carry the key somewhere else.

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

/// How one server is reached.
#[derive(Clone)]
pub struct RemoteConfig {
    /// The provider's name, for messages.
    pub name: String,
    /// The address up to and without what the protocol puts behind it.
    pub base_url: String,
    /// The key, if the server wants one.
    pub api_key: Option<String>,
    /// The model's name there. `None` sends the name the run asked for.
    pub model: Option<String>,
    /// How many calls the server takes at once, from all who have the same address and protocol.
    pub concurrency: usize,
    /// How long connecting may take.
    pub connect_timeout_ms: u64,
    /// How long a server may take until its answer begins.
    pub first_byte_timeout_ms: u64,
    /// How long a server may stay silent between two events of an answer.
    pub idle_timeout_ms: u64,
    /// Where the configuration has this server, such as `models[0]`, for messages.
    pub setting: Option<String>,
    /// Whether the model goes on from words that it is given as its own.
    pub prefill: bool,
    /// More headers for every request.
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

/// Hides the key and the values of headers, which may hold keys too.
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
    /// The address is none that requests can go to.
    #[error("the base_url of {name} is not an http or https address")]
    BaseUrl {
        /// The provider.
        name: String,
    },
    /// The key, or a header, has characters that a header cannot carry.
    #[error("{what} of {name} cannot be sent as a header")]
    Header {
        /// The provider.
        name: String,
        /// Which header, or the key; never its value.
        what: String,
    },
    /// No process-wide TLS provider is installed, which is the binary's duty at start.
    #[error("no TLS provider is installed in this process")]
    NoTlsProvider,
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client for {name}")]
    Client {
        /// The provider.
        name: String,
        /// Why not.
        source: reqwest::Error,
    },
}

/// What one protocol makes of a request and of its answer.
pub trait Protocol: Send + Sync + 'static {
    /// An answer in the making.
    type Answer: Answer;

    /// The path below the base address.
    const PATH: &'static [&'static str];
    /// How the key is shown.
    const KEY: Key;
    /// Headers that every request has.
    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    /// What is posted, to the model the server knows by that name.
    fn body(request: &ModelRequest, model: &str) -> Value;

    /// Who puts the answer of a lap together.
    fn answer(iteration: u32) -> Self::Answer;

    /// Whether an answer can be asked for that goes on from these words.
    fn takes_prefill(_words: &str) -> bool {
        true
    }
}

/// Where a key goes.
#[derive(Clone, Copy)]
pub enum Key {
    /// `authorization: Bearer …`
    Bearer,
    /// A header of its own, as it is.
    Header(&'static str),
}

/// A model behind a server of one protocol.
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
    /// Makes the client. Nothing is sent before the first call.
    pub fn new(config: RemoteConfig) -> Result<Self, ConfigError> {
        // The HTTP client panics without one, and a library should not bring a server down for its set-up.
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

    fn takes_prefill(&self, words: &str) -> bool {
        self.prefill && P::takes_prefill(words)
    }
}

/// Shows no address and no headers: both may hold secrets.
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
    // Some write the version with the address and some do not.
    let is_given = path.first().is_some_and(|first| *first == "v1" && url.path().trim_end_matches('/').ends_with("/v1"));
    let path = if is_given { &path[1..] } else { path };
    // By segments, so that a query some gateways need stays where it is.
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
        let told = || bad(format!("the header {name}"));
        let value = HeaderValue::from_str(value).map_err(|_| told())?;
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| told())?, secret(value));
    }
    Ok(headers)
}

/// Marked so that the client's own logs leave it out.
fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// A server on this machine is never behind the proxy that the environment names.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Scheme, host, port and path of an address: the rest may hold secrets.
fn place_of(url: &str) -> String {
    let Ok(mut url) = Url::parse(url.trim()) else {
        return "[not an address]".to_owned();
    };
    url.set_query(None);
    // Only an address without a host refuses these, and has no use for them.
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
    fn a_process_without_tls_is_told_so() {
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
