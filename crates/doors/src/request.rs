//! Reads requests: bodies, paths, queries and headers. Each reader has limits, and its errors say what the client must change.

mod body;
mod fields;
mod fingerprint;
mod headers;
mod items;
mod path;
mod query;

pub(crate) use body::JsonBody;
pub(crate) use fields::{Fields, text_of};
pub(crate) use fingerprint::{canonical, fingerprint};
pub(crate) use headers::{header_key, idempotency_key, last_event_id, request_key, trace_context};
pub(crate) use items::{item_of, items_of};
pub(crate) use path::{AgentPath, IdPath, ToolPath};
pub(crate) use query::Query;
