//! `windlass erase`: erases everything of a tenant.

use std::{
    io::{BufRead, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use windlass_kernel::Tenant;
use windlass_ports::{Store, TenantCursor, TenantErasure};
use windlass_store::StoreOptions;

use super::{
    Common, Done,
    client::{CliError, Client},
};
use crate::{config::Config, storage};

/// Rows between two lines of progress.
const PROGRESS_ROWS: u64 = 10_000;
/// Rows of a table that one batch reads when no server runs.
const BATCH: usize = 500;

#[derive(Args)]
pub(crate) struct EraseArguments {
    /// Whose runs, conversations, items and sums of usage are erased. A running server erases only the tenant of the token.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// Does not ask.
    #[arg(long)]
    yes: bool,
    /// The configuration, for where the database is if no server runs.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder, if no server runs.
    #[arg(long, value_name = "DIR", default_value = ".windlass")]
    data: PathBuf,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn erase(arguments: EraseArguments) -> Result<Done, CliError> {
    if !arguments.yes {
        confirm(&arguments.tenant)?;
    }
    let client = arguments.common.client()?;
    // If the user named a server, the command must use it; otherwise it may open the database when no server runs.
    let is_named = arguments.common.server.is_some() || std::env::var_os("WINDLASS_URL").is_some();
    let erased = match over_api(&client, &arguments.tenant).await {
        Err(CliError::Unreachable { .. }) if !is_named => in_database(&arguments).await?,
        erased => erased?,
    };
    match arguments.common.json {
        true => println!("{}", json!({ "tenant": arguments.tenant, "erased": erased })),
        false => println!("erased everything of the tenant {} ({erased} rows)", arguments.tenant),
    }
    Ok(Done::Fully)
}

fn confirm(tenant: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("the confirmation cannot be read: {error}"));
    eprint!("Everything of the tenant {tenant} is erased for good. Type its name to go on: ");
    std::io::stderr().flush().map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    match answer.trim() == tenant {
        true => Ok(()),
        false => Err(CliError::Usage("nothing was erased: the name was not typed; --yes does not ask".to_owned())),
    }
}

/// Counts rows and prints progress from time to time.
#[derive(Default)]
struct EraseProgress {
    rows: u64,
    printed: u64,
}

impl EraseProgress {
    fn add(&mut self, rows: u64) {
        self.rows += rows;
        if self.rows - self.printed >= PROGRESS_ROWS {
            self.printed = self.rows;
            eprintln!("erased {} rows", self.rows);
        }
    }
}

/// Requests one batch after the other from a server.
async fn over_api(client: &Client, tenant: &str) -> Result<u64, CliError> {
    let (mut progress, mut after) = (EraseProgress::default(), serde_json::Value::Null);
    loop {
        let body = json!({ "tenant": tenant, "after": after }).to_string();
        let answer = client.post("/v1/windlass/erase", body, &uuid::Uuid::now_v7().to_string()).await?;
        progress.add(answer.json["erased"].as_u64().unwrap_or(0));
        after = answer.json["next"].clone();
        if after.is_null() {
            return Ok(progress.rows);
        }
    }
}

/// Erases in a database that no server has open.
async fn in_database(arguments: &EraseArguments) -> Result<u64, CliError> {
    let failed = |error: anyhow::Error| CliError::Failed(format!("{error:#}"));
    let config: Config = crate::load(arguments.config.as_deref()).map_err(failed)?;
    let place = config.store.place(&arguments.data);
    let storage::CommandStorage { store, .. } = storage::open_for_writing(&place, StoreOptions::default()).await.map_err(failed)?;
    let erased = in_store(&*store, &Tenant::from(arguments.tenant.as_str())).await?;
    // Dropping the store empties the write-ahead log.
    drop(store);
    Ok(erased)
}

async fn in_store(store: &dyn Store, tenant: &Tenant) -> Result<u64, CliError> {
    let (mut progress, mut from) = (EraseProgress::default(), TenantCursor::default());
    loop {
        let erased = store.erase_tenant(tenant.clone(), from, BATCH).await;
        match erased.map_err(|error| CliError::Failed(error.to_string()))? {
            TenantErasure::Erased { rows, next } => {
                progress.add(rows);
                let Some(next) = next else { return Ok(progress.rows) };
                from = next;
            }
            TenantErasure::OpenRuns(open) => {
                let message = format!("{open} runs of the tenant {tenant} have not ended; start a server and stop them first");
                return Err(CliError::Failed(message));
            }
        }
    }
}
