//! One request and its answer, from the first byte out to the last event in.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use reqwest::{RequestBuilder, Response, header::CONTENT_TYPE};
use serde_json::Value;
use sse_stream::{Sse, SseByteStream};
use tokio::time::{Instant, timeout};
use windlass_kernel::Usage;
use windlass_ports::{ModelError, ModelEvent, ModelStream};

use crate::{
    cap::{Cap, capped},
    failure,
    limits::{AFTER_FINISH_MS_MAX, ANSWER_BYTES_MAX, CONTENT_BYTES_MAX, EVENT_BYTES_MAX},
    upstream::Upstream,
};

/// An answer in the making, in the words of one protocol. It never holds more than the limits allow.
pub trait Answer: Send + 'static {
    /// What the protocol calls an answer.
    const KIND: &'static str;

    /// Whether the end mark `[DONE]` is enough, though nobody said that the answer is finished.
    const ENDS_BY_MARK: bool;

    /// Takes one event, and returns what can go on already.
    fn take(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused>;

    /// Takes an answer that was not streamed.
    fn take_whole(&mut self, json: &str) -> Result<Vec<ModelEvent>, Refused>;

    /// How far it is.
    fn progress(&self) -> Progress;

    /// What an answer that was broken off has used, if its upstream told that with the error.
    fn used(&self) -> Option<Usage> {
        None
    }

    /// What was held back until the end.
    fn end(&mut self) -> Result<Vec<ModelEvent>, ModelError>;
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing of it has come.
    #[default]
    Awaited,
    /// Something has come, be it empty.
    Begun,
    /// The model has said that it is done; something about the answer may still come.
    Finished,
    /// Nothing more comes.
    Whole,
}

/// What an upstream said instead of a piece of its answer.
#[derive(Debug)]
pub enum Refused {
    /// It is an error of our own wording.
    Ours(ModelError),
    /// It is the upstream's error object, which the exchange knows how to tell.
    Theirs(Value),
}

impl From<ModelError> for Refused {
    fn from(error: ModelError) -> Self {
        Refused::Ours(error)
    }
}

/// One call under way.
pub(crate) struct Exchange<A> {
    upstream: Arc<Upstream>,
    phase: Phase,
    ready: VecDeque<ModelEvent>,
    /// Whether anything of the answer has come.
    is_taken: bool,
    /// When the call began, for the limit before the first event.
    began: Option<Instant>,
    /// Whether an event has come, of whatever content: from then on the idle limit counts.
    has_event: bool,
    answer: A,
}

/// What comes next.
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
    /// The stream of a call. Nothing is sent before it is polled.
    pub(crate) fn start(upstream: Arc<Upstream>, http: RequestBuilder, answer: A) -> ModelStream {
        let phase = Phase::Send(http);
        Self::from(upstream, phase, answer)
    }

    /// The stream of a call that was sent and has been answered with this.
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
            // What came before an error is told before it.
            self.phase = advanced.unwrap_or_else(Phase::Failed);
        }
    }

    async fn send(&mut self, http: RequestBuilder) -> Result<Response, ModelError> {
        let sent = timeout(self.first_byte_left(), http.send()).await.map_err(|_| self.upstream.silent())?;
        sent.map_err(|error| self.upstream.unreachable(error))
    }

    /// How long the first byte may still take. The time counts from the first question.
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
            // The answer is whole; only the usage or the end mark is missing.
            Err(_) | Ok(None) if finished => return self.end(),
            Err(_) if self.has_event => return Err(self.upstream.stalled()),
            Err(_) => return Err(self.upstream.silent()),
            Ok(None) => return Err(self.upstream.cut("the stream ended before the answer did")),
            Ok(Some(Err(error))) => {
                let error = self.upstream.broken(error);
                return if finished && error.code == "stream_cut" { self.end() } else { Err(error) };
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
        // What can be told says as much.
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
