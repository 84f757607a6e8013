//! Opening a database: it is reached, checked and migrated, and refused if a check fails.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, config::Host};
use windlass_ports::{CanaryKey, NodeId, SealKeys};

use super::{
    clock::DatabaseClock,
    hash_keys, parked,
    pg_error::error_text,
    session::{Connector, OWN_TOKEN_NAME},
    tls::Endpoint,
};

/// Migrations in order. The number of the last one is the version of the schema.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_init.sql"),
    include_str!("../../migrations/postgres/0002_conversations.sql"),
    include_str!("../../migrations/postgres/0003_answers.sql"),
    include_str!("../../migrations/postgres/0004_follow_ups.sql"),
    include_str!("../../migrations/postgres/0005_agent_names.sql"),
    include_str!("../../migrations/postgres/0006_requests.sql"),
    include_str!("../../migrations/postgres/0007_seal_canary.sql"),
    include_str!("../../migrations/postgres/0008_erasure.sql"),
    include_str!("../../migrations/postgres/0009_usage.sql"),
    include_str!("../../migrations/postgres/0010_manifests.sql"),
    include_str!("../../migrations/postgres/0011_id_key.sql"),
    include_str!("../../migrations/postgres/0012_headers.sql"),
    include_str!("../../migrations/postgres/0013_interrupts.sql"),
    include_str!("../../migrations/postgres/0014_children.sql"),
    include_str!("../../migrations/postgres/0015_indexes.sql"),
];

/// The oldest server version that has everything the statements use.
const VERSION_MIN: i64 = 15;

/// The length of the first lease: enough for the process to begin renewing it.
const FIRST_LEASE_MS: i64 = 15_000;

/// One server migrates at a time. The lock is per schema, because the tables are.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('windlass migration in ' || current_schema(), 0))";

/// Why a database was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// The address can't be read. It is not repeated, because it may have a password.
    #[error("the address of the database cannot be read; expected postgres://user:password@host/database")]
    Address,
    /// What the address demands of TLS is not possible.
    #[error("TLS to the database cannot be set up: {0}; see sslmode and sslrootcert in store.url")]
    Tls(String),
    /// A newer version wrote the database. Nothing was changed.
    #[error("the database has schema version {found}; this server knows up to {known}")]
    Newer {
        /// The version of the database.
        found: i64,
        /// The newest version that this server knows.
        known: i64,
    },
    /// The PostgreSQL server is too old.
    #[error("the database server is PostgreSQL {found}; at least {VERSION_MIN} is needed")]
    Older {
        /// Its version.
        found: i64,
    },
    /// A setting of the database makes durability impossible.
    #[error("the database server answers {found:?} for {setting}, and it must be {wanted:?}: it would lose what it said it had kept")]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The value that it must have.
        wanted: &'static str,
        /// The value that it has.
        found: String,
    },
    /// No server answers at the address.
    #[error("the database cannot be reached: {0}; check that PostgreSQL runs there, and store.url")]
    Unreachable(String),
    /// Another server made a token of its own for the same database.
    #[error(
        "another Windlass server uses this database, and neither has auth.tokens: each made a token of its own, so that a client's token \
         would work at one of them only; configure the same auth.tokens for all of them"
    )]
    OwnTokens,
    /// None of the server's seal keys opens the store's canary.
    #[error("the database is refused: {0}")]
    SealKey(String),
    /// PostgreSQL reported an error.
    #[error("the database cannot be opened: {0}")]
    Postgres(String),
}

impl From<tokio_postgres::Error> for PostgresOpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        PostgresOpenError::Postgres(error_text(&error))
    }
}

/// What a server reads from the database when it starts.
pub(super) struct Opened {
    pub(super) node: NodeId,
    pub(super) clock: DatabaseClock,
    pub(super) id_key: [u8; 32],
}

/// Prepares a database for a server that starts, and gives that server its number.
pub(super) async fn open(connector: &Connector, keys: Option<&dyn SealKeys>) -> Result<Opened, PostgresOpenError> {
    let mut client = connector.bare_at_start().await?;
    check_server(&client).await?;
    check_own_tokens(&client).await?;
    check_version(version(&client).await?)?;
    migrate(&mut client).await?;
    if let Some(keys) = keys {
        check_canary(&mut client, keys).await?;
    }
    let key: Vec<u8> = client.query_one("SELECT key FROM id_key", &[]).await?.try_get(0)?;
    let id_key = key.try_into().map_err(|_| PostgresOpenError::Postgres("the key in the table id_key does not have 32 bytes".into()))?;
    let (node, clock) = begin_node(&client).await?;
    Ok(Opened { node, clock, id_key })
}

/// Checks whether a database can be read, and changes nothing.
pub(super) async fn look(connector: &Connector) -> Result<(), PostgresOpenError> {
    let client = connector.bare_in_time(Duration::ZERO).await?;
    match version(&client).await? {
        0 => Err(PostgresOpenError::Postgres("there are no tables of this program in it".into())),
        found if found < MIGRATIONS.len() as i64 => {
            let known = MIGRATIONS.len();
            let why = format!("it has schema version {found}, and this program reads {known}: start a server of this version on it first");
            Err(PostgresOpenError::Postgres(why))
        }
        found => check_version(found),
    }
}

/// The host and the port of an address, without anything secret. `None` if the address can't be read.
pub fn postgres_address(url: &str) -> Option<String> {
    let config = Endpoint::read(url).ok()?.config;
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let shown = |(index, host): (usize, &Host)| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), port(index)),
    };
    let places: Vec<String> = config.get_hosts().iter().enumerate().map(shown).collect();
    (!places.is_empty()).then(|| places.join(", "))
}

/// Servers that made their own tokens have the token's hash in the names of their connections. Servers with the same token may share the
/// database.
async fn check_own_tokens(client: &Client) -> Result<(), PostgresOpenError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
               AND starts_with(application_name, $1) AND starts_with(current_setting('application_name'), $1)
               AND application_name <> current_setting('application_name'))";
    let is_shared: bool = client.query_one(sql, &[&OWN_TOKEN_NAME]).await?.try_get(0)?;
    if is_shared { Err(PostgresOpenError::OwnTokens) } else { Ok(()) }
}

/// Refuses a server that does not flush, because it would lose commits.
async fn check_server(client: &Client) -> Result<(), PostgresOpenError> {
    let sql = "SELECT current_setting('server_version_num')::bigint, current_setting('fsync'), current_setting('synchronous_commit')";
    let row = client.query_one(sql, &[]).await?;
    let number: i64 = row.try_get(0)?;
    if number / 10_000 < VERSION_MIN {
        return Err(PostgresOpenError::Older { found: number / 10_000 });
    }
    let (fsync, flushed): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    if fsync != "on" {
        return Err(PostgresOpenError::Setting { setting: "fsync", wanted: "on", found: fsync });
    }
    if flushed == "off" {
        return Err(PostgresOpenError::Setting { setting: "synchronous_commit", wanted: "on", found: flushed });
    }
    Ok(())
}

fn check_version(found: i64) -> Result<(), PostgresOpenError> {
    let known = MIGRATIONS.len() as i64;
    if found > known { Err(PostgresOpenError::Newer { found, known }) } else { Ok(()) }
}

/// The version of the schema: 0 if there is none yet.
async fn version(client: &Client) -> Result<i64, PostgresOpenError> {
    let has_table: bool = client.query_one("SELECT to_regclass('schema_version') IS NOT NULL", &[]).await?.try_get(0)?;
    if !has_table {
        return Ok(0);
    }
    Ok(client.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.try_get(0)?)
}

/// Servers that start at the same time wait for the one that migrates. The others then have nothing left to do.
async fn migrate(client: &mut Client) -> Result<(), PostgresOpenError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = 0; {MIGRATION_LOCK}")).await?;
    let made = "CREATE TABLE IF NOT EXISTS schema_version (version bigint PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";
    transaction.batch_execute(made).await?;
    let found: i64 = transaction.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.try_get(0)?;
    check_version(found)?;
    for (number, migration) in (1i64..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        transaction.batch_execute(migration).await?;
        if number == hash_keys::MIGRATION {
            hash_keys::hash_keys(&transaction).await?;
        }
        if number == parked::MIGRATION {
            parked::store_interrupts(&transaction).await?;
        }
        transaction.execute("INSERT INTO schema_version (version) VALUES ($1)", &[&number]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Refuses keys that don't open what is sealed in the database. The first server stores a canary for the next ones, and a server with a new
/// current key replaces it. Servers that start at the same time do this one after the other.
async fn check_canary(client: &mut Client, keys: &dyn SealKeys) -> Result<(), PostgresOpenError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(&format!("SET LOCAL lock_timeout = 0; {MIGRATION_LOCK}")).await?;
    let row = transaction.query_opt("SELECT sealed FROM seal_canary", &[]).await?;
    let canary: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    let key = canary.map(|canary| keys.check_canary(&canary)).transpose().map_err(PostgresOpenError::SealKey)?;
    if key != Some(CanaryKey::Current) {
        let sql = "INSERT INTO seal_canary (sealed) VALUES ($1) ON CONFLICT (only_row) DO UPDATE SET sealed = excluded.sealed";
        transaction.execute(sql, &[&keys.canary()]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Records the start of a process, which is a new owner of runs.
async fn begin_node(client: &Client) -> Result<(NodeId, DatabaseClock), PostgresOpenError> {
    let sql = "INSERT INTO nodes (alive_until) VALUES (clock_timestamp() + $1::bigint * interval '1 millisecond')
               RETURNING node, (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let asked = Instant::now();
    let row = client.query_one(sql, &[&FIRST_LEASE_MS]).await?;
    let node: i64 = row.try_get(0)?;
    Ok((NodeId(node.unsigned_abs()), DatabaseClock::new(asked, row.try_get(1)?)))
}
