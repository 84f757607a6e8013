//! The HTTP client of the commands.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::target::Target;

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The time limit for an answer.
const ANSWER: Duration = Duration::from_secs(60);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// No server answers.
    #[error("no server answers at {url} (from {found_in}): {why}; start one with `windlass dev`, or name another with --server")]
    Unreachable { url: String, found_in: String, why: String },
    /// The token is missing, unknown, or lacks a scope.
    #[error("the server does not allow this: {message}{}", after(.hint.as_deref()))]
    NotAllowed { message: String, hint: Option<String> },
    /// Another person, or the deadline, was first.
    #[error("{message}: {action} by {by} at {at}")]
    AlreadyAnswered { message: String, action: String, by: String, at: String },
    /// The server refused for another reason.
    #[error("the server answered {status}: {message}{}", after(.hint.as_deref()))]
    Refused { status: u16, message: String, hint: Option<String> },
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

/// The hint as it follows a message; empty if there is none.
fn after(hint: Option<&str>) -> String {
    hint.map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// A client of one server.
pub(crate) struct Client {
    http: reqwest::Client,
    target: Target,
}

/// An answer: its bytes as received, and the parsed JSON.
pub(crate) struct Answer {
    pub text: String,
    pub json: Value,
}

impl Client {
    pub fn new(target: Target) -> Result<Self, CliError> {
        // rustls supports several crypto providers, and the process must choose one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |error: reqwest::Error| CliError::Failed(format!("the HTTP client cannot be set up: {error}"));
        let url = reqwest::Url::parse(&target.url).map_err(|error| CliError::Usage(format!("{:?} is no address: {error}", target.url)))?;
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT).timeout(ANSWER);
        if is_local(&url) {
            // A proxy from the environment does not lead back to this machine.
            http = http.no_proxy();
        }
        Ok(Client { http: http.build().map_err(failed)?, target })
    }

    /// Sends a GET and returns the answer.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Answer, CliError> {
        let pairs: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let path = if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) };
        self.send(Method::GET, &path, None, None).await
    }

    /// Sends a POST and returns the answer. A request that is repeated with the same `key` takes effect once.
    pub async fn post(&self, path: &str, body: String, key: &str) -> Result<Answer, CliError> {
        self.send(Method::POST, path, Some(body), Some(key)).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<String>, key: Option<&str>) -> Result<Answer, CliError> {
        let mut request = self.http.request(method, format!("{}{path}", self.target.url));
        if let Some(token) = &self.target.token {
            request = request.bearer_auth(token);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        if !status.is_success() {
            return Err(refusal(status.as_u16(), &text));
        }
        let json = serde_json::from_str(&text).map_err(|error| {
            CliError::Failed(format!(
                "{} answered something else than JSON, so it is probably no Windlass server: {error}",
                self.target.url
            ))
        })?;
        Ok(Answer { text, json })
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        // The innermost cause says what happened; the outer ones only repeat the address.
        let mut why: &dyn std::error::Error = error;
        while let Some(source) = why.source() {
            why = source;
        }
        CliError::Unreachable { url: self.target.url.clone(), found_in: self.target.source.clone(), why: why.to_string() }
    }
}

fn is_local(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Maps an error answer to an error.
pub(crate) fn refusal(status: u16, body: &str) -> CliError {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |name: &str| body["error"][name].as_str().map(super::text::clean);
    let known = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("an error");
    let message = text("message").unwrap_or_else(|| known.to_owned());
    match status {
        // The server's hint names the header, which does not help on a command line.
        401 => CliError::NotAllowed { message, hint: Some("set WINDLASS_TOKEN, or name a file with --token-file".to_owned()) },
        403 => CliError::NotAllowed { message, hint: text("hint") },
        409 if body["error"]["code"] == "already_answered" => {
            let detail = |name| text(name).unwrap_or_else(|| "-".to_owned());
            CliError::AlreadyAnswered { action: detail("action"), by: detail("by"), at: detail("at"), message }
        }
        _ => CliError::Refused { status, message, hint: text("hint") },
    }
}

/// A value for a query: all but letters, digits and a few punctuation characters is percent-encoded.
fn encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    value.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_the_servers_message() {
        let body = r#"{"error":{"code":"unknown_turn","message":"there is no such run","hint":"look again"}}"#;
        assert_eq!(refusal(404, body).to_string(), "the server answered 404: there is no such run; look again");
        assert_eq!(refusal(502, "<html>").to_string(), "the server answered 502: Bad Gateway");
        assert!(refusal(401, "{}").to_string().contains("WINDLASS_TOKEN"));
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encoded("a b&c=é"), "a%20b%26c%3D%C3%A9");
    }
}
