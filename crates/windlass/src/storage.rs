//! The database that the configuration names, opened.

use std::sync::Arc;

use anyhow::Context;
use windlass_ports::{Clock, Meter, NodeId, SealKeys, Store, Views};
use windlass_store::{PartedStore, PostgresStore, PostgresViews, SqliteStore, SqliteViews, StoreOptions};

use crate::{config::Place, world::SystemClock};

/// An open store, with both its faces.
pub(crate) struct Storage {
    pub node: NodeId,
    /// The secret by which ids that the API shows are computed.
    pub id_key: [u8; 32],
    pub store: Arc<dyn Store>,
    pub views: Arc<dyn Views>,
    /// What its deadlines are measured by.
    pub clock: Arc<dyn Clock>,
}

impl Storage {
    /// The same, with runs that are not to be stored in memory: so many bytes of content at the most.
    pub fn parted(self, options: StoreOptions, bytes_max: u64) -> Self {
        let parted = Arc::new(PartedStore::new(self.store, self.views, options, bytes_max));
        Storage { store: parted.clone(), views: parted, ..self }
    }
}

/// Opens a database for a server, which reports its commits to the meter. A server that made its own token has that token's hash, and
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

/// A database that a command opened, with both its faces.
pub(crate) struct Alone {
    pub store: Arc<dyn Store>,
    pub views: Arc<dyn Views>,
}

/// Opens a database that is there for a command that writes to it. A file that a server has is refused.
pub(crate) async fn open_alone(place: &Place<'_>, options: StoreOptions) -> anyhow::Result<Alone> {
    Ok(match place {
        Place::File(file) => {
            anyhow::ensure!(file.exists(), "no server answers, and there is no database {}", file.display());
            let store = Arc::new(SqliteStore::open(file, options).with_context(|| place.to_string())?);
            Alone { views: store.clone(), store }
        }
        Place::Postgres(url) => {
            let store = Arc::new(PostgresStore::open(url.expose(), options).await.with_context(|| place.to_string())?);
            Alone { views: store.clone(), store }
        }
    })
}

/// Opens a database that is there, for reading.
pub(crate) async fn look(place: &Place<'_>) -> anyhow::Result<Box<dyn Views>> {
    Ok(match place {
        Place::File(file) => Box::new(SqliteViews::open(file)?),
        Place::Postgres(url) => Box::new(PostgresViews::open(url.expose()).await.with_context(|| place.to_string())?),
    })
}
