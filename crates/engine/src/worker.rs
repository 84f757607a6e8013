//! The worker of one agent: messages in, one commit, effects out.
//!
//! A worker keeps its agent's active run in memory only while something of it is in flight in this process. It takes the messages that
//! wait, passes them to the kernel, commits the result as one transition, and only then answers, starts effects and rings the doorbell.
//! If the guard fails, the worker drops everything in memory and loads the agent again.

mod active_run;
mod catch_up;
mod interrupt_answer;
mod observe;
mod pending_message;
mod relatives;
mod resolve;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, Event, Input, RunId, Timestamp, ToolName};
use windlass_ports::{Commit, Committed, Enqueued, Guard, HeadView, JournalRecord, NewRun, StoreError};

use crate::{
    api::EngineError,
    draft::{Draft, settles_text},
    engine::Inner,
    journal_cache::JournalCache,
    worker_message::{Answer, WorkerMessage},
};
use active_run::ActiveRun;
use pending_message::{PendingMessage, Reply};
use relatives::relatives;

/// The number of messages that one commit may include.
const BATCH_MAX: usize = 64;
/// How often a batch is retried after another writer has changed the agent.
const FENCED_MAX: u32 = 8;
/// The longest pause between retries while the store is unavailable.
const STORE_PAUSE_MS_MAX: u64 = 5000;

/// Starts the worker that receives from this mailbox.
pub(crate) fn start(inner: Arc<Inner>, agent: AgentKey, mailbox: mpsc::Sender<WorkerMessage>, messages: mpsc::Receiver<WorkerMessage>) {
    // Effects hold a strong sender of the mailbox. The worker holds a weak one, because otherwise it could never see that all other
    // senders are gone.
    let worker = Worker {
        inner,
        agent,
        mailbox: mailbox.downgrade(),
        messages,
        active: ActiveRun::default(),
        in_doubt_commit: None,
        maybe_entered: BTreeSet::new(),
    };
    worker.inner.clone().tasks.spawn(worker.work());
}

struct Worker {
    inner: Arc<Inner>,
    agent: AgentKey,
    mailbox: mpsc::WeakSender<WorkerMessage>,
    messages: mpsc::Receiver<WorkerMessage>,
    active: ActiveRun,
    /// A commit whose outcome is unknown. It is sent again unchanged: a new draft would have new ids, and the store would not recognise
    /// it.
    in_doubt_commit: Option<Box<(Guard, Commit)>>,
    /// Runs whose enqueue may have entered them, although the store did not confirm it. None of their effects was started.
    maybe_entered: BTreeSet<RunId>,
}

impl Worker {
    async fn work(mut self) {
        loop {
            let Some(batch) = self.next_batch().await else {
                break;
            };
            if AssertUnwindSafe(self.handle(batch)).catch_unwind().await.is_err() {
                self.park_after_panic().await;
            }
        }
        // Messages that arrived while the mailbox was closing go to the next worker.
        while let Some(message) = self.messages.recv().await {
            if let Some(mailbox) = self.inner.mailbox(&self.agent, usize::MAX) {
                mailbox.send(message).await;
            }
        }
        if self.inner.workers.take_turned_away() {
            self.inner.room.notify_one();
        }
    }

    /// The next batch of messages. `None` if nothing is in flight and the mailbox is closed.
    async fn next_batch(&mut self) -> Option<Vec<WorkerMessage>> {
        let first = loop {
            match self.messages.try_recv() {
                Ok(message) => break message,
                Err(_) if self.active.nothing_in_flight() && self.in_doubt_commit.is_none() && self.maybe_entered.is_empty() => {
                    if self.inner.workers.close(&self.agent, &mut self.messages) {
                        return None;
                    }
                }
                Err(_) => break self.messages.recv().await?,
            }
        };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(message) = self.messages.try_recv()
        {
            batch.push(message);
        }
        Some(batch)
    }

    async fn handle(&mut self, batch: Vec<WorkerMessage>) {
        let mut pending = Vec::new();
        let mut must_reload = false;
        self.active.clear_completed();
        for mut message in batch {
            self.active.record_end(&mut message);
            match message {
                WorkerMessage::Enqueue(run, answer) => self.enqueue(*run, answer).await,
                WorkerMessage::CheckStore => must_reload = true,
                other @ (WorkerMessage::Report(..)
                | WorkerMessage::Stop(..)
                | WorkerMessage::Steer(..)
                | WorkerMessage::AnswerInterrupt(..)
                | WorkerMessage::Heartbeat(..)
                | WorkerMessage::Reasoned(_)
                | WorkerMessage::ModelDone(_)
                | WorkerMessage::ToolDone(_)
                | WorkerMessage::ChildStarted(_)) => {
                    pending.push(PendingMessage::new(other));
                }
            }
        }
        if pending.iter().any(PendingMessage::is_unstarted) {
            self.reload_without_lease();
        }
        let mut pause_ms = 50;
        let mut fenced = 0;
        loop {
            let advanced = self.catch_up_and_advance(&mut pending, &mut must_reload).await;
            match advanced.inspect_err(|error| self.observe_error(error)) {
                Ok(Advanced::Done) => return,
                Ok(Advanced::MoreToDo) => {}
                Err(StoreError::Fenced) => {
                    // Another writer changed the agent, so the state in memory is stale.
                    self.active.abandon();
                    pending.retain(|message| !message.is_local());
                    if pending.is_empty() && self.has_other_owner().await {
                        return;
                    }
                    fenced += 1;
                    if fenced >= FENCED_MAX {
                        return fail(pending, || EngineError::Store(StoreError::Fenced));
                    }
                }
                Err(StoreError::Unavailable(why)) => {
                    let (local, asked) = pending.into_iter().partition(PendingMessage::is_local);
                    fail(asked, || EngineError::Store(StoreError::Unavailable(why.clone())));
                    pending = local;
                    if pending.is_empty() && (self.active.nothing_in_flight() || self.in_doubt_commit.is_some()) {
                        // The run in memory belongs to the in-doubt commit and is needed when that one's outcome is known.
                        if self.in_doubt_commit.is_none() {
                            self.active.forget_run();
                        }
                        return self.inner.wake_worker_later(self.agent.clone(), Duration::from_millis(STORE_PAUSE_MS_MAX));
                    }
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                    pause_ms = (pause_ms * 2).min(STORE_PAUSE_MS_MAX);
                }
                Err(StoreError::Corrupt(why)) => {
                    if let Some(run) = self.unreadable_run().await {
                        self.quarantine(run, why.as_str()).await;
                        return fail(pending, || EngineError::Store(StoreError::Corrupt(why.clone())));
                    }
                    fenced += 1;
                    if fenced >= FENCED_MAX {
                        return fail(pending, || EngineError::Store(StoreError::Fenced));
                    }
                }
            }
        }
    }

    /// Whether another process owns the agent and must continue its run. If the store does not answer, the next message causes another
    /// check.
    async fn has_other_owner(&self) -> bool {
        let loaded = self.inner.store.load(&self.agent).await;
        matches!(loaded, Ok(Some(loaded)) if loaded.head.owner != Some(self.inner.node))
    }

    /// Records a new run, and enters it if the agent is idle.
    async fn enqueue(&mut self, mut new: NewRun, answer: Answer<Enqueued>) {
        if self.active.has_run() || *self.inner.draining.borrow() {
            new.enter = None;
        }
        if let Some(enter) = &mut new.enter {
            // It may have waited in the mailbox while the run before it ended, and must not start before that end.
            enter.now = enter.now.max(self.inner.clock.now());
        }
        let id = new.run;
        let rests = new.enter.as_ref().is_some_and(comes_to_rest);
        let begun = self.inner.journal_caches.find(id).and_then(|cache| Some((cache.records_of_new(&new)?, cache)));
        let entered = new.enter.clone();
        let entering = new.enter.clone().map(|enter| ActiveRun::entering(&new, enter));
        let outcome = self.inner.store.enqueue(new).await;
        match (&outcome, entering) {
            (Ok(Enqueued::Entered { epoch, seq, .. }), Some((mut active, claimable))) => {
                active.set_lease(*epoch, *seq);
                if let Some((records, cache)) = begun {
                    cache.publish(records, *epoch);
                }
                self.active.replace(active);
                if let Some(enter) = &entered {
                    self.observe(enter, *epoch);
                    relatives(&self.agent.tenant, enter).iter().for_each(|relative| self.inner.wake_relative(relative));
                }
                self.notify_services(claimable);
                self.notify_watchers(rests);
                self.start_effects();
            }
            (Ok(Enqueued::Dispatched { .. }), _) => {
                self.inner.pass_on(&self.agent);
                self.active.forget_run();
            }
            (Err(_), Some(_)) => drop(self.maybe_entered.insert(id)),
            (Ok(_), _) | (Err(_), None) => self.inner.committed.notify_one(),
        }
        // The answer is sent after the effects were started: the client may send a stop immediately afterwards.
        let _ = answer.send(outcome.map_err(EngineError::from));
    }

    /// Resolves the in-doubt commit first: until its outcome is known, the state to build on is unknown. Then applies the messages.
    async fn catch_up_and_advance(&mut self, pending: &mut Vec<PendingMessage>, must_reload: &mut bool) -> Result<Advanced, StoreError> {
        if let Some(in_doubt_commit) = self.in_doubt_commit.take() {
            let (guard, commit) = *in_doubt_commit;
            self.send(guard, commit).await?;
            self.start_effects();
        }
        if std::mem::take(must_reload) {
            self.active.forget_run();
        }
        self.advance(pending).await
    }

    /// Applies everything that waits, in one commit.
    async fn advance(&mut self, pending: &mut Vec<PendingMessage>) -> Result<Advanced, StoreError> {
        let now = self.inner.clock.now();
        let mut draft = match self.active.run() {
            Some(run) => Draft::new(&run.state),
            // Only a person's stop or decision takes a run from another live process.
            None => match self.load(now, pending.iter().any(PendingMessage::is_person_request)).await? {
                Some(draft) => draft,
                None => return self.resolve_outside_commit(pending).await,
            },
        };
        self.resolve_answered(pending).await?;
        if pending.iter().any(PendingMessage::may_settle_text) {
            self.active.close_buffer().await;
        }
        let caught_up = draft.messages.len();
        for message in pending.iter_mut() {
            message.draft(&mut draft, &self.active, &self.agent.tenant, &self.inner, now);
        }
        let uses_messages = draft.events.iter().any(uses_messages);
        let mut again = false;
        if !draft.is_empty() {
            let committed = self.commit(draft, now).await?;
            let mut rows = committed.messages.iter().skip(caught_up).copied();
            for message in pending.iter_mut().filter(|message| message.is_drafted()) {
                let row = if message.has_message() { rows.next() } else { None };
                message.resolve(Reply::Committed(row));
            }
            // A result that arrived before the run was suspended waits in the inbox, and so does an instruction that another process took.
            // The next run waits for its worker. A child run looks at once: its parent may have ended, and a stop must not wait until the
            // run suspends.
            let is_child = self.active.run().is_some_and(|run| run.state.parent.is_some());
            again = committed.next_leased || (committed.pending > 0 && (uses_messages || is_child));
        }
        pending.retain(|message| !message.is_resolved());
        self.active.clear_completed();
        self.start_effects();
        if pending.is_empty() && !again {
            return Ok(Advanced::Done);
        }
        if again {
            self.active.forget_run();
        }
        self.resolve_outside_commit(pending).await.map(|resolved| if again { Advanced::MoreToDo } else { resolved })
    }

    async fn commit(&mut self, draft: Draft, now: Timestamp) -> Result<Committed, StoreError> {
        let run = self.active.run().expect("a draft is made from a held run");
        let guard = run.guard(&self.agent);
        let commit = draft.into_commit(run.id, run.follows, self.inner.node, now);
        self.send(guard, commit).await
    }

    async fn send(&mut self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let committed = match self.inner.store.commit(guard.clone(), commit.clone()).await {
            Ok(committed) => committed,
            Err(StoreError::Unavailable(why)) => {
                self.in_doubt_commit = Some(Box::new((guard, commit)));
                return Err(StoreError::Unavailable(why));
            }
            Err(error @ (StoreError::Fenced | StoreError::Corrupt(_))) => return Err(error),
        };
        let rests = comes_to_rest(&commit);
        let relatives = relatives(&self.agent.tenant, &commit);
        self.observe(&commit, committed.epoch);
        let publication = self.records_for_followers(&commit);
        match commit.clears_deltas {
            true if text_continues(&commit) => self.active.restart_buffer(commit.run, commit.state.output.length),
            true => self.inner.stream_buffers.remove(commit.run),
            false => {}
        }
        let claimable = self.active.apply_commit(commit, &committed);
        // The journal is published only after the stream buffer was cleared. Otherwise a follower would take the old text for that of the
        // next iteration.
        match publication {
            Some((cache, Some(records))) => cache.publish(records, committed.epoch),
            Some((cache, None)) => cache.invalidate(),
            None => {}
        }
        self.notify_services(claimable);
        self.notify_watchers(rests);
        relatives.iter().for_each(|relative| self.inner.wake_relative(relative));
        if committed.next_leased {
            self.inner.pass_on(&self.agent);
        }
        Ok(committed)
    }

    /// The journal cache of the run, if it is followed in this process, with the commit's records. The records are `None` if the cache
    /// cannot represent the commit.
    fn records_for_followers(&self, commit: &Commit) -> Option<(JournalCache, Option<Vec<JournalRecord>>)> {
        let cache = self.inner.journal_caches.find(commit.run)?;
        let run = self.active.run().filter(|run| run.id == commit.run);
        let records = run.and_then(|run| cache.records(&run.state, commit));
        Some((cache, records))
    }

    /// Handles an effect that found the lease lost just before it would have started. The effect is still owed, but the run is loaded
    /// again first, because another process may own it.
    fn reload_without_lease(&mut self) {
        // A process that drains leaves the effect to the next owner.
        let drains = *self.inner.draining.borrow();
        if let Some(mailbox) = self.mailbox.upgrade().filter(|_| !drains) {
            self.active.defer_effects(&self.inner, &mailbox);
        }
        self.active.forget_run();
    }

    fn start_effects(&mut self) {
        if *self.inner.draining.borrow() {
            return;
        }
        let Some(mailbox) = self.mailbox.upgrade() else { return };
        if !self.inner.lease.holds() {
            return self.active.defer_effects(&self.inner, &mailbox);
        }
        if let Some(pause) = self.active.start_effects(&self.inner, &self.agent, &mailbox) {
            self.inner.wake_worker_later(self.agent.clone(), pause);
        }
    }

    /// Notifies tool services that calls of these tools can be claimed.
    fn notify_services(&self, tools: Vec<ToolName>) {
        for tool in tools {
            self.inner.notify_services(&self.agent.tenant, &tool);
        }
    }

    fn notify_watchers(&self, has_come_to_rest: bool) {
        self.inner.notify_watchers(&self.agent, has_come_to_rest);
    }

    /// The run whose stored state is unreadable, if that is still the case: a person may have abandoned it while it was read.
    async fn unreadable_run(&self) -> Option<RunId> {
        if let Some(run) = self.active.run() {
            return Some(run.id);
        }
        let run = self.inner.views.head(&self.agent).await.ok()??.run?;
        let loaded = self.inner.store.load(&self.agent).await;
        matches!(loaded, Err(StoreError::Corrupt(_))).then_some(run)
    }

    async fn quarantine(&mut self, run: RunId, why: &str) {
        self.active.abandon();
        let AgentKey { tenant, agent } = &self.agent;
        tracing::error!(%tenant, %agent, %run, node = self.inner.node.0, why, "the stored state of the run cannot be read; its agent is quarantined");
        match self.inner.store.quarantine(self.agent.clone(), run, why.to_owned()).await {
            Ok(()) => self.notify_watchers(true),
            Err(error) => tracing::error!(agent = %self.agent.agent, %run, %error, "the agent could not be quarantined"),
        }
    }

    /// Parks the run whose step panicked, so that the process continues. If parking panics too, the agent is quarantined.
    async fn park_after_panic(&mut self) {
        self.active.abandon();
        self.in_doubt_commit = None;
        self.maybe_entered.clear();
        let parked = AssertUnwindSafe(async {
            let now = self.inner.clock.now();
            if let Some(mut draft) = self.load(now, true).await? {
                let manifest = self.active.run().expect("`load` made a draft of it").manifest.clone();
                draft.step(&manifest, Input::Panicked, now, self.inner.ids.as_ref());
                self.commit(draft, now).await?;
            }
            Ok::<_, StoreError>(())
        })
        .catch_unwind()
        .await;
        match parked {
            Ok(Ok(())) => tracing::error!(agent = %self.agent.agent, "a step panicked; its run is parked"),
            Ok(Err(error)) => tracing::error!(agent = %self.agent.agent, %error, "a step panicked, and its run could not be parked"),
            Err(_) => {
                if let Ok(Some(HeadView { run: Some(run), .. })) = self.inner.views.head(&self.agent).await {
                    self.quarantine(run, "a step of its run panics every time").await;
                }
            }
        }
    }
}

enum Advanced {
    /// No message is left.
    Done,
    /// The store has more work for this agent.
    MoreToDo,
}

/// Whether the run needs no more work after this commit, or none before a person decides.
fn comes_to_rest(commit: &Commit) -> bool {
    commit.state.has_ended() || commit.state.is_interrupted()
}

/// Whether messages that wait in the inbox may be of use after this event: the run waits for results, or a new iteration has started.
fn uses_messages(event: &Event) -> bool {
    if let Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } = event {
        return !calls.is_empty();
    }
    matches!(event, Event::IterationStarted { .. })
}

/// Whether the model call that streams text continues after this commit: the commit only records its reasoning.
fn text_continues(commit: &Commit) -> bool {
    matches!(commit.events.iter().rev().find(|event| settles_text(event)), Some(Event::Reasoned { .. }))
}

fn fail(pending: Vec<PendingMessage>, error: impl Fn() -> EngineError) {
    for mut message in pending {
        message.resolve(Reply::Refused(error()));
    }
}
