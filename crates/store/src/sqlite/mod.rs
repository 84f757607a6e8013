//! The store on disk: SQLite in WAL mode, flushed at every commit, with one writer and a few readers.

mod aging;
mod answers;
mod checkpointer;
mod columns;
mod conversations;
mod deltas;
mod erase;
mod erase_tenant;
mod group_commit;
mod hash_keys;
mod heartbeats;
mod interrupts;
mod lists;
mod open;
mod parked;
mod prepared;
mod readers;
mod reads;
mod requests;
mod statements;
mod totals;
mod truncation;
mod usage;
mod vacuum;
mod views;
mod writer;
mod writes;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use windlass_kernel::{AgentKey, CallNumber, ConversationId, RunId, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, CallClaim, ClaimedCall, Commit, Committed, ConversationChange, Conversed, Day, DeltaBatch, Enqueued,
    GivenUp, Guard, Loaded, LostRequest, MessageId, Meter, NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed,
    ReaderRecord, RunUsage, SealKeys, Store, StoreError, Taken, TenantCursor, TenantErasure, UsageRow, Withdrawn,
};

use crate::{
    StoreOptions,
    measured::Measured,
    reading,
    rows::{Reads, Rows},
    verbs,
};
use checkpointer::CheckpointHandle;
use readers::Readers;
use statements::{Manifests, SqliteRows};
use truncation::Truncation;
use writer::{Writer, WriterState};

use heartbeats::Heartbeats;

pub use open::{OpenError, create_private_folder};
pub use vacuum::{Vacuumed, vacuum_sqlite};
pub use views::SqliteViews;

/// Connections besides the writer's.
const READERS: usize = 3;

/// A store in a SQLite database. Dropping it writes what was sent, then unlocks the database for the next server.
pub struct SqliteStore {
    // Dropped first: the last connection to close makes a full checkpoint, and that must be the writer's.
    readers: Readers,
    writer: Writer,
    heartbeats: Heartbeats,
    measured: Measured,
    checkpoints: CheckpointHandle,
    truncation: Truncation,
    node: NodeId,
    id_key: [u8; 32],
    options: StoreOptions,
}

impl SqliteStore {
    /// Opens the database. It is made with its folder if it does not exist. It is refused unchanged if another server has it open or a
    /// newer version wrote it.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), options, None)
    }

    /// Like `open`, for a server that seals with these keys: it is refused if none of them opens the canary of the database.
    pub fn open_sealed(path: impl AsRef<Path>, options: StoreOptions, keys: &dyn SealKeys) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), options, Some(keys))
    }

    fn open_with(path: &Path, options: StoreOptions, keys: Option<&dyn SealKeys>) -> Result<Self, OpenError> {
        let opened = open::open(path, READERS, keys)?;
        let manifests = Manifests::default();
        let failed = |error| OpenError::File { path: path.to_owned(), error };
        let (kept, index) = (manifests.clone(), opened.index.clone());
        let (checkpoints, truncation) = (opened.checkpointer.handle(), opened.truncation.clone());
        let state =
            WriterState { connection: opened.writer, node: opened.node, manifests, index: opened.index, truncation, lock: opened.lock };
        let measured = Measured::default();
        let writer = Writer::start(state, opened.checkpointer, measured.clone()).map_err(failed)?;
        let rows = |connection| SqliteRows::new(connection, opened.node, kept.clone(), Some(index.clone()));
        let readers = Readers::new(opened.readers.into_iter().map(rows).collect());
        Ok(SqliteStore {
            readers,
            writer,
            heartbeats: opened.heartbeats,
            measured,
            checkpoints,
            truncation: opened.truncation,
            node: opened.node,
            id_key: opened.id_key,
            options,
        })
    }

    /// Reports all later commits to this meter.
    pub fn measure(&self, meter: Arc<dyn Meter>) {
        self.measured.set(meter);
    }

    /// The number of this start of this process, which is never used again.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The secret from which the ids in the API are computed.
    pub fn id_key(&self) -> [u8; 32] {
        self.id_key
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        let options = self.options;
        self.writer.write(move |rows| verbs::enqueue(rows, options, &run)).await
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        let agent = agent.clone();
        self.readers.read(move |rows| reading::load(rows, &agent)).await
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let options = self.options;
        self.writer.write(move |rows| verbs::commit(rows, options, &guard, &commit)).await
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        self.writer.write_later(move |rows| verbs::append_deltas(rows, &batch)).await
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        let options = self.options;
        self.writer.write(move |rows| verbs::withdraw(rows, options, &agent, &commit)).await
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        self.writer.write(move |rows| verbs::report(rows, &report)).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.readers.read(move |rows| rows.due(now, limit)).await
    }

    async fn beat(&self, _: NodeId, _: u64) -> Result<Vec<NodeId>, StoreError> {
        // Only the process that has locked the file is alive.
        self.heartbeats.record();
        Ok(Vec::new())
    }

    async fn bury(&self, _: Vec<NodeId>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.readers.read(move |rows| rows.orphans(node, after.as_ref(), limit)).await
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        self.writer.write(move |rows| verbs::claim_calls(rows, &claim)).await
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.writer.write(move |rows| verbs::renew_calls(rows, &claim, &calls)).await
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.writer.write(move |rows| verbs::release_calls(rows, &claim, &calls)).await
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        self.writer.write(move |rows| verbs::pack(rows, &pack)).await
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        self.writer.write(move |rows| verbs::quarantine(rows, &agent, run, &reason)).await
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        let options = self.options;
        self.writer.write(move |rows| verbs::abandon(rows, options, &agent, &given_up)).await
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        self.writer.write(move |rows| verbs::erase(rows, &tenant, run)).await
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        self.readers.read(move |rows| rows.erasable(now, limit)).await
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        let scan = scan.clone();
        self.readers.read(move |rows| rows.aged(&scan)).await
    }

    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError> {
        self.writer.write(move |rows| rows.erase_tenant(&tenant, &from, limit)).await
    }

    async fn empty_log(&self, now: Timestamp) -> Result<(), StoreError> {
        if !self.truncation.is_due(now) {
            return Ok(());
        }
        // Most of it is copied beside the writer, which then is only delayed for the rest.
        self.checkpoints.checkpoint().await;
        self.truncation.ask(now);
        self.writer.write(|_| Ok(())).await?;
        // The writer empties the log after that commit and before this one.
        self.writer.write(|_| Ok(())).await
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        self.writer.write(move |rows| verbs::converse(rows, &tenant, id, &change, now)).await
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        self.writer.write(move |rows| verbs::refuse(rows, &agent, message, &reason)).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.readers.read(move |rows| rows.outbox(limit)).await
    }

    async fn published(&self, published: Vec<u64>) -> Result<(), StoreError> {
        self.writer.write(move |rows| rows.forget_outbox(&published)).await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.writer.record(record);
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        // Any commit writes the records.
        self.writer.write(|_| Ok(())).await
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        let found = self.readers.read(move |rows| rows.lost_requests(node, limit)).await?;
        Ok(found.into_iter().map(|request| LostRequest { request, lost_at: self.heartbeats.earlier }).collect())
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        self.writer.write(move |rows| rows.adopt_request(&request, node)).await
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        let node = self.node;
        self.readers.read(move |rows| rows.uncounted_usage(node, limit)).await
    }

    async fn add_usage(&self, runs: Vec<RunId>, added: Vec<UsageRow>) -> Result<bool, StoreError> {
        self.writer.write(move |rows| rows.add_usage(&runs, &added)).await
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        self.writer.write(move |rows| rows.forget_usage(before)).await
    }
}
