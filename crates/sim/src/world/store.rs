//! A process's handle of the one store. A write takes effect when it is flushed, some time after it was sent: a crash before that loses it,
//! and afterwards the answer can still be lost. Everything waits while the process is paused.

use std::{future::Future, sync::Arc, sync::atomic::Ordering::SeqCst, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::{sync::oneshot, time::Instant};
use windlass_kernel::{AgentKey, CallNumber, ConversationId, Epoch, RunId, Seq, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, CallClaim, ClaimedCall, Commit, Committed, ConversationChange, Conversed, Day, DeltaBatch, Enqueued,
    GivenUp, Guard, Loaded, LostRequest, MessageId, NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed, ReaderRecord,
    RunUsage, Store, StoreError, Taken, TenantCursor, TenantErasure, UsageRow, Withdrawn,
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
    StoreError::Unavailable(why.to_owned())
}

impl SimStore {
    pub fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        SimStore { world: world.clone(), node: node.clone() }
    }

    pub fn data(&self) -> &Arc<MemoryStore> {
        &self.world.data
    }

    /// Reads what is flushed. The answer may be outdated when it arrives.
    pub async fn read<T>(&self, question: impl Future<Output = Answer<T>>) -> Answer<T> {
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
    async fn write<T: Send + 'static>(&self, verb: impl Future<Output = Answer<T>> + Send + 'static) -> Answer<T> {
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
    fn flush<T: Send + 'static>(
        &self,
        within_ms: u64,
        verb: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> oneshot::Receiver<Answer<T>> {
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
            let _ = reply.send(verb.await);
        });
        answer
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
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        let world = self.world.clone();
        let (agent, id) = (run.agent.clone(), run.run);
        let verb = async move {
            let done = world.data.enqueue(run).await;
            if let Ok(Enqueued::Entered { .. } | Enqueued::Dispatched { .. } | Enqueued::Queued { .. }) = &done {
                world.log("store", format_args!("{id} of {} is recorded", agent.agent));
                checks::follow(&world, &agent, id).await;
            }
            done
        };
        self.write(verb).await
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        self.read(self.data().load(agent)).await
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let (world, node) = (self.world.clone(), self.node.clone());
        let (asked, wanted) = (guard.clone(), commit.clone());
        let done = self.write(async move {
            let guard = if world.has(PlantedBug::GuardWithoutSeq) { Self::weaken_guard(&world, guard).await } else { guard };
            let before = world.data.load(&guard.agent).await.ok().flatten();
            let done = world.data.commit(guard.clone(), commit.clone()).await;
            checks::committed(&world, &node, before, &guard, &commit, &done).await;
            done
        });
        let done = done.await;
        if self.world.has(PlantedBug::FencedIsSuccess) && matches!(done, Err(StoreError::Fenced)) {
            return Ok(as_if_applied(&asked, &wanted));
        }
        if done.is_ok() && !self.world.slots.lock().holds_lease(self.node.id) && !windlass_kernel::outstanding(&wanted.state).is_empty() {
            self.world.saw(Fact::HeldBack);
        }
        done
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.append_deltas(batch).await }).await
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.abandon(agent, given_up).await }).await
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.erase(tenant, run).await }).await
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        self.read(self.data().erasable(now, limit)).await
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        self.read(self.data().aged(scan)).await
    }

    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.erase_tenant(tenant, from, limit).await }).await
    }

    async fn empty_log(&self, now: Timestamp) -> Result<(), StoreError> {
        self.data().empty_log(now).await
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        let world = self.world.clone();
        self.write(async move {
            let run = commit.run;
            let done = world.data.withdraw(agent.clone(), commit).await;
            checks::follow(&world, &agent, run).await;
            done
        })
        .await
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        let world = self.world.clone();
        let is_early = world.has(PlantedBug::AnswerBeforeFlush);
        let verb = async move {
            let done = world.data.report(report.clone()).await;
            world.log("store", format_args!("a report for call {:?} of {}: {done:?}", report.message.call, report.run));
            done
        };
        if is_early {
            self.node.wait_until_running().await;
            drop(self.flush(2_000, verb));
            return Ok(Taken::Recorded(MessageId(0)));
        }
        self.write(verb).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.read(self.data().due(now, limit)).await
    }

    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError> {
        let world = self.world.clone();
        if world.has(PlantedBug::LeaseOfAir) && world.fault(1, 2) {
            self.node.wait_until_running().await;
            return Ok(Vec::new());
        }
        self.write(async move { Ok(prolong(&world, node, lease_ms)) }).await
    }

    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.bury(nodes).await }).await
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.read(self.data().orphans(node, after, limit)).await
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        let world = self.world.clone();
        self.write(async move {
            let calls = world.data.claim_calls(claim).await?;
            if !world.has(PlantedBug::ClaimedTwice) {
                return Ok(calls);
            }
            let mut ledger = world.ledger.lock();
            match calls.is_empty() && !world.is_calm() {
                true => Ok(ledger.last_claimed.take().into_iter().collect()),
                false => {
                    ledger.last_claimed = calls.first().cloned();
                    Ok(calls)
                }
            }
        })
        .await
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.renew_calls(claim, calls).await }).await
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.release_calls(claim, calls).await }).await
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.pack(pack).await }).await
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        let world = self.world.clone();
        world.break_promise("S8", format_args!("{} is quarantined, though nothing was corrupted: {reason}", agent.agent));
        self.write(async move { world.data.quarantine(agent, run, reason).await }).await
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.converse(tenant, id, change, now).await }).await
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        let world = self.world.clone();
        world.break_promise("S5", format_args!("a message of {} is refused: {reason}", agent.agent));
        self.write(async move { world.data.refuse(agent, message, reason).await }).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.read(self.data().outbox(limit)).await
    }

    async fn published(&self, rows: Vec<u64>) -> Result<(), StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.published(rows).await }).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.data().record_reader(record);
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        self.data().flush_readers().await
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        self.read(self.data().lost_requests(node, limit)).await
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.adopt_request(request, node).await }).await
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        self.read(self.data().uncounted_usage(limit)).await
    }

    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.add_usage(runs, rows).await }).await
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        let world = self.world.clone();
        self.write(async move { world.data.forget_usage(before).await }).await
    }
}
