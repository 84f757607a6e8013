//! Tools that only OpenAI's own servers run.
//!
//! A request that relies on one would be answered without it and nothing would say so: it is refused. Codex sends `web_search` with every
//! request and can do without, so its requests are taken, and the response lists what was ignored. Types that OpenAI does not have either
//! are left alone.

use std::collections::BTreeSet;

use axum::http::HeaderMap;

use super::{error::WireError, join::TURN_METADATA, request::Create};

/// The header in which Codex names itself.
const ORIGINATOR: &str = "originator";

/// The types of hosted tools that this request goes without, each once. A request of another client than Codex is refused.
pub(super) fn ignored(headers: &HeaderMap, create: &Create) -> Result<Vec<String>, WireError> {
    // A summary is made without tools, whatever the conversation had.
    let may_go_without = create.compacts || is_codex(headers, create);
    let refused = create.hosted.iter().find_map(|tool| Some((tool, tool.param.as_deref()?)));
    match refused.filter(|_| !may_go_without) {
        Some((tool, param)) => {
            let message = format!(
                "The tool type '{}' runs on OpenAI's servers only, and nothing here runs it. Leave it out, or offer a tool that does the \
                 same: a function, an MCP server, or an external tool of the configuration.",
                tool.kind
            );
            Err(WireError::invalid(param, message).named("unsupported_tool"))
        }
        None => {
            let kinds: BTreeSet<&String> = create.hosted.iter().map(|tool| &tool.kind).collect();
            Ok(kinds.into_iter().cloned().collect())
        }
    }
}

/// Whether Codex sent the request. On a socket its headers are those of the connection, and each frame has its metadata.
fn is_codex(headers: &HeaderMap, create: &Create) -> bool {
    let is_originator = |value: &[u8]| value.to_ascii_lowercase().starts_with(b"codex");
    headers.contains_key(TURN_METADATA)
        || headers.get(ORIGINATOR).is_some_and(|value| is_originator(value.as_bytes()))
        || create.has_codex_metadata
}
