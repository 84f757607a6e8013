//! Why a model call failed: the cause, as far as APIs distinguish causes, and the code.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The cause of a failed model call. The journal keeps it with the attempt, so that every API can answer with a status of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// No other variant fits. Journals written before causes were recorded read as this one.
    #[default]
    Other,
    /// The provider refused the request with this status code of its protocol.
    Status(u16),
    /// The provider could not be reached.
    Unreachable,
    /// The provider did not answer in time.
    TimedOut,
    /// The provider's answer broke off, was larger than allowed, or was not of its protocol.
    BadAnswer,
    /// The prompt is longer than the model's context, or than the server reads for one call.
    TooLong,
}

impl FailureCause {
    pub(crate) fn is_other(&self) -> bool {
        *self == FailureCause::Other
    }
}

macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// The code of a failed model call, for programs: stores, APIs, metrics and log lines spell it in the same way.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)+
            /// A code that this version does not know. It is kept verbatim, and never is the spelling of another variant if it was made by
            /// `FailureCode::from`.
            Other(String),
        }

        impl FailureCode {
            /// All known codes.
            pub const KNOWN: &'static [FailureCode] = &[$(FailureCode::$variant),+];

            /// The code as it is spelled everywhere.
            pub fn as_str(&self) -> &str {
                match self {
                    FailureCode::Other(code) => code,
                    known => known.known_str().unwrap_or_default(),
                }
            }

            /// The spelling of a known code. `None` for all others.
            pub fn known_str(&self) -> Option<&'static str> {
                match self {
                    $(FailureCode::$variant => Some($text),)+
                    FailureCode::Other(_) => None,
                }
            }
        }

        impl From<&str> for FailureCode {
            fn from(code: &str) -> Self {
                match code {
                    $($text => FailureCode::$variant,)+
                    other => FailureCode::Other(other.to_owned()),
                }
            }
        }
    };
}

failure_codes! {
    /// The answer is larger than allowed.
    AnswerTooLarge = "answer_too_large",
    /// The provider filtered the answer. Only journals of earlier versions have it.
    ContentFiltered = "content_filtered",
    /// The prompt is longer than the model's context.
    ContextLengthExceeded = "context_length_exceeded",
    /// The store could not give the items of the prompt.
    ContextUnreadable = "context_unreadable",
    /// The answer does not begin with the text that was streamed before.
    Diverged = "diverged",
    /// The provider's account has no money left.
    InsufficientQuota = "insufficient_quota",
    /// The answer did not begin, or did not end, in time.
    ModelTimeout = "model_timeout",
    /// The model was asked for a summary and gave none.
    NoSummary = "no_summary",
    /// The provider has too much work.
    Overloaded = "overloaded",
    /// The code that calls the model panicked.
    Panicked = "panicked",
    /// The prompt is over `limits.prompt_bytes`.
    PromptTooLarge = "prompt_too_large",
    /// The provider refuses requests for a while.
    RateLimited = "rate_limited",
    /// The provider refused the request for good.
    Refused = "refused",
    /// The stream ended before the answer was complete.
    StreamCut = "stream_cut",
    /// No event arrived for too long in the middle of an answer.
    StreamStalled = "stream_stalled",
    /// The model is no longer configured.
    UnknownModel = "unknown_model",
    /// The tool of an action is no longer configured.
    UnknownTool = "unknown_tool",
    /// The provider failed.
    UpstreamError = "upstream_error",
    /// The answer violates the provider's protocol.
    UpstreamGarbage = "upstream_garbage",
    /// The provider does not accept the server's credentials.
    UpstreamUnauthorized = "upstream_unauthorized",
    /// The provider could not be reached.
    UpstreamUnreachable = "upstream_unreachable",
}

impl From<String> for FailureCode {
    fn from(code: String) -> Self {
        FailureCode::from(code.as_str())
    }
}

impl From<FailureCode> for String {
    fn from(code: FailureCode) -> Self {
        if let FailureCode::Other(code) = code { code } else { code.as_str().to_owned() }
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_stored_as_they_are_spelled_and_unknown_ones_are_kept() {
        for code in FailureCode::KNOWN {
            let stored = serde_json::to_string(code).unwrap();
            assert_eq!(stored, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<FailureCode>(&stored).unwrap(), *code);
        }
        let unknown: FailureCode = serde_json::from_str("\"a_later_code\"").unwrap();
        assert_eq!((&unknown, unknown.as_str(), unknown.known_str()), (&FailureCode::Other("a_later_code".into()), "a_later_code", None));
        assert_eq!(serde_json::to_string(&unknown).unwrap(), "\"a_later_code\"");
    }
}
