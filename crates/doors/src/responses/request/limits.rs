//! The limits of a request's parts.

/// Levels of nesting. Below the limit of JSON parsers, so that a value can be wrapped and parsed again.
pub(super) const NESTING_MAX: usize = 100;
/// Items of one input.
pub(crate) const ITEMS_MAX: usize = 10_000;
/// Items that one request may add to a conversation.
pub(super) const CONVERSATION_ITEMS_MAX: usize = 20;
/// Parts of one item's content.
pub(super) const PARTS_MAX: usize = 10_000;
/// Bytes of one text.
pub(super) const TEXT_BYTES_MAX: usize = 10 << 20;
/// Bytes of one file or image.
pub(super) const DATA_BYTES_MAX: usize = 32 << 20;
/// Tools of one request, including those in namespaces.
pub(super) const TOOLS_MAX: usize = 1024;
/// Tools that `allowed_tools` may list, and names in the filter of a server's tools.
pub(super) const ALLOWED_MAX: usize = 128;
/// Characters of a tool's name for the model.
pub(super) const TOOL_NAME_CHARS_MAX: usize = 64;
/// Characters of other names and ids: models, responses, calls, servers, namespaces.
pub(super) const NAME_CHARS_MAX: usize = 256;
/// Characters of `prompt_cache_key` and `safety_identifier`.
pub(super) const KEY_CHARS_MAX: usize = 128;
/// Characters of a URL.
pub(super) const URL_CHARS_MAX: usize = 2048;
/// Headers that are sent to a tool server.
pub(super) const HEADERS_MAX: usize = 64;
/// Characters of a header's value; tokens can be long.
pub(super) const HEADER_CHARS_MAX: usize = 8192;
/// Values of `include`.
pub(super) const INCLUDE_MAX: usize = 64;
/// Pairs of `metadata`.
pub(super) const METADATA_MAX: usize = 16;
/// Characters of a key of `metadata`.
pub(super) const METADATA_KEY_CHARS_MAX: usize = 64;
/// Characters of a value of `metadata`.
pub(super) const METADATA_VALUE_CHARS_MAX: usize = 512;
/// Iterations of one response.
pub(super) const TURNS_MAX: u64 = 1000;
/// The lowest limit of output tokens.
pub(super) const OUTPUT_TOKENS_MIN: u64 = 16;
/// Alternatives that are listed for each token.
pub(super) const LOGPROBS_MAX: u64 = 20;
/// Seconds of one response: a year.
pub(super) const WALL_S_MAX: f64 = 31_536_000.0;
/// The largest integer that a store can hold.
pub(super) const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();
