//! The webhook that gets notices of opened interrupts: a signed POST, through the guard on addresses.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::{Url, header::CONTENT_TYPE, redirect};
use ring::hmac;
use serde_json::json;
use windlass_ports::{Clock, Notice, Notifier};

use crate::egress::{Egress, Guard};

/// The time in which the receiver must answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The shortest secret: one that could be guessed would let anyone send notices.
const SECRET_CHARS_MIN: usize = 16;

/// A receiver of notices.
pub struct Webhook {
    url: Url,
    key: hmac::Key,
    egress: Arc<Egress>,
    client: reqwest::Client,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// A webhook at this address, whose requests are signed with this secret. The address must be public, or in `egress`.
    pub fn new(url: &str, secret: &str, egress: Egress, clock: Arc<dyn Clock>) -> Result<Self, String> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err("no TLS provider is installed in this process".to_owned());
        }
        if secret.chars().count() < SECRET_CHARS_MIN {
            return Err(format!("the secret needs at least {SECRET_CHARS_MIN} characters"));
        }
        let egress = Arc::new(egress);
        let url = egress.check_url(url)?;
        // A proxy or a redirect would lead past the guard.
        let client = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).dns_resolver(Guard(egress.clone()));
        let client = client.timeout(ANSWER).build().map_err(|error| format!("the HTTP client cannot be made: {error}"))?;
        Ok(Webhook { url, key: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), egress, client, clock })
    }

    /// The signature of a body that is sent at `timestamp`, in seconds since the Unix epoch.
    fn signature(&self, timestamp: i64, body: &str) -> String {
        let tag = hmac::sign(&self.key, format!("{timestamp}.{body}").as_bytes());
        tag.as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The body of a notice.
fn body(notice: &Notice) -> String {
    json!({
        "type": "interrupt.opened",
        "interrupt_id": notice.interrupt.to_string(),
        "run_id": notice.interrupt.run,
        "agent_id": notice.agent,
        "tenant": notice.tenant,
        "cause": notice.cause.as_str(),
        "tool": notice.tool,
        "created_at": notice.at.0 / 1000,
    })
    .to_string()
}

#[async_trait]
impl Notifier for Webhook {
    async fn notify(&self, notice: &Notice) -> Result<(), String> {
        self.egress.check_names(&self.url).await?;
        let (body, timestamp) = (body(notice), self.clock.now().0 / 1000);
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let request = request
            .header("x-windlass-timestamp", timestamp)
            .header("x-windlass-signature", self.signature(timestamp, &body))
            .header("x-windlass-delivery", notice.interrupt.to_string());
        // The error would contain the address, which may have a token in it.
        let answer = request.body(body).send().await.map_err(|error| error.without_url().to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered with HTTP {}", status.as_u16())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };
    use windlass_kernel::{Cause, RunId, Timestamp};
    use windlass_ports::InterruptId;

    use super::*;

    const SECRET: &str = "a secret of 22 letters";

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Timestamp {
            Timestamp(43_200_000)
        }
    }

    fn webhook(url: &str, allowed: &[&str]) -> Result<Webhook, String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Webhook::new(url, SECRET, Egress::new(allowed.iter().map(|text| text.parse().expect("it is allowed"))), Arc::new(Noon))
    }

    fn notice() -> Notice {
        Notice {
            tenant: "acme".into(),
            interrupt: InterruptId { run: RunId(uuid::Uuid::from_u128(7)), number: 4 },
            agent: "clerk".into(),
            cause: Cause::Approval,
            tool: Some("pay".into()),
            at: Timestamp(43_199_000),
        }
    }

    /// Answers one request with this status and returns the request.
    async fn receive(listener: &TcpListener, status: &str) -> String {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut text = String::new();
        while !text.ends_with('}') {
            let mut part = [0; 4096];
            let length = socket.read(&mut part).await.expect("a request");
            text.push_str(std::str::from_utf8(&part[..length]).expect("text"));
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n\r\n");
        socket.write_all(answer.as_bytes()).await.expect("it is answered");
        text
    }

    #[tokio::test]
    async fn a_notice_is_a_signed_post_without_arguments() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://127.0.0.1:{}/hook", listener.local_addr().expect("an address").port());
        let hook = webhook(&url, &["127.0.0.1"]).expect("it is allowed");
        let notice = notice();
        let (sent, request) = tokio::join!(hook.notify(&notice), receive(&listener, "204 No Content"));
        assert_eq!(sent, Ok(()));
        let (head, body) = request.split_once("\r\n\r\n").expect("a body");
        let expected = json!({
            "type": "interrupt.opened", "interrupt_id": "int_00000000000000000000000000000007_4", "tenant": "acme", "agent_id": "clerk",
            "run_id": "run_00000000000000000000000000000007", "cause": "approval", "tool": "pay", "created_at": 43_199,
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).expect("JSON"), expected);
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let signature = head.lines().find_map(|line| line.strip_prefix("x-windlass-signature: sha256=")).expect("a signature");
        let bytes: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&signature[at..at + 2], 16).expect("hex")).collect();
        assert!(hmac::verify(&key, format!("43200.{body}").as_bytes(), &bytes).is_ok());
        assert!(hmac::verify(&key, format!("43201.{body}").as_bytes(), &bytes).is_err(), "the time is signed, too");
        assert!(head.contains("x-windlass-timestamp: 43200") && head.contains("x-windlass-delivery: int_"), "{head}");
        for status in ["500 No", "302 Found"] {
            let (sent, _) = tokio::join!(hook.notify(&notice), receive(&listener, status));
            assert_eq!(sent, Err(format!("it answered with HTTP {}", &status[..3])), "no redirect is followed");
        }
    }

    #[tokio::test]
    async fn a_notice_goes_only_where_the_operator_allows() {
        assert!(webhook("http://127.0.0.1/hook", &[]).err().expect("it is refused").contains("egress.allow"));
        assert!(webhook("ftp://example.com/", &[]).is_err());
        let hook = webhook("http://localhost:1/hook", &[]).expect("names are checked when they are used");
        assert!(hook.notify(&notice()).await.expect_err("it is inside").contains("egress.allow"));
        let short = Webhook::new("https://example.com/", "short", Egress::default(), Arc::new(Noon));
        assert!(short.err().expect("it is refused").contains("16 characters"));
    }
}
