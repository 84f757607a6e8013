//! An outbox message as NATS carries it.

use async_nats::{HeaderMap, HeaderValue, PublishError, PublishErrorKind};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use windlass_ports::Published;

/// Characters that a token of a subject can't have: dots separate tokens, stars and angle brackets are wildcards, and blanks end the line.
const NOT_IN_TOKENS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Subject, headers and body. They are the same every time the message is sent.
pub(super) fn spell(prefix: &str, message: &Published) -> (String, HeaderMap, Bytes) {
    let token = |text| utf8_percent_encode(text, NOT_IN_TOKENS);
    let (before, name, after) = message.subject.parts();
    let subject = format!("{prefix}.{}.{before}{}{after}", token(message.tenant.as_str()), token(name));
    let mut headers = HeaderMap::new();
    let mut header = |name, value: &str| {
        // A value with a line break could add a header of its own.
        if let Ok(value) = value.parse::<HeaderValue>() {
            headers.insert(name, value);
        }
    };
    header("Nats-Msg-Id", &message.id);
    header("traceparent", &traceparent(message));
    if let Some(step) = &message.parent_step {
        header("Windlass-Parent-Step-Id", step);
    }
    (subject, headers, message.body.to_string().into())
}

/// W3C trace context: the trace of the request that began the run, with the run as the span.
fn traceparent(message: &Published) -> String {
    let (_, span) = message.run.0.as_u64_pair();
    format!("00-{:032x}-{span:016x}-01", u128::from_be_bytes(message.trace))
}

/// A message that NATS can never take is dropped, because it would block all messages after it; any other message is sent again.
pub(super) fn check(message: &Published, error: &PublishError) -> Result<(), String> {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::InvalidSubject => {
            tracing::error!(id = message.id, subject = %message.subject, %error, "NATS cannot take a message; it is left out");
            Ok(())
        }
        PublishErrorKind::Send => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_kernel::RunId;
    use windlass_ports::Subject;

    use super::*;

    fn message(subject: Subject) -> Published {
        Published {
            tenant: "acme.eu".into(),
            subject,
            body: json!({ "agent_id": "a" }),
            id: "run_7.0.0".into(),
            run: RunId("0190-0000-0000-7000-8000-0000-0000-0007".replace('-', "").parse().unwrap()),
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
            parent_step: Some("step_1".into()),
        }
    }

    #[test]
    fn names_become_single_tokens() {
        let subject = |subject| spell("windlass", &message(subject)).0;
        assert_eq!(subject(Subject::Wakeup("clerk-1_b".into())), "windlass.acme%2Eeu.cmd.agent.clerk-1_b.wakeup");
        assert_eq!(subject(Subject::Task("a.b".into())), "windlass.acme%2Eeu.evt.agent.a%2Eb.task");
        assert_eq!(subject(Subject::Tool("* >\r\nPUB x%".into())), "windlass.acme%2Eeu.cmd.tool.%2A%20%3E%0D%0APUB%20x%25");
    }

    #[test]
    fn headers_name_the_message_and_where_it_comes_from() {
        let (_, headers, body) = spell("windlass", &message(Subject::Task("a".into())));
        let header = |name| headers.get(name).map(HeaderValue::as_str);
        assert_eq!(header("Nats-Msg-Id"), Some("run_7.0.0"));
        assert_eq!(header("traceparent"), Some("00-4bf92f3577b34da6a3ce929d0e0e4736-8000000000000007-01"));
        assert_eq!(header("Windlass-Parent-Step-Id"), Some("step_1"));
        assert_eq!(body, r#"{"agent_id":"a"}"#);
        let broken = Published { parent_step: Some("a\r\nNats-Msg-Id: other".into()), ..message(Subject::Task("a".into())) };
        assert_eq!(spell("windlass", &broken).1.get("Windlass-Parent-Step-Id"), None);
    }
}
