//! Every size and wait this crate puts a bound on.

/// One server-sent event, in bytes on the wire. A whole tool call may come in one event, so this is not small.
pub const EVENT_BYTES_MAX: usize = 4 << 20;

/// One whole streamed answer, in bytes on the wire. Each token costs some hundred bytes of framing.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What an answer may amount to: its text and arguments together, and the body of an answer that is not streamed.
pub const CONTENT_BYTES_MAX: usize = 16 << 20;

/// Calls in one answer.
pub const CALLS_MAX: usize = 128;

/// How much of an error's body is read.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// How much of an upstream's own words an error repeats, in characters.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// The longest pause an upstream may ask for. Beyond this a run is better off with its own backoff.
pub const RETRY_AFTER_MS_MAX: u64 = 600_000;

/// How long a finished answer waits for the usage that may follow it.
pub const AFTER_FINISH_MS_MAX: u64 = 2_000;

/// Calls a scripted model takes at once, unless told otherwise.
pub const SCRIPTED_CONCURRENCY: usize = 1_024;

/// A script file, in bytes.
pub const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Bytes of text in one piece of a scripted answer, unless the script says otherwise.
pub const CHUNK_BYTES: usize = 24;

/// How much of an input or a result the offline model repeats, in characters.
pub const ECHO_CHARS_MAX: usize = 2_000;

/// The longest pause that words in an input can ask of the offline model.
pub const WORD_WAIT_MS_MAX: u64 = 60_000;

/// What an answer may cost where a protocol wants a number and the request has none.
pub const ANSWER_TOKENS: u64 = 8_192;

/// The least that a model can think with.
pub const THINKING_TOKENS_MIN: u64 = 1_024;
