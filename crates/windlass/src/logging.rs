//! Sets up the log on stderr.

use std::{env, io::IsTerminal};

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The environment variable with the filter of the log.
const VARIABLE: &str = "WINDLASS_LOG";

/// The filter for libraries. The NATS client reports every attempt to connect and the MCP client every session; our own code logs what
/// matters of it.
const LIBRARIES: &str = "async_nats=off,rmcp=warn";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts the log with `filter`, unless the environment has another one.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = match env::var(VARIABLE) {
        Ok(text) => read_filter(&text).with_context(|| format!("{VARIABLE}={text:?} cannot be read"))?,
        Err(env::VarError::NotPresent) => read_filter(filter)?,
        Err(env::VarError::NotUnicode(_)) => bail!("{VARIABLE} is not UTF-8 text"),
    };
    let has_colours = std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(has_colours);
    // This fails only if the log has been started already in this process, which does not happen.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    Ok(())
}

fn read_filter(text: &str) -> anyhow::Result<EnvFilter> {
    // The parser does not accept spaces.
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    for part in &parts {
        // The parser would take a misspelt level for the name of a module and log nothing.
        let is_level = LEVELS.iter().any(|level| part.eq_ignore_ascii_case(level));
        if !is_level && !part.contains(['=', '[']) {
            bail!("{part:?} is no level; give one of {}, or a module and its level such as windlass_engine=debug", LEVELS.join(", "));
        }
    }
    Ok(EnvFilter::builder().parse(format!("{LIBRARIES},{}", parts.join(",")))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_refused_with_the_reason() {
        for good in ["info", "WARN", "debug,windlass_engine=trace", "warn, windlass_tools[x]=debug", ""] {
            assert!(read_filter(good).is_ok(), "{good}");
        }
        for (bad, reason) in [("inof", "is no level"), ("info,windlass_engine", "is no level"), ("windlass=loud", "level")] {
            let error = format!("{:#}", read_filter(bad).expect_err(bad));
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }
}
