//! Puts a model's answer together, within its limits, and announces its words on the way if the run wants that.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use windlass_kernel::{AgentKey, ChunkLengths, Epoch, FailureCause, Reply, RunId, StreamedText, content::Reasoning};
use windlass_ports::{Announcement, Clock, CommitKind, ModelError, ModelEvent, ModelStream, Retry, StoreError};

use crate::{
    engine::Inner,
    live::Words,
    note::{Note, Reasoned},
    tally::Tally,
};

/// The pause before words are offered to the store again that could not take them.
const STORE_PAUSE: Duration = Duration::from_millis(100);

/// Thoughts of one answer.
const THOUGHTS_MAX: usize = 256;

/// Why there is no answer.
pub(crate) enum NoReply {
    /// The model failed.
    Failed(ModelError),
    /// It does not repeat the words that were announced of an earlier try.
    Diverged,
    /// Nothing may be announced any more: the run has moved on.
    Closed,
}

/// The largest answer that is taken.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub bytes: usize,
    pub calls: usize,
}

/// Where words are announced.
#[derive(Clone)]
pub(crate) struct Announcer {
    pub inner: Arc<Inner>,
    pub agent: AgentKey,
    pub run: RunId,
    pub epoch: Epoch,
    pub iteration: u32,
    pub attempt: u32,
    pub words: Arc<Words>,
    /// Whether nothing but signs of life is announced: what the model says is for the run alone.
    pub is_mute: bool,
    /// Who has thoughts put on record.
    pub notes: mpsc::Sender<Note>,
}

/// Words on their way to the store.
type Keeping<'a> = Pin<Box<dyn Future<Output = Result<(), NoReply>> + Send + 'a>>;

/// Puts an answer together. Nobody hears of it before it is whole.
pub(crate) async fn gather(mut stream: ModelStream, limits: Limits, clock: &dyn Clock, tally: &mut Tally) -> Result<Reply, NoReply> {
    let mut answer = Answer::new(limits);
    while let Some(event) = stream.next().await {
        let event = event.map_err(NoReply::Failed)?;
        tally.hear(&event, clock);
        answer.take(event)?;
    }
    Ok(answer.reply)
}

/// How an answer stands to the words that were announced of an earlier try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// It begins with them again.
    Anew,
    /// It goes on after them.
    Behind,
}

/// Puts an answer together and announces its words as they come, in the pieces they come in.
pub(crate) async fn announce(
    mut stream: ModelStream,
    begins: Begins,
    limits: Limits,
    announcer: Announcer,
    tally: &mut Tally,
) -> Result<Reply, NoReply> {
    let announced = announcer.words.said().text;
    let mut answer = Answer::new(limits);
    if begins == Begins::Behind {
        answer.take(ModelEvent::Text(announced.clone()))?;
    }
    let (has_spoken, begun) = (!announced.is_empty(), answer.reply.text.len());
    let mut repeated = Repeated { announced, seen: begun };
    let mut waiting = StreamedText::default();
    let mut keeping: Option<Keeping<'_>> = None;
    loop {
        // What has come already goes into one batch, and an answer that is there at once is never announced in parts.
        let event = match stream.next().now_or_never() {
            Some(event) => event,
            None => {
                if keeping.is_none() && !waiting.chunks.is_empty() {
                    // Words stand behind the thoughts they came from, and nothing is put before what was announced.
                    if !waiting.text.is_empty() && !answer.reply.reasoning.is_empty() {
                        announcer.reason(std::mem::take(&mut answer.reply.reasoning)).await?;
                    }
                    keeping = Some(Box::pin(announcer.keep(std::mem::take(&mut waiting))));
                }
                tokio::select! {
                    kept = async { keeping.as_mut().expect("polled only if there is one").await }, if keeping.is_some() => {
                        keeping = None;
                        kept?;
                        continue;
                    }
                    event = stream.next() => event,
                    () = announcer.words.quiet.notified(), if keeping.is_none() => {
                        waiting.chunks.0.push(0);
                        continue;
                    }
                }
            }
        };
        let Some(event) = event else { break };
        let event = event.map_err(NoReply::Failed)?;
        tally.hear(&event, announcer.inner.clock.as_ref());
        match event {
            ModelEvent::Text(text) if announcer.is_mute => answer.take(ModelEvent::Text(text))?,
            ModelEvent::Text(text) => {
                let fresh = repeated.swallow(&text)?.to_owned();
                if !fresh.is_empty() {
                    waiting.text.push_str(&fresh);
                    waiting.chunks.0.push(fresh.len() as u32);
                }
                answer.take(ModelEvent::Text(text))?;
            }
            // The words that another try announced have its thoughts before them.
            ModelEvent::Reasoning(_) if has_spoken && answer.reply.text.len() == begun => {}
            event @ (ModelEvent::Taken
            | ModelEvent::Model(_)
            | ModelEvent::Reasoning(_)
            | ModelEvent::Call(_)
            | ModelEvent::Usage(_)
            | ModelEvent::Finish(_)) => answer.take(event)?,
        }
    }
    if let Some(keeping) = keeping {
        keeping.await?;
    }
    repeated.is_whole()?;
    // What is not announced yet is, with the reply: its commit comes next.
    let mut chunks = announcer.words.said().chunks;
    chunks.0.append(&mut waiting.chunks.0);
    Ok(Reply { chunks, ..answer.reply })
}

impl Announcer {
    /// Has thoughts put on record, and shown, before the first words of a message.
    async fn reason(&self, reasoning: Vec<Reasoning>) -> Result<(), NoReply> {
        let (done, taken) = oneshot::channel();
        let (run, iteration, attempt, place) = (self.run, self.iteration, self.attempt, self.words.place());
        let note = Note::Reasoned(Box::new(Reasoned { run, iteration, attempt, place, reasoning, done }));
        self.notes.send(note).await.map_err(|_| NoReply::Closed)?;
        taken.await.map_err(|_| NoReply::Closed)
    }

    /// Has words kept and shown, whatever becomes of the model call meanwhile: whoever waits for the turn knows that they are.
    async fn keep(&self, more: StreamedText) -> Result<(), NoReply> {
        let turn = self.words.turn.clone().lock_owned().await;
        if !turn.0 {
            return Err(NoReply::Closed);
        }
        let (done, kept) = oneshot::channel();
        let announcer = self.clone();
        self.inner.tasks.spawn(async move {
            let outcome = announcer.store(more).await;
            drop(turn);
            let _ = done.send(outcome);
        });
        kept.await.unwrap_or(Err(NoReply::Closed))
    }

    /// A store that does not answer is asked again: it may have the words.
    async fn store(&self, more: StreamedText) -> Result<(), NoReply> {
        let first = self.words.count() as u32;
        let (agent, run, epoch) = (self.agent.clone(), self.run, self.epoch);
        let words = Announcement { agent, run, epoch, first, text: more.text.clone(), pieces: more.chunks.clone() };
        loop {
            // A node without a lease may not be the owner any more.
            if !self.inner.lease.holds() {
                return Err(NoReply::Closed);
            }
            self.inner.crash.before_commit(CommitKind::Announce);
            match self.inner.store.announce(words.clone()).await {
                Ok(()) => break,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(STORE_PAUSE).await,
                Err(StoreError::Fenced | StoreError::Corrupt(_)) => return Err(NoReply::Closed),
            }
        }
        self.inner.crash.after_commit(CommitKind::Announce);
        self.words.show(&more);
        self.inner.tell_readers(&self.agent);
        Ok(())
    }
}

/// What an earlier try announced: this one must begin with it.
struct Repeated {
    announced: String,
    seen: usize,
}

impl Repeated {
    /// Swallows what repeats what was announced; returns what is new.
    fn swallow<'a>(&mut self, text: &'a str) -> Result<&'a str, NoReply> {
        let left = &self.announced.as_bytes()[self.seen..];
        let same = left.len().min(text.len());
        if left[..same] != text.as_bytes()[..same] {
            return Err(NoReply::Diverged);
        }
        self.seen += same;
        // A boundary inside of a character would have been one of the announced text too.
        text.get(same..).ok_or(NoReply::Diverged)
    }

    fn is_whole(&self) -> Result<(), NoReply> {
        if self.seen == self.announced.len() { Ok(()) } else { Err(NoReply::Diverged) }
    }
}

/// An answer in the making.
struct Answer {
    reply: Reply,
    bytes: usize,
    limits: Limits,
}

impl Answer {
    fn new(limits: Limits) -> Self {
        Answer { reply: Reply { chunks: ChunkLengths::default(), ..Reply::default() }, bytes: 0, limits }
    }

    fn take(&mut self, event: ModelEvent) -> Result<(), NoReply> {
        match event {
            ModelEvent::Reasoning(thought) => {
                self.bytes += thought.bytes();
                let place = if self.reply.text.is_empty() { &mut self.reply.reasoning } else { &mut self.reply.afterthoughts };
                place.push(thought);
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
        let thoughts = self.reply.reasoning.len() + self.reply.afterthoughts.len();
        if self.bytes > self.limits.bytes || self.reply.calls.len() > self.limits.calls || thoughts > THOUGHTS_MAX {
            let message = "the model's answer is larger than allowed".to_owned();
            return Err(NoReply::Failed(ModelError {
                code: "answer_too_large".into(),
                cause: FailureCause::BadAnswer,
                message,
                retry: Retry::Never,
            }));
        }
        Ok(())
    }
}
