//! The mapping of failures to error codes, and to whether a retry may help.

use windlass_kernel::{FailureCause, FailureCode};
use windlass_ports::{ModelError, Retry};

use crate::limits::{MESSAGE_CHARS_MAX, RETRY_AFTER_MS_MAX};

/// The failure for an HTTP status.
pub(crate) fn from_status(status: u16, message: String, retry_after_ms: Option<u64>) -> ModelError {
    let pause = retry_after_ms.map_or(Retry::Backoff, |ms| Retry::AfterMs(ms.min(RETRY_AFTER_MS_MAX)));
    let (code, retry) = match status {
        429 => (FailureCode::RateLimited, pause),
        503 | 529 => (FailureCode::Overloaded, pause),
        408 | 409 | 500..=599 => (FailureCode::UpstreamError, pause),
        401 | 403 => (FailureCode::UpstreamUnauthorized, Retry::Never),
        _ => (FailureCode::Refused, Retry::Never),
    };
    failure(code, FailureCause::Status(status), message, retry)
}

/// The stream ended before the answer was complete.
pub(crate) fn stream_cut(message: impl Into<String>) -> ModelError {
    failure(FailureCode::StreamCut, FailureCause::BadAnswer, message, Retry::Backoff)
}

/// The first event did not arrive in time.
pub(crate) fn first_byte_late(message: impl Into<String>) -> ModelError {
    failure(FailureCode::ModelTimeout, FailureCause::TimedOut, message, Retry::Backoff)
}

/// No event arrived for too long in the middle of an answer.
pub(crate) fn stream_stalled(message: impl Into<String>) -> ModelError {
    failure(FailureCode::StreamStalled, FailureCause::TimedOut, message, Retry::Backoff)
}

/// The request could not be sent.
pub(crate) fn unreachable(message: impl Into<String>) -> ModelError {
    failure(FailureCode::UpstreamUnreachable, FailureCause::Unreachable, message, Retry::Backoff)
}

/// The answer violates the protocol.
pub(crate) fn garbage(message: impl Into<String>) -> ModelError {
    failure(FailureCode::UpstreamGarbage, FailureCause::BadAnswer, message, Retry::Backoff)
}

/// The answer exceeds a size limit. It is not retried, because the same request would most likely give as much again.
pub(crate) fn too_large(message: impl Into<String>) -> ModelError {
    failure(FailureCode::AnswerTooLarge, FailureCause::BadAnswer, message, Retry::Never)
}

/// Any other failure.
pub(crate) fn failure(code: FailureCode, cause: FailureCause, message: impl Into<String>, retry: Retry) -> ModelError {
    ModelError { code, cause, message: message.into(), retry }
}

/// A provider's message, prepared for display: on one line, shortened, and without the `secrets` that it may repeat.
pub(crate) fn presentable<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = text.to_owned();
    for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "[hidden]");
    }
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_a_retry_may_help() {
        let mapped = |status, after| {
            let error = from_status(status, String::new(), after);
            (error.code, error.retry)
        };
        let expected = |code: &str, retry| (FailureCode::from(code), retry);
        assert_eq!(mapped(429, None), expected("rate_limited", Retry::Backoff));
        assert_eq!(mapped(429, Some(7)), expected("rate_limited", Retry::AfterMs(7)));
        assert_eq!(mapped(429, Some(u64::MAX)), expected("rate_limited", Retry::AfterMs(RETRY_AFTER_MS_MAX)));
        for status in [503, 529] {
            assert_eq!(mapped(status, Some(7)), expected("overloaded", Retry::AfterMs(7)));
        }
        for status in [408, 409, 500, 502, 504, 599] {
            assert_eq!(mapped(status, None), expected("upstream_error", Retry::Backoff));
        }
        for status in [401, 403] {
            assert_eq!(mapped(status, Some(7)), expected("upstream_unauthorized", Retry::Never));
        }
        for status in [302, 400, 404, 413, 422] {
            assert_eq!(mapped(status, Some(7)), expected("refused", Retry::Never));
        }
    }

    #[test]
    fn a_providers_message_is_shortened_and_has_no_secrets() {
        assert_eq!(presentable(" bad key\nsk-1 \u{7}here ", ["sk-1", ""]), "bad key [hidden]  here");
        assert_eq!(presentable(&"ä".repeat(600), []).chars().count(), MESSAGE_CHARS_MAX);
    }
}
