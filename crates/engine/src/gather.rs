//! Collects a model's answer, within its limits, and streams its text as deltas if the run asks for that.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use windlass_kernel::{
    AgentKey, ChunkLengths, Epoch, FailureCause, FailureCode, ModelCallId, Reply, RunId, StreamedText, content::Reasoning,
};
use windlass_ports::{Clock, DeltaBatch, ModelError, ModelEvent, ModelStream, Retry, StoreError};

use crate::{
    engine::Inner,
    stream_buffer::StreamBuffer,
    token_meter::TokenMeter,
    worker_message::{Reasoned, WorkerMessage},
};

/// The pause before a delta batch that the store could not take is sent again.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// The largest number of reasoning items in one answer.
const REASONING_MAX: usize = 256;

/// Why a model call gives no reply.
pub(crate) enum ReplyError {
    /// The model failed.
    Failed(ModelError),
    /// The answer does not begin with the text that an earlier attempt streamed.
    ReplayMismatch,
    /// The stream buffer is closed: the run has moved on.
    Closed,
}

/// The largest answer that is accepted.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub bytes: usize,
    pub calls: usize,
}

/// Streams the text of one model call.
#[derive(Clone)]
pub(crate) struct Streamer {
    pub inner: Arc<Inner>,
    pub agent: AgentKey,
    pub run: RunId,
    pub epoch: Epoch,
    pub id: ModelCallId,
    pub buffer: Arc<StreamBuffer>,
    /// Whether only heartbeats are streamed: the text of a summary is for the run alone.
    pub heartbeats_only: bool,
    /// The worker's mailbox, by which reasoning is committed before the text that follows it.
    pub mailbox: mpsc::Sender<WorkerMessage>,
}

/// A delta batch on its way to the store.
type BatchWrite<'a> = Pin<Box<dyn Future<Output = Result<(), ReplyError>> + Send + 'a>>;

/// Collects an answer without streaming it.
pub(crate) async fn gather(
    mut stream: ModelStream,
    limits: Limits,
    clock: &dyn Clock,
    meter: &mut TokenMeter,
) -> Result<Reply, ReplyError> {
    let mut answer = AnswerBuilder::new(limits);
    while let Some(event) = stream.next().await {
        let event = event.map_err(ReplyError::Failed)?;
        meter.observe(&event, clock);
        answer.add(event)?;
    }
    Ok(answer.reply)
}

/// How an answer relates to the text that an earlier attempt streamed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// The answer repeats that text from its start.
    FromStart,
    /// The answer continues after that text, which the model was given as a prefill.
    AfterPrefix,
}

/// Collects an answer and streams its text as it arrives, in the chunks in which it arrives.
pub(crate) async fn stream_answer(
    mut stream: ModelStream,
    replay: Replay,
    limits: Limits,
    streamer: Streamer,
    meter: &mut TokenMeter,
) -> Result<Reply, ReplyError> {
    let streamed = streamer.buffer.streamed_text().text;
    let mut answer = AnswerBuilder::new(limits);
    if replay == Replay::AfterPrefix {
        answer.add(ModelEvent::Text(streamed.clone()))?;
    }
    let (has_streamed, prefix_length) = (!streamed.is_empty(), answer.reply.text.len());
    let mut replay_check = ReplayCheck { streamed, seen: prefix_length };
    let mut unsent = StreamedText::default();
    let mut writing: Option<BatchWrite<'_>> = None;
    loop {
        // Events that have arrived already go into one batch. An answer that is complete at once is never streamed in parts.
        let event = match stream.next().now_or_never() {
            Some(event) => event,
            None => {
                if writing.is_none() && !unsent.chunks.is_empty() {
                    // Text is stored after the reasoning that led to it, and no reasoning is stored before text that was streamed
                    // already.
                    if !unsent.text.is_empty() && !answer.reply.reasoning.is_empty() {
                        streamer.commit_reasoning(std::mem::take(&mut answer.reply.reasoning)).await?;
                    }
                    writing = Some(Box::pin(streamer.write_batch(std::mem::take(&mut unsent))));
                }
                tokio::select! {
                    written = async { writing.as_mut().expect("polled only if there is one").await }, if writing.is_some() => {
                        writing = None;
                        written?;
                        continue;
                    }
                    event = stream.next() => event,
                    () = streamer.buffer.heartbeat_requested.notified(), if writing.is_none() => {
                        unsent.chunks.0.push(0);
                        continue;
                    }
                }
            }
        };
        let Some(event) = event else { break };
        let event = event.map_err(ReplyError::Failed)?;
        meter.observe(&event, streamer.inner.clock.as_ref());
        match event {
            ModelEvent::Text(text) if streamer.heartbeats_only => answer.add(ModelEvent::Text(text))?,
            ModelEvent::Text(text) => {
                let new_part = replay_check.take_new_part(&text)?.to_owned();
                if !new_part.is_empty() {
                    unsent.text.push_str(&new_part);
                    unsent.chunks.0.push(new_part.len() as u32);
                }
                answer.add(ModelEvent::Text(text))?;
            }
            // The reasoning of the attempt that streamed the text is stored before it. This attempt's reasoning for the same text is
            // dropped.
            ModelEvent::Reasoning(_) if has_streamed && answer.reply.text.len() == prefix_length => {}
            event @ (ModelEvent::Taken
            | ModelEvent::Model(_)
            | ModelEvent::Reasoning(_)
            | ModelEvent::Call(_)
            | ModelEvent::Usage(_)
            | ModelEvent::Finish(_)) => answer.add(event)?,
        }
    }
    if let Some(writing) = writing {
        writing.await?;
    }
    replay_check.check_complete()?;
    // Text that is not streamed yet is published with the reply, whose commit comes next.
    let mut chunks = streamer.buffer.streamed_text().chunks;
    chunks.0.append(&mut unsent.chunks.0);
    Ok(Reply { chunks, ..answer.reply })
}

impl Streamer {
    /// Has the worker commit the reasoning before the first text of a message, and waits for that.
    async fn commit_reasoning(&self, reasoning: Vec<Reasoning>) -> Result<(), ReplyError> {
        let (done, committed) = oneshot::channel();
        let (run, id, position) = (self.run, self.id, self.buffer.position());
        let message = WorkerMessage::Reasoned(Box::new(Reasoned { run, id, position, reasoning, done }));
        self.mailbox.send(message).await.map_err(|_| ReplyError::Closed)?;
        committed.await.map_err(|_| ReplyError::Closed)
    }

    /// Stores and publishes a delta batch in a task of its own, which continues if the model call is cancelled. The task holds the write
    /// lock, so that a caller who gets the lock knows that no batch is being written.
    async fn write_batch(&self, more: StreamedText) -> Result<(), ReplyError> {
        let is_open = self.buffer.write_lock.clone().lock_owned().await;
        if !is_open.0 {
            return Err(ReplyError::Closed);
        }
        let (done, written) = oneshot::channel();
        let streamer = self.clone();
        self.inner.tasks.spawn(async move {
            let outcome = streamer.store_batch(more).await;
            drop(is_open);
            let _ = done.send(outcome);
        });
        written.await.unwrap_or(Err(ReplyError::Closed))
    }

    /// Stores a delta batch. If the store is unavailable, the same batch is sent again, because the store may have it already.
    async fn store_batch(&self, more: StreamedText) -> Result<(), ReplyError> {
        let first = self.buffer.chunk_count() as u32;
        let (agent, run, epoch) = (self.agent.clone(), self.run, self.epoch);
        let batch = DeltaBatch { agent, run, epoch, first, text: more.text.clone(), pieces: more.chunks.clone() };
        loop {
            // A process without a lease may not be the owner any more.
            if !self.inner.lease.holds() {
                return Err(ReplyError::Closed);
            }
            match self.inner.store.append_deltas(batch.clone()).await {
                Ok(()) => break,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(STORE_PAUSE).await,
                Err(StoreError::Fenced | StoreError::Corrupt(_)) => return Err(ReplyError::Closed),
            }
        }
        self.buffer.append(&more);
        self.inner.notify_readers(&self.agent);
        Ok(())
    }
}

/// The text that an earlier attempt streamed, with which this attempt must begin.
struct ReplayCheck {
    streamed: String,
    seen: usize,
}

impl ReplayCheck {
    /// Consumes the part of `text` that repeats the streamed text. Returns the rest, which is new.
    fn take_new_part<'a>(&mut self, text: &'a str) -> Result<&'a str, ReplyError> {
        let left = &self.streamed.as_bytes()[self.seen..];
        let same = left.len().min(text.len());
        if left[..same] != text.as_bytes()[..same] {
            return Err(ReplyError::ReplayMismatch);
        }
        self.seen += same;
        // A chunk boundary inside a character would also have been one in the streamed text.
        text.get(same..).ok_or(ReplyError::ReplayMismatch)
    }

    fn check_complete(&self) -> Result<(), ReplyError> {
        if self.seen == self.streamed.len() { Ok(()) } else { Err(ReplyError::ReplayMismatch) }
    }
}

/// An answer that is being collected.
struct AnswerBuilder {
    reply: Reply,
    bytes: usize,
    limits: Limits,
}

impl AnswerBuilder {
    fn new(limits: Limits) -> Self {
        AnswerBuilder { reply: Reply { chunks: ChunkLengths::default(), ..Reply::default() }, bytes: 0, limits }
    }

    fn add(&mut self, event: ModelEvent) -> Result<(), ReplyError> {
        match event {
            ModelEvent::Reasoning(reasoning) => {
                self.bytes += reasoning.bytes();
                let target = if self.reply.text.is_empty() { &mut self.reply.reasoning } else { &mut self.reply.afterthoughts };
                target.push(reasoning);
            }
            ModelEvent::Text(text) => {
                self.bytes += text.len();
                self.reply.text.push_str(&text);
            }
            ModelEvent::Call(call) => {
                self.bytes += call.arguments.len();
                self.reply.calls.push(call);
            }
            ModelEvent::Taken => {}
            ModelEvent::Model(name) => self.reply.model.upstream = Some(name),
            ModelEvent::Usage(usage) => self.reply.usage = usage,
            ModelEvent::Finish(finish) => self.reply.finish = finish,
        }
        let reasoning_count = self.reply.reasoning.len() + self.reply.afterthoughts.len();
        if self.bytes > self.limits.bytes || self.reply.calls.len() > self.limits.calls || reasoning_count > REASONING_MAX {
            let message = "the model's answer is larger than allowed".to_owned();
            return Err(ReplyError::Failed(ModelError {
                code: FailureCode::AnswerTooLarge,
                cause: FailureCause::BadAnswer,
                message,
                retry: Retry::Never,
            }));
        }
        Ok(())
    }
}
