//! Failed model calls as HTTP errors.
//!
//! A foreground request whose first model call failed before anything was produced gets an HTTP error, so that a client library raises
//! its exception instead of handing out an empty response. The status keeps the provider's meaning where the client can act on it.

use windlass_kernel::{FailureCause, FailureCode, Run};

use super::{error::WireError, object::response_id, project::Projection};

/// How the last attempt of a model call failed.
#[derive(Clone)]
pub(super) struct Failed {
    pub code: FailureCode,
    pub cause: FailureCause,
    /// The provider's `Retry-After`.
    pub retry_after_ms: Option<u64>,
}

/// The error for a run that failed with its first model call and produced nothing; `None` for every other run.
pub(super) fn without_output(projection: &Projection) -> Option<WireError> {
    let is_empty = projection.run.as_ref().is_some_and(Run::has_failed_without_output);
    error(projection).filter(|_| is_empty).map(|error| error.with_response_id(response_id(projection.id)))
}

/// The error for a run that a failed model call ended, even if the run had output; `None` for every other run.
pub(super) fn error(projection: &Projection) -> Option<WireError> {
    let message = projection.ending.as_ref()?.error_message()?;
    let failed = projection.failed.as_ref()?;
    Some(wire_error(failed, message).retried_already())
}

fn wire_error(failed: &Failed, message: &str) -> WireError {
    let retry_after_s = failed.retry_after_ms.map(|ms| u32::try_from(ms.div_ceil(1_000)).unwrap_or(u32::MAX));
    if failed.code == FailureCode::PromptTooLarge {
        return WireError::prompt_too_large(message);
    }
    let is_too_long = failed.cause == FailureCause::TooLong || failed.code == FailureCode::ContextLengthExceeded;
    match failed.cause {
        FailureCause::TooLong | FailureCause::Status(400 | 413 | 422) if is_too_long => {
            WireError::upstream(400, "context_length_exceeded", message).at("input")
        }
        FailureCause::Status(status @ (400 | 404 | 413 | 422)) => WireError::upstream(status, "upstream_refused", message),
        FailureCause::Status(401 | 403) => WireError::upstream(502, "upstream_auth", message),
        FailureCause::Status(429) => {
            let code = if failed.code == FailureCode::InsufficientQuota { "insufficient_quota" } else { "rate_limit_exceeded" };
            WireError::upstream(429, code, message).retry_after(retry_after_s)
        }
        FailureCause::TimedOut | FailureCause::Status(408 | 504) => WireError::upstream(504, "upstream_timeout", message),
        FailureCause::Status(503 | 529) => WireError::upstream(502, "server_is_overloaded", message),
        FailureCause::Status(500..=599) => WireError::upstream(502, "upstream_error", message),
        FailureCause::Status(_) => WireError::upstream(502, "upstream_refused", message),
        FailureCause::Unreachable => WireError::upstream(502, "upstream_unreachable", message),
        FailureCause::BadAnswer => WireError::upstream(502, "upstream_bad_answer", message),
        FailureCause::Other | FailureCause::TooLong => WireError::upstream(502, "upstream_error", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: &str, cause: FailureCause) -> (u16, &'static str) {
        let failed = Failed { code: code.into(), cause, retry_after_ms: None };
        let error = wire_error(&failed, "m");
        (error.status(), error.code())
    }

    #[test]
    fn a_status_that_the_client_can_act_on_is_kept() {
        for status in [400, 404, 413, 422] {
            assert_eq!(answered("refused", FailureCause::Status(status)), (status, "upstream_refused"));
        }
        assert_eq!(answered("context_length_exceeded", FailureCause::Status(400)), (400, "context_length_exceeded"));
        assert_eq!(answered("context_length_exceeded", FailureCause::TooLong), (400, "context_length_exceeded"));
        assert_eq!(answered("prompt_too_large", FailureCause::TooLong), (413, "prompt_too_large"));
        assert_eq!(answered("rate_limited", FailureCause::Status(429)), (429, "rate_limit_exceeded"));
        assert_eq!(answered("insufficient_quota", FailureCause::Status(429)), (429, "insufficient_quota"));
    }

    #[test]
    fn a_status_between_the_server_and_the_provider_is_a_gateway_error() {
        for (cause, expected) in [
            (FailureCause::Status(401), (502, "upstream_auth")),
            (FailureCause::Status(403), (502, "upstream_auth")),
            (FailureCause::Status(302), (502, "upstream_refused")),
            (FailureCause::Status(402), (502, "upstream_refused")),
            (FailureCause::Status(500), (502, "upstream_error")),
            (FailureCause::Status(503), (502, "server_is_overloaded")),
            (FailureCause::Status(504), (504, "upstream_timeout")),
            (FailureCause::TimedOut, (504, "upstream_timeout")),
            (FailureCause::Unreachable, (502, "upstream_unreachable")),
            (FailureCause::BadAnswer, (502, "upstream_bad_answer")),
            (FailureCause::Other, (502, "upstream_error")),
        ] {
            assert_eq!(answered("x", cause), expected, "{cause:?}");
        }
    }
}
