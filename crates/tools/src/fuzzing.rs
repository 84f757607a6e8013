//! Entry points for fuzzing: sessions whose other end sends arbitrary bytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures_util::stream::BoxStream;
use reqwest::{
    Response,
    header::{HeaderName, HeaderValue},
};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage},
    service::{ClientLifecycleMode, serve_client},
    transport::{
        async_rw::AsyncRwTransport,
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse},
    },
};
use sse_stream_rmcp::Sse;
use tokio::io::{AsyncRead, AsyncWrite};
use windlass_kernel::CallKey;
use windlass_ports::{OfferedTool, ToolReport};

use crate::{
    Failure, Limits,
    headers::Headers,
    http::{Http, HttpError},
    outcome,
    servers::offered,
    session::{Listener, Session, over_http},
};

/// The result of a session: its tools and the report of one call, or why it failed.
pub type ServerAnswer = Result<(Vec<OfferedTool>, ToolReport), String>;

/// Opens a session over these pipes, lists the tools and makes one call.
pub async fn over_pipes<R, W>(output: R, input: W, limits: &Limits, key: CallKey) -> ServerAnswer
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let pipes = AsyncRwTransport::new(output, input).with_max_line_length(limits.answer_bytes_max);
    let opening = async { serve_client(Listener::default(), pipes).await.map_err(|error| outcome::opening_error(&error)) };
    let service = within(limits.connect, opening).await?;
    ask(Session::of(service, None).await, limits, key).await
}

/// The same over HTTP. Each request is answered with the next of `answers`.
pub async fn over_answers(answers: VecDeque<Response>, limits: &Limits, key: CallKey) -> ServerAnswer {
    let answers = Answers { http: http(limits), answers: Arc::new(Mutex::new(answers)) };
    let opening = async {
        let opened = over_http(&answers, &"http://fuzzed/mcp".into(), ClientLifecycleMode::Initialize).await;
        opened.map_err(|error| outcome::opening_error(&error))
    };
    let service = within(limits.connect, opening).await?;
    ask(Session::of(service, None).await, limits, key).await
}

async fn within<T>(time: Duration, opening: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(time, opening).await.unwrap_or_else(|_| Err("no session was opened in time".to_owned()))
}

async fn ask(session: Session, limits: &Limits, key: CallKey) -> ServerAnswer {
    let message = |failure: Failure| match failure {
        Failure::Refused(why) | Failure::Failed(why) | Failure::Busy(why) => why,
    };
    let tools = session.tools(limits).await.map_err(message);
    let called = within(limits.list, async { session.call("tool", None, key.to_string()).await.map_err(message) }).await;
    session.close().await;
    let report = called.map_or_else(|why| outcome::failed("server_failed", &why), outcome::report);
    Ok((tools?.iter().map(|tool| offered(tool, None)).collect(), report))
}

fn http(limits: &Limits) -> Http {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        // Installing a provider a second time is an error, and the first one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        reqwest::Client::new()
    });
    Http { client: client.clone(), headers: Headers::default(), answer_bytes_max: limits.answer_bytes_max, is_trusted: false }
}

/// A server that replays recorded answers.
#[derive(Clone)]
struct Answers {
    http: Http,
    answers: Arc<Mutex<VecDeque<Response>>>,
}

impl StreamableHttpClient for Answers {
    type Error = HttpError;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<HttpError>> {
        let JsonRpcMessage::Request(request) = message else { return Ok(StreamableHttpPostResponse::Accepted) };
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let response = next.ok_or(StreamableHttpError::Client(HttpError::Unreachable))?;
        self.http.answer(response, Some(request.id), session_id.is_some()).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        _session_id: Arc<str>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<HttpError>> {
        Ok(())
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session_id: Option<Arc<str>>,
        _last_event_id: Option<String>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<HttpError>> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
