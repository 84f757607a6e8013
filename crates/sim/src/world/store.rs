//! A process's handle of the one store. A write takes effect when it is flushed, some time after it was sent: a crash before that loses it,
//! and afterwards the answer can still be lost. Everything waits while the process is paused.

use std::{future::Future, sync::Arc, sync::atomic::Ordering::SeqCst, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::{sync::oneshot, time::Instant};
use windlass_kernel::{Epoch, Seq};
use windlass_ports::{
    ClaimedCall, Commit, Committed, Enqueued, Found, Guard, MessageId, NodeId, Query, ReaderRecord, Store, StoreError, Taken, Verb, Written,
};
use windlass_store::MemoryStore;

use super::{Fact, PlantedBug, World, checks, node::Node, pass_ms};

/// The answer to a read or a write.
type Answer<T> = Result<T, StoreError>;

pub(super) struct SimStore {
    world: Arc<World>,
    node: Arc<Node>,
}

/// A heartbeat of a process has arrived: its lease is prolonged.
pub(super) fn prolong(world: &World, node: NodeId, lease_ms: u64) -> Vec<NodeId> {
    world.slots.lock().leases.insert(node, Instant::now() + Duration::from_millis(lease_ms));
    let lost = world.data.beat(node, lease_ms).now_or_never();
    lost.and_then(Result::ok).unwrap_or_default()
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable(why.into())
}

impl SimStore {
    pub fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        SimStore { world: world.clone(), node: node.clone() }
    }

    pub fn data(&self) -> &Arc<MemoryStore> {
        &self.world.data
    }

    /// Reads what is flushed. The answer may be outdated when it arrives.
    pub async fn ask<T>(&self, question: impl Future<Output = Answer<T>>) -> Answer<T> {
        self.node.wait_until_running().await;
        if self.world.fault(self.world.options.verbs_refused, 2_000) {
            return Err(unavailable("the question was not taken"));
        }
        let answer = question.await;
        if self.world.chance(1, 4) {
            pass_ms(self.world.between(0, self.world.options.flush_ms.min(20))).await;
        }
        self.node.wait_until_running().await;
        answer
    }

    /// Has a write flushed, and waits for the answer.
    async fn send(&self, verb: Verb) -> Answer<Written> {
        self.node.wait_until_running().await;
        if self.world.fault(self.world.options.verbs_refused, 1_000) {
            return Err(unavailable("the verb was not taken"));
        }
        // Without a flush there is no answer and no process that waits for it: the process has died.
        let Ok(answer) = self.flush(self.world.options.flush_ms, verb).await else { return std::future::pending().await };
        if self.world.chance(1, 4) {
            pass_ms(self.world.between(0, self.world.options.flush_ms)).await;
        }
        self.node.wait_until_running().await;
        if answer.is_ok() && self.world.fault(self.world.options.answers_lost, 1_000) {
            self.world.log(&self.node.name, "does not hear the answer to a verb that was flushed");
            return Err(unavailable("the answer was lost"));
        }
        answer
    }

    /// The flush continues when the process dies, unless the crash loses the write.
    fn flush(&self, within_ms: u64, verb: Verb) -> oneshot::Receiver<Answer<Written>> {
        let (reply, answer) = oneshot::channel();
        let (world, node) = (self.world.clone(), self.node.clone());
        let (power, delay) = (world.power.load(SeqCst), world.between(0, within_ms));
        let dies_with_node = world.chance(1, 2);
        tokio::spawn(async move {
            pass_ms(delay).await;
            let is_lost = power != world.power.load(SeqCst) || (dies_with_node && node.is_dead());
            if is_lost {
                world.saw(Fact::Forgotten);
                return world.log(&node.name, "had asked for a verb that is forgotten");
            }
            let _ = reply.send(apply(&world, &node, verb).await);
        });
        answer
    }
}

/// The answer of the planted bug to a commit that was fenced.
fn as_if_applied(guard: &Guard, commit: &Commit) -> Committed {
    Committed {
        seq: Seq(guard.seq.0 + 1),
        epoch: Epoch(guard.epoch.0),
        pending: 0,
        next_leased: false,
        messages: vec![MessageId(0); commit.messages.len()],
    }
}

#[async_trait]
impl Store for SimStore {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other verb is special to the simulation")]
    async fn write(&self, verb: Verb) -> Answer<Written> {
        let world = &self.world;
        match &verb {
            Verb::FlushReaders() | Verb::EmptyLog(_) => return self.data().write(verb).await,
            Verb::Beat(..) if world.has(PlantedBug::LeaseOfAir) && world.fault(1, 2) => {
                self.node.wait_until_running().await;
                return Ok(Written::Beat(Vec::new()));
            }
            Verb::Report(_) if world.has(PlantedBug::AnswerBeforeFlush) => {
                self.node.wait_until_running().await;
                drop(self.flush(2_000, verb));
                return Ok(Written::Report(Taken::Recorded(MessageId(0))));
            }
            Verb::Quarantine(agent, _, reason) => {
                world.break_promise("S8", format_args!("{} is quarantined, though nothing was corrupted: {reason}", agent.agent));
            }
            Verb::Refuse(agent, _, reason) => {
                world.break_promise("S5", format_args!("a message of {} is refused: {reason}", agent.agent));
            }
            _ => {}
        }
        let commit = if let Verb::Commit(guard, commit) = &verb { Some((guard.clone(), commit.clone())) } else { None };
        let written = self.send(verb).await;
        let Some((guard, commit)) = commit else { return written };
        if world.has(PlantedBug::FencedIsSuccess) && matches!(written, Err(StoreError::Fenced)) {
            return Ok(Written::Commit(as_if_applied(&guard, &commit)));
        }
        if written.is_ok() && !world.slots.lock().holds_lease(self.node.id) && !windlass_kernel::outstanding(&commit.state).is_empty() {
            world.saw(Fact::HeldBack);
        }
        written
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Answer<Found> {
        self.ask(self.data().read(query)).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.data().record_reader(record);
    }
}

/// What a verb does when it is flushed: the store applies it, as its planted bug has it, and the checks see what it did.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other verb is special to the simulation")]
async fn apply(world: &Arc<World>, node: &Arc<Node>, verb: Verb) -> Answer<Written> {
    match verb {
        Verb::Beat(node, lease_ms) => Ok(Written::Beat(prolong(world, node, lease_ms))),
        Verb::Enqueue(new) => {
            let (agent, id) = (new.agent.clone(), new.run);
            let done = world.data.enqueue(*new).await;
            if let Ok(Enqueued::Entered { .. } | Enqueued::Dispatched { .. } | Enqueued::Queued { .. }) = &done {
                world.log("store", format_args!("{id} of {} is recorded", agent.agent));
                checks::follow(world, &agent, id).await;
            }
            done.map(Written::Enqueue)
        }
        Verb::Commit(guard, commit) => {
            let guard = if world.has(PlantedBug::GuardWithoutSeq) { weaken_guard(world, guard).await } else { guard };
            let before = world.data.load(&guard.agent).await.ok().flatten();
            let done = world.data.commit(guard.clone(), (*commit).clone()).await;
            checks::committed(world, node, before, &guard, &commit, &done).await;
            done.map(Written::Commit)
        }
        Verb::Withdraw(agent, commit) => {
            let run = commit.run;
            let done = world.data.withdraw(agent.clone(), *commit).await;
            checks::follow(world, &agent, run).await;
            done.map(Written::Withdraw)
        }
        Verb::Report(report) => {
            let done = world.data.report((*report).clone()).await;
            world.log("store", format_args!("a report for call {:?} of {}: {done:?}", report.message.call, report.run));
            done.map(Written::Report)
        }
        Verb::ClaimCalls(claim) => {
            let claimed = world.data.claim_calls(claim).await?;
            Ok(Written::ClaimCalls(if world.has(PlantedBug::ClaimedTwice) { claim_twice(world, claimed) } else { claimed }))
        }
        verb => world.data.write(verb).await,
    }
}

/// The calls that the planted bug gives out: those of the last claim again, if there are no others.
fn claim_twice(world: &World, claimed: Vec<ClaimedCall>) -> Vec<ClaimedCall> {
    let mut ledger = world.ledger.lock();
    if claimed.is_empty() && !world.is_calm() {
        return ledger.last_claimed.take().into_iter().collect();
    }
    ledger.last_claimed = claimed.first().cloned();
    claimed
}

/// The guard as the planted bug checks it: without the part that it ignores.
async fn weaken_guard(world: &World, guard: Guard) -> Guard {
    match world.data.load(&guard.agent).await {
        Ok(Some(loaded)) if loaded.head.epoch == guard.epoch && loaded.run.as_ref().is_some_and(|run| run.id == guard.run) => {
            Guard { seq: loaded.head.seq, status: loaded.head.status, ..guard }
        }
        Ok(_) | Err(_) => guard,
    }
}
