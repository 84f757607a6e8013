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
mod new_heads;
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
use tokio_postgres::Statement;
use windlass_kernel::AgentKey;
use windlass_ports::{Found, Meter, NodeId, OutboxRow, Query, ReaderRecord, SealKeys, Store, StoreError, Verb, Written};

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

    /// The writer of an agent.
    fn writer(&self, agent: &AgentKey) -> &Writer {
        let mut hasher = DefaultHasher::new();
        agent.hash(&mut hasher);
        &self.writers[hasher.finish() as usize % self.writers.len()]
    }
}

#[async_trait]
impl Store for PostgresStore {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other verb is a transaction of a writer")]
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        let keeper = &self.keeper;
        Ok(match verb {
            Verb::AppendDeltas(batch) => Written::AppendDeltas(self.deltas.append_deltas(batch).await?),
            Verb::Beat(node, lease_ms) => {
                Written::Beat(keeper.ask(|session| async move { beat(&session, &self.clock, node, lease_ms).await }).await?)
            }
            Verb::Bury(nodes) => {
                let nodes: &Vec<i64> = &nodes.iter().map(|node| int(node.0)).collect();
                Written::Bury(keeper.ask(|session| async move { execute(&session, &session.statements.bury, nodes).await }).await?)
            }
            Verb::EraseTenant(tenant, from, limit) => {
                let (tenant, from) = (&tenant, &from);
                let erased = keeper.ask(|session| async move { erase_tenant::erase_tenant(&session, tenant, from, limit).await });
                Written::EraseTenant(erased.await?)
            }
            Verb::EmptyLog(_) => Written::EmptyLog(()),
            Verb::Published(numbers) => {
                let rows: &Vec<i64> = &numbers.into_iter().map(int).collect();
                Written::Published(
                    keeper.ask(|session| async move { execute(&session, &session.statements.forget_outbox, rows).await }).await?,
                )
            }
            Verb::FlushReaders() => Written::FlushReaders(self.flush_records().await?),
            Verb::AdoptRequest(request, node) => {
                let request = &request;
                Written::AdoptRequest(keeper.ask(|session| async move { requests::adopt(&session, request, node).await }).await?)
            }
            Verb::AddUsage(runs, rows) => {
                let (runs, rows) = (&runs, &rows);
                Written::AddUsage(keeper.ask(|session| async move { usage::add(&session, runs, rows).await }).await?)
            }
            Verb::ForgetUsage(before) => {
                Written::ForgetUsage(keeper.ask(|session| async move { usage::forget(&session, before).await }).await?)
            }
            verb => self.apply(verb).await?,
        })
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        let (readers, keeper) = (&self.readers, &self.keeper);
        Ok(match query {
            Query::Load(agent) => Found::Load(readers.load(agent).await?),
            Query::Due(now, limit) => Found::Due(readers.read(|rows| rows.due(now, limit)).await?),
            Query::Orphans(node, after, limit) => Found::Orphans(readers.read(|rows| rows.orphans(node, after.as_ref(), limit)).await?),
            Query::Erasable(now, limit) => {
                Found::Erasable(keeper.ask(|session| async move { erase::erasable(&session, now, limit).await }).await?)
            }
            Query::Aged(scan) => Found::Aged(keeper.ask(|session| async move { aging::aged(&session, scan).await }).await?),
            Query::Outbox(limit) => Found::Outbox(keeper.ask(|session| async move { outbox(&session, limit).await }).await?),
            Query::LostRequests(node, limit) => {
                Found::LostRequests(keeper.ask(|session| async move { requests::lost(&session, node, limit).await }).await?)
            }
            Query::UncountedUsage(limit) => {
                let listed = keeper.ask(|session| async move { usage::uncounted(&session, limit).await }).await?;
                Found::UncountedUsage(readers.read(|rows| usage_of(rows, self.node, &listed)).await?)
            }
        })
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.records.push(record);
    }
}

impl PostgresStore {
    /// Applies a verb with a writer: that of the agent, so that all commits of an agent keep their order, or the one for verbs that discover
    /// their agents while they run.
    async fn apply(&self, verb: Verb) -> Result<Written, StoreError> {
        let (options, wants) = (self.options, Wants::of(&verb));
        let writer = wants.agents.first().map_or(&self.roamer, |agent| self.writer(agent));
        writer.write(wants, move |rows| verbs::apply(rows, options, &verb, |_, verb| Err(verbs::not_of_rows(verb)))).await
    }

    /// Any commit writes the records. Each writer makes one, because each may have taken records that are not committed yet.
    async fn flush_records(&self) -> Result<(), StoreError> {
        for writer in &self.writers {
            writer.write(Wants::default(), |_| Ok(())).await?;
        }
        Ok(())
    }
}

/// Executes a statement for these numbers.
async fn execute(session: &Session, statement: &Statement, numbers: &Vec<i64>) -> Result<(), PgError> {
    Ok(session.client.execute(statement, &[numbers]).await.map(drop)?)
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
