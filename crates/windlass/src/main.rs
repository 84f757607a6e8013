//! Windlass: a durable agent engine in one binary. This crate has the command line, and wires all other crates together.

mod bell;
mod cli;
mod config;
mod connections;
mod demo;
mod dev;
mod export;
mod logging;
mod login;
mod serve;
mod signals;
mod storage;
mod tls;
mod token;
mod world;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use windlass_engine::CrashPoints;

use config::Config;
use signals::Hangup;

/// The engine makes many small, short-lived allocations on a few threads; with the system's allocator they took a tenth of its profile.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable agent engine: kill it in the middle, nothing is lost and nothing runs twice.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the server in the foreground. SIGTERM lets running calls finish for a while, then exits; SIGHUP reloads auth.tokens and
    /// the certificate of server.tls.
    Serve {
        /// The configuration; without it windlass.yaml of this folder is read, if there is one.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The address, instead of the configured one.
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
        /// The data folder.
        #[arg(long, value_name = "DIR", default_value = ".windlass")]
        data: PathBuf,
    },
    /// The server for one person: makes what is missing, and prints how to talk to it.
    Dev {
        /// The configuration; without it windlass.yaml of this folder is read, if there is one.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The address, instead of the configured one.
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
        /// The data folder.
        #[arg(long, value_name = "DIR", default_value = ".windlass")]
        data: PathBuf,
    },
    /// Shows what it is about: kills a server of its own in the middle of an answer. Needs nothing, leaves nothing behind.
    Demo,
    /// Prints a run as JSON lines: its journal, items and calls. Works beside a running server.
    Export {
        /// The run, as run_….
        run: String,
        /// The configuration, for where the database is.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The data folder.
        #[arg(long, value_name = "DIR", default_value = ".windlass")]
        data: PathBuf,
        /// Whose run it is.
        #[arg(long, default_value = "default")]
        tenant: String,
    },
    /// Lists the points that WINDLASS_CRASH_AT can name.
    CrashPoints,
    #[command(flatten)]
    Verb(cli::Verb),
}

fn main() -> ExitCode {
    use_small_pages();
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("windlass: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Turns huge pages off before anything is allocated: with them, every thread of an idle server would keep two megabytes for the little
/// that it needs. An error is ignored, since a system without huge pages need not turn them off.
fn use_small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Verb(verb) => return Ok(runtime()?.block_on(cli::run(verb))),
        Command::Serve { config, listen, data } => {
            let loaded = listening(load(config.as_deref())?, listen.as_deref())?;
            logging::start("info", loaded.log.format)?;
            let hangup = Hangup::Reload(Box::new(move || load(config.as_deref())));
            runtime()?.block_on(serve::serve(loaded, &data, hangup, |metrics| metrics, |_| {}))?;
        }
        Command::Dev { config, listen, data } => {
            let config = listening(load(config.as_deref())?, listen.as_deref())?;
            // Only warnings are logged, so that the banner stays visible; but the output of MCP servers is what a developer wants to see.
            logging::start("warn,windlass_tools::stderr=info", config.log.format)?;
            runtime()?.block_on(serve::serve(config, &data, Hangup::Stop, dev::observe, dev::print))?;
        }
        Command::Demo => runtime()?.block_on(demo::demo())?,
        Command::Export { run, config, data, tenant } => {
            let config = load(config.as_deref())?;
            runtime()?.block_on(export::export(&config.store.place(&data), &tenant, &run))?;
        }
        Command::CrashPoints => {
            for name in CrashPoints::names() {
                println!("{name}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load(path: Option<&Path>) -> anyhow::Result<Config> {
    let here = Path::new("windlass.yaml");
    let path = path.or_else(|| here.exists().then_some(here));
    // A variable that is not text cannot be a setting.
    let env = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(Config::load(path, env)?)
}

/// Applies the address of the command line, if there is one.
fn listening(mut config: Config, listen: Option<&str>) -> anyhow::Result<Config> {
    if let Some(listen) = listen {
        config.server.set_listen(listen)?;
    }
    Ok(config)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
