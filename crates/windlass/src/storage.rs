//! Opens the database that the configuration names.

use std::sync::Arc;

use anyhow::Context;
use windlass_ports::{Clock, Meter, NodeId, SealKeys, Store, Views};
use windlass_store::{PostgresStore, PostgresViews, SqliteStore, SqliteViews, StoreOptions, TieredStore};

use crate::{config::Place, world::SystemClock};

/// An open store, as the port for writes and the port for reads.
pub(crate) struct Storage {
    pub node: NodeId,
    /// The secret from which the ids that the API shows are computed.
    pub id_key: [u8; 32],
    pub store: Arc<dyn Store>,
    pub views: Arc<dyn Views>,
    /// The clock of the store's deadlines.
    pub clock: Arc<dyn Clock>,
}

impl Storage {
    /// Keeps runs that are not stored in memory, with at most `bytes_max` bytes of content.
    pub fn with_unlisted_in_memory(self, options: StoreOptions, bytes_max: u64) -> Self {
        let store = Arc::new(TieredStore::new(self.store, self.views, options, bytes_max));
        Storage { views: store.clone(), store, ..self }
    }
}

/// Opens a database for a server, which reports its commits to the meter. A server that created its own token passes that token's hash, and
/// shares a PostgreSQL database only with servers of the same token. A database whose canary none of the seal keys opens is refused.
pub(crate) async fn open(
    place: &Place<'_>,
    options: StoreOptions,
    own_token: Option<[u8; 32]>,
    keys: &dyn SealKeys,
    meter: Arc<dyn Meter>,
) -> anyhow::Result<Storage> {
    match place {
        Place::File(file) => {
            let store = Arc::new(SqliteStore::open_sealed(file, options, keys).with_context(|| place.to_string())?);
            store.measure(meter);
            let (node, id_key) = (store.node(), store.id_key());
            Ok(Storage { node, id_key, store: store.clone(), views: store, clock: Arc::new(SystemClock) })
        }
        Place::Postgres(url) => {
            let opened = PostgresStore::open_sealed(url.expose(), options, own_token, keys).await;
            let store = Arc::new(opened.with_context(|| place.to_string())?);
            store.measure(meter);
            let (node, id_key) = (store.node(), store.id_key());
            Ok(Storage { node, id_key, clock: store.clock(), store: store.clone(), views: store })
        }
    }
}

/// A database that a command has opened, as the port for writes and the port for reads.
pub(crate) struct CommandStorage {
    pub store: Arc<dyn Store>,
    pub views: Arc<dyn Views>,
}

/// Opens an existing database for a command that writes to it. A SQLite file that a server has open is refused.
pub(crate) async fn open_for_writing(place: &Place<'_>, options: StoreOptions) -> anyhow::Result<CommandStorage> {
    Ok(match place {
        Place::File(file) => {
            anyhow::ensure!(file.exists(), "no server answers, and there is no database {}", file.display());
            let store = Arc::new(SqliteStore::open(file, options).with_context(|| place.to_string())?);
            CommandStorage { views: store.clone(), store }
        }
        Place::Postgres(url) => {
            let store = Arc::new(PostgresStore::open(url.expose(), options).await.with_context(|| place.to_string())?);
            CommandStorage { views: store.clone(), store }
        }
    })
}

/// Opens an existing database for reading.
pub(crate) async fn open_for_reading(place: &Place<'_>) -> anyhow::Result<Box<dyn Views>> {
    Ok(match place {
        Place::File(file) => Box::new(SqliteViews::open(file)?),
        Place::Postgres(url) => Box::new(PostgresViews::open(url.expose()).await.with_context(|| place.to_string())?),
    })
}
