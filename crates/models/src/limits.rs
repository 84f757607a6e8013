//! The limits on sizes and waiting times in this crate.

/// Bytes of one server-sent event on the wire. It is large because a whole tool call may come in one event.
pub const EVENT_BYTES_MAX: usize = 4 << 20;

/// Bytes of one whole streamed answer on the wire. Each token costs some hundred bytes of framing.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Bytes of an answer's text and arguments together, and of the body of an answer that is not streamed.
pub const CONTENT_BYTES_MAX: usize = 16 << 20;

/// Calls in one answer.
pub const CALLS_MAX: usize = 128;

/// Bytes of an error's body that are read.
pub const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Characters of a provider's message that an error repeats.
pub const MESSAGE_CHARS_MAX: usize = 500;

/// The longest pause that a provider may ask for, in milliseconds. Beyond this the engine's own backoff is better.
pub const RETRY_AFTER_MS_MAX: u64 = 600_000;

/// Milliseconds that a finished answer waits for the usage that may follow it.
pub const AFTER_FINISH_MS_MAX: u64 = 2_000;

/// Calls that a scripted model accepts at the same time by default.
pub const SCRIPTED_CONCURRENCY: usize = 1_024;

/// Bytes of a script file.
pub const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Bytes of text per chunk of a scripted answer, unless the script sets it.
pub const CHUNK_BYTES: usize = 24;

/// Characters of an input or a result that the offline model repeats.
pub const ECHO_CHARS_MAX: usize = 2_000;

/// The longest pause, in milliseconds, that the text of an input can ask of the offline model.
pub const KEYWORD_WAIT_MS_MAX: u64 = 60_000;

/// The limit on an answer's tokens where a protocol requires one and the request has none.
pub const ANSWER_TOKENS: u64 = 8_192;

/// The smallest budget of tokens for thinking.
pub const THINKING_TOKENS_MIN: u64 = 1_024;
