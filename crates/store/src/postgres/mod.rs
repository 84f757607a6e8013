//! The store that several servers share: PostgreSQL.
//!
//! Verbs are written once, for a database that answers at once; PostgreSQL is a round trip away. So a verb runs on an overlay ([`overlay`]):
//! its reads are fetched for a whole group of verbs at a time, and its writes are sent for the whole group with a few statements. The row
//! of an agent's head is the lock for everything of that agent: every writer locks it first.

mod aging;
mod answers;
mod clock;
mod columns;
mod conversations;
mod deltas;
mod erase;
mod erase_tenant;
mod fetch;
mod flush;
mod group;
mod hash_keys;
mod interrupts;
mod lists;
mod member;
mod open;
mod overlay;
mod parked;
mod pg_error;
#[cfg(test)]
mod plans;
mod question;
mod readers;
mod requests;
mod session;
mod statements;
mod tls;
mod totals;
mod usage;
mod views;
mod write_set;
mod writer;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use windlass_kernel::{AgentKey, CallNumber, ConversationId, RunId, Tenant, Timestamp};
use windlass_ports::{
    Abandoned, AgedPage, AgedScan, CallClaim, ClaimedCall, Commit, Committed, ConversationChange, Conversed, Day, DeltaBatch, Enqueued,
    GivenUp, Guard, Loaded, LostRequest, MessageId, Meter, NewPack, NewReport, NewRun, NodeId, OpenRequest, OutboxRow, Packed,
    ReaderRecord, RunUsage, SealKeys, Store, StoreError, Taken, TenantCursor, TenantErasure, UsageRow, Withdrawn, conversation_agent,
};

use crate::{StoreOptions, measured::Measured, records::Records, rows::Reads, usage::usage_of, verbs};
use columns::int;
use deltas::Deltas;
use group::WriteConnection;
use member::Wants;
use pg_error::PgError;
use readers::{ReadConnection, Readers};
use session::{Connector, Session};
use writer::Writer;

pub use clock::DatabaseClock;
pub use open::{PostgresOpenError, postgres_address};
pub(crate) use tls::Endpoint;
pub use views::PostgresViews;

/// Connections that write for agents. With two, the server works on one group while the other waits for the disk; more would only make the
/// groups smaller.
const WRITERS: usize = 2;

/// Connections that many reads share.
const READERS: usize = 2;

/// Slots in which a tenant's open runs are counted.
const SLOTS: u64 = 64;

/// A store in a PostgreSQL database, which other servers may share. It must be made and used inside a Tokio runtime.
pub struct PostgresStore {
    readers: Readers,
    /// For requests that must not wait behind long answers: the lease, and the outbox with its lock.
    keeper: ReadConnection,
    writers: Vec<Writer>,
    /// For verbs that discover their agents while they run.
    roamer: Writer,
    deltas: Deltas,
    /// Records for the next commit of any writer.
    records: Records,
    node: NodeId,
    id_key: [u8; 32],
    clock: Arc<DatabaseClock>,
    measured: Measured,
    options: StoreOptions,
}

impl PostgresStore {
    /// Opens the database, and makes its tables if they do not exist. A database that a newer version wrote is refused unchanged. If
    /// PostgreSQL is still starting, this waits.
    pub async fn open(url: &str, options: StoreOptions) -> Result<Self, PostgresOpenError> {
        Self::open_for(url, options, None).await
    }

    /// Like `open`, for a server that made a token of its own, whose hash is `own_token`. It is refused while a server with another token
    /// of its own uses the database, because a client's token would be valid at one of them only.
    pub async fn open_for(url: &str, options: StoreOptions, own_token: Option<[u8; 32]>) -> Result<Self, PostgresOpenError> {
        Self::open_with(url, options, own_token, None).await
    }

    /// Like `open_for`, for a server that seals with these keys: it is refused if none of them opens the canary of the database.
    pub async fn open_sealed(
        url: &str,
        options: StoreOptions,
        own_token: Option<[u8; 32]>,
        keys: &dyn SealKeys,
    ) -> Result<Self, PostgresOpenError> {
        Self::open_with(url, options, own_token, Some(keys)).await
    }

    async fn open_with(
        url: &str,
        options: StoreOptions,
        own_token: Option<[u8; 32]>,
        keys: Option<&dyn SealKeys>,
    ) -> Result<Self, PostgresOpenError> {
        let connector = Connector::new(url, own_token)?;
        let open::Opened { node, clock, id_key } = open::open(&connector, keys).await?;
        let connection = |index: usize| WriteConnection::new(connector.clone(), int((node.0 * WRITERS as u64 + index as u64) % SLOTS));
        let (records, measured) = (Records::default(), Measured::default());
        Ok(PostgresStore {
            readers: Readers::new(&connector, READERS),
            keeper: ReadConnection::new(connector.clone()),
            writers: (0..WRITERS).map(|index| Writer::start(connection(index), records.clone(), measured.clone())).collect(),
            roamer: Writer::start_roaming(connection(0)),
            deltas: Deltas::start(connector.clone()),
            records,
            node,
            id_key,
            clock: Arc::new(clock),
            measured,
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

    /// The database's clock, which all its servers use. Every heartbeat of the server adjusts it.
    pub fn clock(&self) -> Arc<DatabaseClock> {
        self.clock.clone()
    }

    /// All commits of an agent use the same writer, so that they keep their order.
    fn writer(&self, agent: &AgentKey) -> &Writer {
        let mut hasher = DefaultHasher::new();
        agent.hash(&mut hasher);
        &self.writers[hasher.finish() as usize % self.writers.len()]
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued, StoreError> {
        let options = self.options;
        let writer = self.writer(&run.agent);
        writer.write(Wants::of_enqueue(&run), move |rows| verbs::enqueue(rows, options, &run)).await
    }

    async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>, StoreError> {
        self.readers.load(agent).await
    }

    async fn commit(&self, guard: Guard, commit: Commit) -> Result<Committed, StoreError> {
        let options = self.options;
        let wants = Wants::of_commit(&guard.agent, &commit);
        self.writer(&guard.agent).write(wants, move |rows| verbs::commit(rows, options, &guard, &commit)).await
    }

    async fn append_deltas(&self, batch: DeltaBatch) -> Result<(), StoreError> {
        self.deltas.append_deltas(batch).await
    }

    async fn withdraw(&self, agent: AgentKey, commit: Commit) -> Result<Withdrawn, StoreError> {
        let options = self.options;
        let wants = Wants::of_withdraw(&agent, &commit);
        self.writer(&agent).write(wants, move |rows| verbs::withdraw(rows, options, &agent, &commit)).await
    }

    async fn report(&self, report: NewReport) -> Result<Taken, StoreError> {
        self.writer(&report.agent).write(Wants::of_report(&report), move |rows| verbs::report(rows, &report)).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.readers.read(|rows| rows.due(now, limit)).await
    }

    async fn beat(&self, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, StoreError> {
        self.keeper.ask(|session| async move { beat(&session, &self.clock, node, lease_ms).await }).await
    }

    async fn bury(&self, nodes: Vec<NodeId>) -> Result<(), StoreError> {
        let nodes: &Vec<i64> = &nodes.iter().map(|node| int(node.0)).collect();
        self.keeper.ask(|session| async move { Ok(session.client.execute(&session.statements.bury, &[nodes]).await.map(drop)?) }).await
    }

    async fn orphans(&self, node: NodeId, after: Option<AgentKey>, limit: usize) -> Result<Vec<AgentKey>, StoreError> {
        self.readers.read(|rows| rows.orphans(node, after.as_ref(), limit)).await
    }

    async fn claim_calls(&self, claim: CallClaim) -> Result<Vec<ClaimedCall>, StoreError> {
        self.roamer.write(Wants::default(), move |rows| verbs::claim_calls(rows, &claim)).await
    }

    async fn renew_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.roamer.write(Wants::of_calls(&calls), move |rows| verbs::renew_calls(rows, &claim, &calls)).await
    }

    async fn release_calls(&self, claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Result<Vec<(RunId, CallNumber)>, StoreError> {
        self.roamer.write(Wants::of_calls(&calls), move |rows| verbs::release_calls(rows, &claim, &calls)).await
    }

    async fn pack(&self, pack: NewPack) -> Result<Packed, StoreError> {
        self.roamer.write(Wants::of_pack(&pack), move |rows| verbs::pack(rows, &pack)).await
    }

    async fn quarantine(&self, agent: AgentKey, run: RunId, reason: String) -> Result<(), StoreError> {
        self.writer(&agent).write(Wants::of_agent(&agent), move |rows| verbs::quarantine(rows, &agent, run, &reason)).await
    }

    async fn abandon(&self, agent: AgentKey, given_up: GivenUp) -> Result<Abandoned, StoreError> {
        let options = self.options;
        let wants = Wants { numbers: 1, ..Wants::of_agent(&agent).with_items(std::slice::from_ref(&given_up.deliverable)) };
        self.writer(&agent).write(wants, move |rows| verbs::abandon(rows, options, &agent, &given_up)).await
    }

    async fn erase(&self, tenant: Tenant, run: RunId) -> Result<(), StoreError> {
        self.roamer.write(Wants::default(), move |rows| verbs::erase(rows, &tenant, run)).await
    }

    async fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>, StoreError> {
        self.keeper.ask(|session| async move { erase::erasable(&session, now, limit).await }).await
    }

    async fn aged(&self, scan: &AgedScan) -> Result<AgedPage, StoreError> {
        self.keeper.ask(|session| async move { aging::aged(&session, scan).await }).await
    }

    async fn erase_tenant(&self, tenant: Tenant, from: TenantCursor, limit: usize) -> Result<TenantErasure, StoreError> {
        let (tenant, from) = (&tenant, &from);
        self.keeper.ask(|session| async move { erase_tenant::erase_tenant(&session, tenant, from, limit).await }).await
    }

    async fn converse(
        &self,
        tenant: Tenant,
        id: ConversationId,
        change: ConversationChange,
        now: Timestamp,
    ) -> Result<Conversed, StoreError> {
        let agent = conversation_agent(&tenant, id);
        let wants = Wants::of_conversation(&agent, id, &change);
        self.writer(&agent).write(wants, move |rows| verbs::converse(rows, &tenant, id, &change, now)).await
    }

    async fn refuse(&self, agent: AgentKey, message: MessageId, reason: String) -> Result<(), StoreError> {
        let wants = Wants::of_refuse(&agent, message);
        self.writer(&agent).write(wants, move |rows| verbs::refuse(rows, &agent, message, &reason)).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        self.keeper.ask(|session| async move { outbox(&session, limit).await }).await
    }

    async fn published(&self, published: Vec<u64>) -> Result<(), StoreError> {
        let rows: &Vec<i64> = &published.into_iter().map(int).collect();
        self.keeper
            .ask(|session| async move { Ok(session.client.execute(&session.statements.forget_outbox, &[rows]).await.map(drop)?) })
            .await
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.records.push(record);
    }

    async fn flush_readers(&self) -> Result<(), StoreError> {
        // Any commit writes the records. Each writer makes one, because each may have taken records that are not committed yet.
        for writer in &self.writers {
            writer.write(Wants::default(), |_| Ok(())).await?;
        }
        Ok(())
    }

    async fn lost_requests(&self, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, StoreError> {
        self.keeper.ask(|session| async move { requests::lost(&session, node, limit).await }).await
    }

    async fn adopt_request(&self, request: OpenRequest, node: NodeId) -> Result<bool, StoreError> {
        let request = &request;
        self.keeper.ask(|session| async move { requests::adopt(&session, request, node).await }).await
    }

    async fn uncounted_usage(&self, limit: usize) -> Result<Vec<RunUsage>, StoreError> {
        let listed = self.keeper.ask(|session| async move { usage::uncounted(&session, limit).await }).await?;
        self.readers.read(|rows| usage_of(rows, self.node, &listed)).await
    }

    async fn add_usage(&self, runs: Vec<RunId>, rows: Vec<UsageRow>) -> Result<bool, StoreError> {
        let (runs, rows) = (&runs, &rows);
        self.keeper.ask(|session| async move { usage::add(&session, runs, rows).await }).await
    }

    async fn forget_usage(&self, before: Day) -> Result<(), StoreError> {
        self.keeper.ask(|session| async move { usage::forget(&session, before).await }).await
    }
}

async fn beat(session: &Session, clock: &DatabaseClock, node: NodeId, lease_ms: u64) -> Result<Vec<NodeId>, PgError> {
    let asked = Instant::now();
    let answer = session.client.query_one(&session.statements.beat, &[&int(node.0), &int(lease_ms)]).await?;
    clock.adjust(asked, answer.try_get(0)?);
    let lost = session.client.query(&session.statements.lost_nodes, &[]).await?;
    lost.iter().map(|row| Ok(NodeId(row.try_get::<_, i64>(0)?.unsigned_abs()))).collect()
}

/// One server publishes at a time, so that no event is published twice in normal operation. The lock belongs to the connection: it ends
/// with the process, and then another server gets it.
async fn outbox(session: &Session, limit: usize) -> Result<Vec<OutboxRow>, PgError> {
    if !session.may_publish().await? {
        return Ok(Vec::new());
    }
    fetch::outbox_rows(session, limit).await
}
