//! How much a request may say.

/// Levels of nesting. Below what readers of JSON take, so that a value can be wrapped and read again.
pub(super) const NESTING_MAX: usize = 100;
/// Items of one input.
pub(crate) const ITEMS_MAX: usize = 10_000;
/// Items that are put into a conversation at once.
pub(super) const CONVERSATION_ITEMS_MAX: usize = 20;
/// Parts of one item's content.
pub(super) const PARTS_MAX: usize = 10_000;
/// Bytes of one text.
pub(super) const TEXT_BYTES_MAX: usize = 10 << 20;
/// Bytes of one file or image.
pub(super) const DATA_BYTES_MAX: usize = 32 << 20;
/// Tools of one request, those in namespaces included.
pub(super) const TOOLS_MAX: usize = 1024;
/// Tools that a choice may allow, and names that a server's tools may be narrowed to.
pub(super) const ALLOWED_MAX: usize = 128;
/// Characters of a name that the model sees.
pub(super) const TOOL_NAME_CHARS_MAX: usize = 64;
/// Characters of other names and ids: models, responses, calls, servers, namespaces.
pub(super) const NAME_CHARS_MAX: usize = 256;
/// Characters of a key for caches, and of a person's pseudonym.
pub(super) const KEY_CHARS_MAX: usize = 128;
/// Characters of an address.
pub(super) const URL_CHARS_MAX: usize = 2048;
/// Headers that a tool server is shown.
pub(super) const HEADERS_MAX: usize = 64;
/// Characters of a header's value; tokens can be long.
pub(super) const HEADER_CHARS_MAX: usize = 8192;
/// Words of `include`.
pub(super) const INCLUDE_MAX: usize = 64;
/// Pairs of `metadata`.
pub(super) const METADATA_MAX: usize = 16;
/// Characters of a key of `metadata`.
pub(super) const METADATA_KEY_CHARS_MAX: usize = 64;
/// Characters of a value of `metadata`.
pub(super) const METADATA_VALUE_CHARS_MAX: usize = 512;
/// Laps of one response.
pub(super) const TURNS_MAX: u64 = 1000;
/// The fewest tokens an answer may be limited to.
pub(super) const OUTPUT_TOKENS_MIN: u64 = 16;
/// Alternatives listed for each token.
pub(super) const LOGPROBS_MAX: u64 = 20;
/// Seconds of one response: a year.
pub(super) const WALL_S_MAX: f64 = 31_536_000.0;
/// The largest number a store can count to.
pub(super) const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();
