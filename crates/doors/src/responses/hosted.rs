//! Tools that only OpenAI's own servers run.
//!
//! A request with such a tool is refused: otherwise the model would answer without the tool, and the client would not notice. Codex sends
//! `web_search` with every request and can do without it, so its requests are accepted and the response lists the ignored types. Types that
//! OpenAI does not have are ignored silently.

use std::collections::BTreeSet;

use axum::http::HeaderMap;

use super::{error::WireError, join::TURN_METADATA, request::Create};

/// The header in which Codex names itself.
const ORIGINATOR: &str = "originator";

/// The types of hosted tools that are ignored in this request, each once. A request with hosted tools is refused unless Codex sent it.
pub(super) fn ignored(headers: &HeaderMap, create: &Create) -> Result<Vec<String>, WireError> {
    // A run that only makes a summary has no tools, even if the conversation had some.
    let may_go_without = create.compacts || is_codex(headers, create);
    let refused = create.hosted.iter().find_map(|tool| Some((tool, tool.param.as_deref()?)));
    match refused.filter(|_| !may_go_without) {
        Some((tool, param)) => {
            let message = format!(
                "The tool type '{}' runs on OpenAI's servers only, and nothing here runs it. Leave it out, or offer a tool that does the \
                 same: a function, an MCP server, or an external tool of the configuration.",
                tool.kind
            );
            Err(WireError::invalid(param, message).with_code("unsupported_tool"))
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
