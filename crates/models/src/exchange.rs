//! One HTTP exchange with a provider: sends the request and turns the answer into model events, within the limits on time and size.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use reqwest::{RequestBuilder, Response, header::CONTENT_TYPE};
use serde_json::Value;
use sse_stream::{Sse, SseByteStream};
use tokio::time::{Instant, timeout};
use windlass_kernel::{FailureCode, Usage};
use windlass_ports::{ModelError, ModelEvent, ModelStream};

use crate::{
    cap::{Cap, capped},
    failure,
    limits::{AFTER_FINISH_MS_MAX, ANSWER_BYTES_MAX, CONTENT_BYTES_MAX, EVENT_BYTES_MAX},
    upstream::Upstream,
};

/// Assembles an answer of one protocol. It never buffers more than the limits allow.
pub trait Answer: Send + 'static {
    /// The protocol's name of an answer, for error messages.
    const KIND: &'static str;

    /// Whether the end mark `[DONE]` completes an answer without a finish reason before it.
    const ENDS_BY_MARK: bool;

    /// Reads one event of a stream and returns the model events that can be passed on already.
    fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused>;

    /// Reads an answer that is not streamed.
    fn take_whole(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused>;

    /// How much of the answer has arrived.
    fn progress(&self) -> Progress;

    /// The tokens of an answer that ended with an error, if the provider reported them with it.
    fn used(&self) -> Option<Usage> {
        None
    }

    /// The model events that were buffered until the end of the answer.
    fn end(&mut self) -> Result<Vec<ModelEvent>, ModelError>;
}

/// How much of an answer has arrived. The order is that of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing has arrived yet.
    #[default]
    Awaited,
    /// An event of the answer has arrived, possibly without content.
    Begun,
    /// The model has finished; metadata such as the usage may still follow.
    Finished,
    /// The answer is complete.
    Whole,
}

/// Why an event is no part of an answer.
#[derive(Debug)]
pub enum Refused {
    /// An error that this crate worded, such as a violation of the protocol.
    Ours(ModelError),
    /// The provider's own error object, which the exchange maps to a [`ModelError`].
    Theirs(Value),
}

impl From<ModelError> for Refused {
    fn from(error: ModelError) -> Self {
        Refused::Ours(error)
    }
}

/// One model call in progress.
pub(crate) struct Exchange<A> {
    upstream: Arc<Upstream>,
    phase: Phase,
    ready: VecDeque<ModelEvent>,
    /// Whether an event of the answer has arrived.
    is_taken: bool,
    /// The start of the call, from which the limit for the first event counts.
    began: Option<Instant>,
    /// Whether any event has arrived. From then on the idle limit applies.
    has_event: bool,
    answer: A,
}

/// The next step of the exchange.
enum Phase {
    Send(RequestBuilder),
    Open(Response),
    Stream(Events),
    Whole(Response),
    Failed(ModelError),
    Ended,
}

type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

impl<A: Answer> Exchange<A> {
    /// The stream of a call. The request is sent when the stream is polled.
    pub(crate) fn start(upstream: Arc<Upstream>, http: RequestBuilder, answer: A) -> ModelStream {
        let phase = Phase::Send(http);
        Self::from(upstream, phase, answer)
    }

    /// The stream of a call that was answered with `response`.
    pub(crate) fn answered(upstream: Arc<Upstream>, response: Response, answer: A) -> ModelStream {
        Self::from(upstream, Phase::Open(response), answer)
    }

    fn from(upstream: Arc<Upstream>, phase: Phase, answer: A) -> ModelStream {
        let exchange = Exchange { upstream, phase, ready: VecDeque::new(), is_taken: false, began: None, has_event: false, answer };
        Box::pin(stream::unfold(exchange, Exchange::next))
    }

    async fn next(mut self) -> Option<(Result<ModelEvent, ModelError>, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            let advanced = match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Send(http) => self.send(http).await.map(Phase::Open),
                Phase::Open(response) => self.open(response).await,
                Phase::Stream(events) => self.read(events).await,
                Phase::Whole(response) => self.read_whole(response).await,
                Phase::Failed(error) => return Some((Err(error), self)),
                Phase::Ended => return None,
            };
            // Events that arrived before an error are passed on before it.
            self.phase = advanced.unwrap_or_else(Phase::Failed);
        }
    }

    async fn send(&mut self, http: RequestBuilder) -> Result<Response, ModelError> {
        let sent = timeout(self.first_byte_left(), http.send()).await.map_err(|_| self.upstream.silent())?;
        sent.map_err(|error| self.upstream.unreachable(error))
    }

    /// The time left for the first byte, counted from the first call of this function.
    fn first_byte_left(&mut self) -> Duration {
        let began = *self.began.get_or_insert_with(Instant::now);
        self.upstream.first_byte.saturating_sub(began.elapsed())
    }

    async fn open(&mut self, response: Response) -> Result<Phase, ModelError> {
        if !response.status().is_success() {
            return Err(self.upstream.refusal(response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if content_type.trim_start().to_ascii_lowercase().starts_with("application/json") {
            return Ok(Phase::Whole(response));
        }
        let cap = Cap { event_bytes: EVENT_BYTES_MAX, answer_bytes: ANSWER_BYTES_MAX };
        let bytes = capped(response.bytes_stream().boxed(), cap);
        Ok(Phase::Stream(Box::pin(SseByteStream::new(Box::pin(bytes)))))
    }

    async fn read(&mut self, mut events: Events) -> Result<Phase, ModelError> {
        let finished = self.answer.progress() >= Progress::Finished;
        let after_finish = Duration::from_millis(AFTER_FINISH_MS_MAX).min(self.upstream.idle);
        let patience = match (finished, self.has_event) {
            (true, _) => after_finish,
            (false, true) => self.upstream.idle,
            (false, false) => self.first_byte_left(),
        };
        let event = match timeout(patience, events.next()).await {
            Ok(Some(Ok(event))) => event,
            // The text is complete; only the usage or the end mark is missing.
            Err(_) | Ok(None) if finished => return self.end(),
            Err(_) if self.has_event => return Err(self.upstream.stalled()),
            Err(_) => return Err(self.upstream.silent()),
            Ok(None) => return Err(self.upstream.cut("the stream ended before the answer did")),
            Ok(Some(Err(error))) => {
                let error = self.upstream.broken(error);
                return if finished && error.code == FailureCode::StreamCut { self.end() } else { Err(error) };
            }
        };
        self.has_event = true;
        match event.data.as_deref().map(str::trim) {
            None | Some("") => {}
            Some("[DONE]") if self.may_end_by_mark() => return self.end(),
            Some("[DONE]") => return Err(self.upstream.cut("the stream ended before the answer did")),
            Some(data) => {
                let taken = self.answer.take(data);
                self.keep(taken)?;
            }
        }
        if self.answer.progress() == Progress::Whole { self.end() } else { Ok(Phase::Stream(events)) }
    }

    async fn read_whole(&mut self, response: Response) -> Result<Phase, ModelError> {
        let first = self.first_byte_left();
        let body = self.upstream.body(response, CONTENT_BYTES_MAX, first).await?;
        if body.is_truncated {
            return Err(failure::too_large(format!("the answer has more than {CONTENT_BYTES_MAX} bytes")));
        }
        let taken = self.answer.take_whole(&body.text);
        self.keep(taken)?;
        if self.answer.progress() == Progress::Awaited {
            return Err(failure::garbage(format!("{} sent JSON that is no {}", self.upstream.place(), A::KIND)));
        }
        self.end()
    }

    fn may_end_by_mark(&self) -> bool {
        let enough = if A::ENDS_BY_MARK { Progress::Begun } else { Progress::Finished };
        self.answer.progress() >= enough
    }

    fn keep(&mut self, taken: Result<Vec<ModelEvent>, Refused>) -> Result<(), ModelError> {
        let events = taken.map_err(|refused| {
            self.ready.extend(self.answer.used().map(ModelEvent::Usage));
            match refused {
                Refused::Ours(error) => error,
                Refused::Theirs(error) => self.upstream.error_object(&error),
            }
        })?;
        // `Taken` reports to the engine that the provider accepted the request. Any other event shows that as well.
        let is_first = !std::mem::replace(&mut self.is_taken, true);
        if is_first && events.is_empty() {
            self.ready.push_back(ModelEvent::Taken);
        }
        self.ready.extend(events);
        Ok(())
    }

    fn end(&mut self) -> Result<Phase, ModelError> {
        self.ready.extend(self.answer.end()?);
        Ok(Phase::Ended)
    }
}
