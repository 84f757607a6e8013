//! The headers that a server gets with every request.

use std::fmt;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};

/// Headers per server.
const HEADERS_MAX: usize = 64;
/// Bytes of all headers of a server.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Shorter values are not hidden in messages: they occur in too many ordinary texts.
const HIDDEN_LETTERS_MIN: usize = 6;

/// Headers that the protocol or the connection sets.
const RESERVED: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Checks whether a server may be sent this header. The error names the header, never its value.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    Headers::new([(name, value)]).map(drop)
}

/// Valid headers. `Debug` does not print their values.
#[derive(Clone, Default)]
pub(crate) struct Headers(HeaderMap);

impl Headers {
    /// Accepts headers that the protocol does not reserve. An error names the header, never its value.
    pub(crate) fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut map = HeaderMap::new();
        let mut bytes = 0;
        for (name, value) in pairs {
            let name: HeaderName = name.parse().map_err(|_| "a header has no valid name".to_owned())?;
            if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") || name.as_str().starts_with("mcp-param-") {
                return Err(format!("the header {name} is the protocol's own"));
            }
            let mut value: HeaderValue =
                value.trim().parse().map_err(|_| format!("the header {name} has letters that no header may have"))?;
            value.set_sensitive(true);
            bytes += name.as_str().len() + value.len();
            map.append(name, value);
        }
        if map.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
            return Err(format!("at most {HEADERS_MAX} headers of {HEADER_BYTES_MAX} bytes in all can be given"));
        }
        Ok(Headers(map))
    }

    /// All headers in plain text, for sealing.
    pub(crate) fn pairs(&self) -> Result<Vec<(String, String)>, String> {
        let text = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).map(str::to_owned);
        let pairs = self.0.iter().map(|(name, value)| Ok((name.as_str().to_owned(), text(value)?)));
        pairs.collect::<Result<_, std::str::Utf8Error>>().map_err(|_| "a header is not text".to_owned())
    }

    pub(crate) fn map(&self) -> &HeaderMap {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the headers to a digest, in an order that does not depend on how they were given.
    pub(crate) fn digest(&self, context: &mut Context) {
        let mut pairs: Vec<(&str, &[u8])> = self.0.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        pairs.sort_unstable();
        for (name, value) in pairs {
            for part in [name.as_bytes(), value] {
                context.update(&part.len().to_be_bytes());
                context.update(part);
            }
        }
    }

    /// Replaces the values of the headers in the text, because a server may repeat them in its messages.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut hidden = text.to_owned();
        for value in self.0.values().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()) {
            // A server may repeat only the token of `Bearer <token>`.
            for secret in [Some(value), value.split_once(' ').map(|(_, token)| token)].into_iter().flatten() {
                if secret.len() >= HIDDEN_LETTERS_MIN {
                    hidden = hidden.replace(secret, "…");
                }
            }
        }
        hidden
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().map(HeaderName::as_str)).finish()
    }
}

/// A digest of all parts, each with its length, so that no two lists of parts have the same.
pub(crate) fn digest_of(parts: &[&str], headers: &Headers) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    headers.digest(&mut context);
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_neither_printed_nor_repeated() {
        let headers = Headers::new([("Authorization", "Bearer s3cret-token"), ("X-Short", "no")]).expect("they are valid");
        assert_eq!(format!("{headers:?}"), r#"{"authorization", "x-short"}"#);
        assert_eq!(headers.hide("bad token s3cret-token, not known"), "bad token …, not known");
    }

    #[test]
    fn headers_of_the_protocol_are_refused_by_name() {
        for name in ["Host", "accept", "Mcp-Session-Id", "Content-Length", "Proxy-Authorization", "Last-Event-ID"] {
            let error = Headers::new([(name, "s3cret")]).expect_err(name);
            assert!(error.contains(&name.to_ascii_lowercase()) && !error.contains("s3cret"), "{error}");
        }
        for (name, value) in [("bad name", "x"), ("", "x"), ("x-a", "line\nbreak s3cret"), ("x-big", &"s3cret".repeat(4000))] {
            let error = Headers::new([(name, value)]).expect_err(name);
            assert!(!error.contains("s3cret"), "{error}");
        }
        let many: Vec<String> = (0..65).map(|index| format!("x-{index}")).collect();
        assert!(Headers::new(many.iter().map(|name| (name.as_str(), "x"))).is_err());
    }

    #[test]
    fn a_digest_knows_headers_and_not_their_order() {
        let one = Headers::new([("a", "1"), ("b", "2")]).expect("they are valid");
        let other = Headers::new([("B", "2"), ("A", "1")]).expect("they are valid");
        let third = Headers::new([("a", "12"), ("b", "")]).expect("they are valid");
        assert_eq!(digest_of(&["t", "u"], &one), digest_of(&["t", "u"], &other));
        assert_ne!(digest_of(&["t", "u"], &one), digest_of(&["t", "u"], &third));
        assert_ne!(digest_of(&["tu", ""], &one), digest_of(&["t", "u"], &one));
    }
}
