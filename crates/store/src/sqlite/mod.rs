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
use windlass_kernel::Timestamp;
use windlass_ports::{Found, LostRequest, Meter, NodeId, Query, ReaderRecord, SealKeys, Store, StoreError, Verb, Written};

use crate::{StoreOptions, measured::Measured, reading, rows::Reads, verbs};
use checkpointer::CheckpointHandle;
use prepared::Prepared;
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
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other verb is a transaction of the writer")]
    async fn write(&self, verb: Verb) -> Result<Written, StoreError> {
        let options = self.options;
        let is_deferrable = matches!(verb, Verb::AppendDeltas(_));
        match verb {
            Verb::Beat(..) => {
                // Only the process that has locked the file is alive.
                self.heartbeats.record();
                Ok(Written::Beat(Vec::new()))
            }
            Verb::Bury(_) => Ok(Written::Bury(())),
            Verb::EmptyLog(now) => self.empty_log_if_due(now).await.map(Written::EmptyLog),
            verb => self.writer.write(is_deferrable, move |rows| verbs::apply(rows, options, &verb, SqliteRows::apply_own)).await,
        }
    }

    async fn read<'a>(&'a self, query: Query<'a>) -> Result<Found, StoreError> {
        let readers = &self.readers;
        Ok(match query {
            Query::Load(agent) => {
                let agent = agent.clone();
                Found::Load(readers.read(move |rows| reading::load(rows, &agent)).await?)
            }
            Query::Due(now, limit) => Found::Due(readers.read(move |rows| rows.due(now, limit)).await?),
            Query::Orphans(node, after, limit) => {
                Found::Orphans(readers.read(move |rows| rows.orphans(node, after.as_ref(), limit)).await?)
            }
            Query::Erasable(now, limit) => Found::Erasable(readers.read(move |rows| rows.erasable(now, limit)).await?),
            Query::Aged(scan) => {
                let scan = scan.clone();
                Found::Aged(readers.read(move |rows| rows.aged(&scan)).await?)
            }
            Query::Outbox(limit) => Found::Outbox(readers.read(move |rows| rows.outbox(limit)).await?),
            Query::LostRequests(node, limit) => {
                let found = readers.read(move |rows| rows.lost_requests(node, limit)).await?;
                let lost_at = self.heartbeats.earlier;
                Found::LostRequests(found.into_iter().map(|request| LostRequest { request, lost_at }).collect())
            }
            Query::UncountedUsage(limit) => {
                let node = self.node;
                Found::UncountedUsage(readers.read(move |rows| rows.uncounted_usage(node, limit)).await?)
            }
        })
    }

    fn record_reader(&self, record: ReaderRecord) {
        self.writer.record(record);
    }
}

impl SqliteStore {
    async fn empty_log_if_due(&self, now: Timestamp) -> Result<(), StoreError> {
        if !self.truncation.is_due(now) {
            return Ok(());
        }
        // Most of it is copied beside the writer, which then is only delayed for the rest.
        self.checkpoints.checkpoint().await;
        self.truncation.ask(now);
        self.writer.write(false, |_| Ok(())).await?;
        // The writer empties the log after that commit and before this one.
        self.writer.write(false, |_| Ok(())).await
    }
}

impl<P: Prepared> SqliteRows<P> {
    /// Applies a verb for which SQLite has statements of its own.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other verb is applied in the same way by all databases")]
    fn apply_own(&mut self, verb: &Verb) -> Result<Written, StoreError> {
        Ok(match verb {
            Verb::AppendDeltas(batch) => Written::AppendDeltas(verbs::append_deltas(self, batch)?),
            Verb::EraseTenant(tenant, from, limit) => Written::EraseTenant(self.erase_tenant(tenant, from, *limit)?),
            Verb::AdoptRequest(request, node) => Written::AdoptRequest(self.adopt_request(request, *node)?),
            Verb::AddUsage(runs, rows) => Written::AddUsage(self.add_usage(runs, rows)?),
            Verb::ForgetUsage(before) => Written::ForgetUsage(self.forget_usage(*before)?),
            other => return Err(verbs::not_of_rows(other)),
        })
    }
}
