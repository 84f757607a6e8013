//! The accepted tokens. Only their hashes are in memory.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use sha2::{Digest, Sha256};
use windlass_kernel::{Tenant, Timestamp};

use super::Scope;

/// One token of the configuration.
#[derive(Clone)]
pub struct Token {
    /// The SHA-256 of the token.
    pub hash: [u8; 32],
    /// The tenant whose data the token gives access to.
    pub tenant: Tenant,
    /// The rights of the token.
    pub scopes: Vec<Scope>,
    /// The name of the token in records and logs.
    pub name: String,
    /// Whether its clients get the status `completed` for a response that waits for them. `None` leaves it to `responses.status`.
    pub standard_status: Option<bool>,
    /// The time from which the token is refused. `None` never.
    pub expires: Option<Timestamp>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("tenant", &self.tenant).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A set of tokens.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Vec<Arc<Token>>);

impl Tokens {
    /// A set of these tokens.
    pub fn new(tokens: Vec<Token>) -> Self {
        Tokens(tokens.into_iter().map(Arc::new).collect())
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The token with this text. Every hash is compared whole, so that the time taken does not reveal how close a guess was.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<Arc<Token>> {
        self.find_hash(&Sha256::digest(presented).into())
    }

    fn find_hash(&self, hash: &[u8; 32]) -> Option<Arc<Token>> {
        let mut found = None;
        for token in &self.0 {
            if differing_bits(&token.hash, hash) == 0 {
                found = Some(token);
            }
        }
        found.cloned()
    }
}

/// The tokens that are accepted now. They can be replaced while the server runs. Clones share one table.
#[derive(Clone, Debug)]
pub struct TokenTable(Arc<RwLock<Tokens>>);

impl TokenTable {
    pub(crate) fn new(tokens: Tokens) -> Self {
        TokenTable(Arc::new(RwLock::new(tokens)))
    }

    /// Accepts only `tokens` from now on. Requests that are already authenticated are served to their end.
    pub fn replace(&self, tokens: Tokens) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// The token with this text, expired or not.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<Arc<Token>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).find(presented)
    }

    /// The token with this hash, expired or not.
    pub(crate) fn find_hash(&self, hash: &[u8; 32]) -> Option<Arc<Token>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).find_hash(hash)
    }
}

fn differing_bits(a: &[u8; 32], b: &[u8; 32]) -> u8 {
    std::hint::black_box(a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text() {
        let token = |text: &str, name: &str| Token {
            hash: Sha256::digest(text.as_bytes()).into(),
            tenant: "t".into(),
            scopes: vec![Scope::All],
            name: name.to_owned(),
            standard_status: None,
            expires: None,
        };
        let tokens = Tokens::new(vec![token("one", "first"), token("two", "second")]);
        assert_eq!(tokens.find(b"two").map(|token| token.name.clone()).as_deref(), Some("second"));
        assert!(tokens.find(b"three").is_none());
        assert!(tokens.find(b"").is_none());
    }
}
