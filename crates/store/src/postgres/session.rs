//! A connection with prepared statements, and how it is made.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use windlass_ports::ErrorDetail;

use super::{
    fetch::Manifests,
    open::PostgresOpenError,
    pg_error::{PgError, error_text},
    statements::Statements,
    tls::Endpoint,
};

/// How long connecting to an unreachable server is attempted before the callers get an error.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_secs(5);

/// How long connecting is attempted at the start of Windlass before the start fails.
const START_UNREACHABLE_AFTER: Duration = Duration::from_secs(4);

/// How long a PostgreSQL server that answers may take to start.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// The pause after the first failed attempt. It doubles up to the longest pause.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The settings of every session. An index lookup is right for every statement of the store, however large the tables are and whether or
/// not they were analysed: so no other plan is allowed, and a plan is made once. If a server process stops in the middle of a transaction,
/// its locks must end soon.
const SETTINGS: &str = "
    SET client_encoding = 'UTF8';
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET statement_timeout = '30s';
    SET lock_timeout = '10s';
    SET idle_in_transaction_session_timeout = '10s';
    SET plan_cache_mode = 'force_generic_plan';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET enable_memoize = off;
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The name of the connections of a server that made its own token. Digits of the token's hash follow.
pub(super) const OWN_TOKEN_NAME: &str = "windlass own token ";

/// A live connection.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) statements: Statements,
    pub(super) manifests: Manifests,
    /// Whether this session holds the lock on the outbox.
    publishes: AtomicBool,
}

impl Session {
    /// Takes the lock on the outbox, if no other session has it.
    pub(super) async fn may_publish(&self) -> Result<bool, PgError> {
        if self.publishes.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let is_ours: bool = self.client.query_one(&self.statements.lock_outbox, &[]).await?.try_get(0)?;
        self.publishes.store(is_ours, Ordering::Relaxed);
        Ok(is_ours)
    }
}

/// Makes sessions.
#[derive(Clone)]
pub(super) struct Connector {
    endpoint: Arc<Endpoint>,
    manifests: Manifests,
}

impl Connector {
    /// Reads an address. Errors never repeat its text, because it may have a password.
    pub(super) fn new(url: &str, own_token: Option<[u8; 32]>) -> Result<Self, PostgresOpenError> {
        let mut endpoint = Endpoint::read(url)?;
        let config = &mut endpoint.config;
        match own_token {
            // A few digits of a hash distinguish tokens and disclose none.
            Some(hash) => {
                let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                config.application_name(format!("{OWN_TOKEN_NAME}{digits}"));
            }
            None if config.get_application_name().is_none() => drop(config.application_name("windlass")),
            None => {}
        }
        config.connect_timeout(UNREACHABLE_AFTER);
        config.keepalives_idle(Duration::from_secs(15));
        config.tcp_user_timeout(Duration::from_secs(15));
        Ok(Connector { endpoint: Arc::new(endpoint), manifests: Manifests::default() })
    }

    /// A connection without prepared statements, for use before the database is known to have tables.
    pub(super) async fn bare(&self) -> Result<Client, tokio_postgres::Error> {
        let client = self.endpoint.client().await?;
        client.batch_execute(SETTINGS).await?;
        Ok(client)
    }

    /// Like `bare`, attempted until the server has had time to start.
    pub(super) async fn bare_in_time(&self, patience: Duration) -> Result<Client, tokio_postgres::Error> {
        let since = Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            match self.bare().await {
                Ok(client) => return Ok(client),
                Err(error) if since.elapsed() > patience || !may_pass(&error) => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// A connection for a start of Windlass. A database that answers but is not ready gets time to start; for one that does not answer, the
    /// start fails within five seconds.
    pub(super) async fn bare_at_start(&self) -> Result<Client, PostgresOpenError> {
        let since = Instant::now();
        let (mut pause, mut patience) = (PAUSE_FIRST, START_UNREACHABLE_AFTER);
        loop {
            let error = match tokio::time::timeout(patience.saturating_sub(since.elapsed()), self.bare()).await {
                Ok(Ok(client)) => return Ok(client),
                Err(_) => return Err(PostgresOpenError::Unreachable("it does not answer".to_owned())),
                Ok(Err(error)) => error,
            };
            let is_answer = error.code().is_some();
            if is_answer && may_pass(&error) {
                patience = START_PATIENCE;
            }
            if !may_pass(&error) || since.elapsed() + pause > patience {
                return Err(if is_answer { error.into() } else { PostgresOpenError::Unreachable(error_text(&error)) });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// A session, attempted until the server counts as unreachable.
    pub(super) async fn session(&self) -> Result<Session, PgError> {
        let client =
            self.bare_in_time(UNREACHABLE_AFTER).await.map_err(|error| PgError::Lost(ErrorDetail::of(error_text(&error), error)))?;
        let statements = Statements::prepare(&client).await?;
        Ok(Session { client, statements, manifests: self.manifests.clone(), publishes: AtomicBool::new(false) })
    }
}

/// Whether a server that refuses now may accept later: it starts, stops, is full, or does not answer. A wrong password stays wrong.
fn may_pass(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| ["57", "53", "08"].iter().any(|class| code.code().starts_with(class)))
}
