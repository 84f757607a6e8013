//! `windlass gc`: erases the runs that are older than `retention` allows, at once instead of in the sweep, and can rebuild a SQLite
//! database.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use windlass_engine::{Retention, erase_aged};
use windlass_ports::Clock;
use windlass_store::{OpenError, StoreOptions, Vacuumed, vacuum_sqlite};

use super::{
    Common, Done,
    client::{CliError, Client},
};
use crate::{
    config::{Config, Place},
    storage::{self, CommandStorage},
    world::SystemClock,
};

/// Runs between two lines of progress.
const PROGRESS_RUNS: u64 = 1_000;

#[derive(Args)]
pub(crate) struct GcArguments {
    /// Rebuilds a SQLite database after that, so that no free page holds erased text. No server may run on it.
    #[arg(long, conflicts_with = "server")]
    vacuum: bool,
    /// The configuration, for `retention` and for where the database is if no server runs.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder, if no server runs.
    #[arg(long, value_name = "DIR", default_value = ".windlass")]
    data: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Counts runs and prints progress from time to time.
#[derive(Default)]
struct GcProgress {
    erased: u64,
    failed: u64,
    printed: u64,
}

impl GcProgress {
    fn add(&mut self, erased: u64, failed: u64) {
        self.erased += erased;
        self.failed += failed;
        if self.erased - self.printed >= PROGRESS_RUNS {
            self.printed = self.erased;
            eprintln!("erased {} runs", self.erased);
        }
    }
}

pub(super) async fn gc(arguments: GcArguments) -> Result<Done, CliError> {
    let (progress, vacuumed) = if arguments.vacuum { with_vacuum(&arguments).await? } else { (by_age(&arguments).await?, None) };
    let GcProgress { erased, failed, .. } = progress;
    match arguments.common.json {
        true => {
            let sizes = vacuumed.map(|Vacuumed { before, after }| json!({ "before_bytes": before, "after_bytes": after }));
            println!("{}", json!({ "erased": erased, "failed": failed, "vacuum": sizes }));
        }
        false => {
            println!("erased {erased} runs that were older than `retention` says");
            if let Some(Vacuumed { before, after }) = vacuumed {
                println!("rebuilt the database: {before} bytes before, {after} bytes after");
            }
        }
    }
    if failed > 0 {
        return Err(CliError::Failed(format!("{failed} runs could not be erased; the log says why")));
    }
    Ok(Done::Fully)
}

async fn by_age(arguments: &GcArguments) -> Result<GcProgress, CliError> {
    let client = arguments.common.client()?;
    // If the user named a server, the command must use it; otherwise it may open the database when no server runs.
    let is_named = arguments.common.server.is_some() || std::env::var_os("WINDLASS_URL").is_some();
    match over_api(&client).await {
        Err(CliError::Unreachable { .. }) if !is_named => {
            let config = load(arguments)?;
            if !config.retention.is_set() {
                return Err(CliError::Failed("the configuration has no `retention`: no run is erased by its age".to_owned()));
            }
            in_database(&config.store.place(&arguments.data), config.retention).await
        }
        done => done,
    }
}

/// Requests one batch after the other from a server.
async fn over_api(client: &Client) -> Result<GcProgress, CliError> {
    let (mut progress, mut after) = (GcProgress::default(), Value::Null);
    loop {
        let answer = client.post("/v1/windlass/gc", json!({ "after": after }).to_string(), &uuid::Uuid::now_v7().to_string()).await?;
        let count = |name: &str| answer.json[name].as_u64().unwrap_or(0);
        progress.add(count("erased"), count("failed"));
        after = answer.json["next"].clone();
        if after.is_null() {
            return Ok(progress);
        }
    }
}

/// Erases the runs of all tenants in a database that no server has open.
async fn in_database(place: &Place<'_>, retention: Retention) -> Result<GcProgress, CliError> {
    let CommandStorage { store, views } =
        storage::open_for_writing(place, StoreOptions::default()).await.map_err(|error| failed(&error))?;
    let mut progress = GcProgress::default();
    let unread = |error: windlass_ports::StoreError| CliError::Failed(error.to_string());
    for tenant in views.tenants().await.map_err(unread)? {
        let mut after = None;
        loop {
            let done = erase_aged(&*store, retention, &tenant, after, SystemClock.now()).await.map_err(unread)?;
            progress.add(done.erased, done.failed);
            after = done.next;
            if after.is_none() {
                break;
            }
        }
    }
    // Dropping the last of the two empties the write-ahead log.
    Ok(progress)
}

async fn with_vacuum(arguments: &GcArguments) -> Result<(GcProgress, Option<Vacuumed>), CliError> {
    let config = load(arguments)?;
    let place = config.store.place(&arguments.data);
    let Place::File(file) = &place else {
        let message =
            "--vacuum is for SQLite; in a PostgreSQL database erased rows are removed by autovacuum, or by the operator with VACUUM (FULL)";
        return Err(CliError::Usage(message.to_owned()));
    };
    if !file.exists() {
        return Err(CliError::Failed(format!("there is no database {}", file.display())));
    }
    let progress = if config.retention.is_set() { in_database(&place, config.retention).await? } else { GcProgress::default() };
    let file = file.clone();
    let vacuumed = tokio::task::spawn_blocking(move || vacuum_sqlite(file)).await;
    match vacuumed.map_err(|error| CliError::Failed(error.to_string()))? {
        Ok(vacuumed) => Ok((progress, Some(vacuumed))),
        Err(error) => Err(failed(&error.into())),
    }
}

fn load(arguments: &GcArguments) -> Result<Config, CliError> {
    crate::load(arguments.config.as_deref()).map_err(|error| failed(&error))
}

/// The error of a database that could not be opened. If another process has it, the message says what to do.
fn failed(error: &anyhow::Error) -> CliError {
    let is_in_use = matches!(error.downcast_ref(), Some(OpenError::InUse { .. }));
    let hint = if is_in_use { "; stop that server first, or ask it without --vacuum (--server names it)" } else { "" };
    CliError::Failed(format!("{error:#}{hint}"))
}
