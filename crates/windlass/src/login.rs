//! The tokens that the server accepts: the configured ones, or the one of the data folder.

use std::path::Path;

use windlass_doors::{Scope, Token, Tokens};

use crate::{
    config::{Config, TokenHash},
    token,
};

/// The configured tokens, or else the one of the data folder, whose text is returned as well.
pub(crate) fn tokens(config: &Config, data: &Path) -> anyhow::Result<(Tokens, Option<String>)> {
    if !config.auth.tokens.is_empty() {
        return Ok((configured(config), None));
    }
    let (token, path) = token::own_token(data)?;
    tracing::info!(file = %path.display(), "no tokens are configured: the one in this file may do everything");
    let hash = *TokenHash::of(&token).as_bytes();
    let (name, scopes) = ("own".to_owned(), vec![Scope::All]);
    let own = Token { hash, tenant: "default".into(), scopes, name, standard_status: None, expires: None };
    Ok((Tokens::new(vec![own]), Some(token)))
}

/// The tokens of a reloaded configuration.
pub(crate) fn reloaded(config: &Config) -> anyhow::Result<Tokens> {
    anyhow::ensure!(!config.auth.tokens.is_empty(), "auth.tokens is empty; a server that uses its own token needs a restart to change it");
    Ok(configured(config))
}

fn configured(config: &Config) -> Tokens {
    let tokens = config.auth.tokens.iter().map(|token| {
        let name = token.name.clone().unwrap_or_else(|| token.tenant.clone());
        if token.expires.is_some_and(|expires| expires.0 <= jiff::Timestamp::now().as_millisecond()) {
            tracing::warn!(name, "a token of auth.tokens has expired");
        }
        Token {
            hash: *token.hash.as_bytes(),
            tenant: token.tenant.as_str().into(),
            scopes: token.scopes.clone(),
            name,
            standard_status: token.standard_status,
            expires: token.expires,
        }
    });
    Tokens::new(tokens.collect())
}
