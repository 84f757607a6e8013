//! The secrets of a declared server, which a run stores sealed.

use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::headers::Headers;

/// Shorter texts are not hidden in messages: they occur in too many ordinary texts.
const HIDDEN_LETTERS_MIN: usize = 6;

/// The parts of a declared server that may be secret.
#[derive(Default)]
pub(crate) struct Secrets {
    /// The whole address, if it has parts that are not shown.
    pub(crate) url: Option<String>,
    pub(crate) headers: Headers,
}

/// The sealed format. A plain list of headers is the format of earlier versions.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Headers(Vec<(String, String)>),
    All { url: String, headers: Vec<(String, String)> },
}

impl Secrets {
    pub(crate) fn is_empty(&self) -> bool {
        self.url.is_none() && self.headers.is_empty()
    }

    /// All of it in plain text, for sealing.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let headers = self.headers.pairs()?;
        let form = match &self.url {
            Some(url) => Form::All { url: url.clone(), headers },
            None => Form::Headers(headers),
        };
        serde_json::to_vec(&form).map_err(|_| "the secrets cannot be written".to_owned())
    }

    /// Parses the result of [`Secrets::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let form = serde_json::from_slice(bytes).map_err(|_| "its secrets cannot be read back".to_owned())?;
        let (url, pairs) = match form {
            Form::Headers(pairs) => (None, pairs),
            Form::All { url, headers } => (Some(url), headers),
        };
        let headers = Headers::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        Ok(Secrets { url, headers })
    }
}

/// The address without the parts that may be secret: the user, the query and the fragment.
pub(crate) fn shown_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // These calls fail only for an address without a host, which has no user and no password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

/// Removes the query of the address and its values from the text, because a server may repeat them in its messages.
pub(crate) fn hide_query(url: &str, text: &str) -> String {
    let Some(url) = Url::parse(url).ok().filter(|url| url.query().is_some()) else { return text.to_owned() };
    let query = url.query().unwrap_or_default();
    let raw = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned());
    let decoded = url.query_pairs().map(|(_, value)| value.into_owned());
    let secrets = std::iter::once(query.to_owned()).chain(raw).chain(decoded).filter(|secret| secret.len() >= HIDDEN_LETTERS_MIN);
    secrets.fold(text.to_owned(), |text, secret| text.replace(&secret, "…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_back_in_both_forms() {
        let headers = || Headers::new([("x-key", "s3cret")]).expect("they are valid");
        for url in [None, Some("https://a/?key=s3cret".to_owned())] {
            let secrets = Secrets { url: url.clone(), headers: headers() };
            let back = Secrets::from_bytes(&secrets.to_bytes().expect("it is text")).expect("it is read back");
            assert_eq!((back.url, back.headers.map()), (url, headers().map()));
        }
        let earlier = Secrets::from_bytes(br#"[["x-key","s3cret"]]"#).expect("the form of earlier versions");
        assert_eq!((earlier.url, earlier.headers.map()), (None, headers().map()));
        assert!(Secrets::from_bytes(b"{}").is_err());
    }

    #[test]
    fn a_query_is_neither_shown_nor_repeated() {
        let url = "https://user:s3cret@a.example/mcp?key=s3%20cret-1&b=2#s3cret";
        assert_eq!(shown_url(&Url::parse(url).expect("a URL")), "https://a.example/mcp");
        assert_eq!(hide_query(url, "bad key s3 cret-1 of key=s3%20cret-1&b=2, or s3%20cret-1"), "bad key … of …, or …");
        assert_eq!(hide_query("https://a.example/mcp", "bad key"), "bad key");
    }
}
