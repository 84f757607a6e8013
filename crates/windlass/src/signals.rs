//! What signals make the server do.

use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_doors::TokenTable;

use crate::{config::Config, login};

/// Reads the configuration again, as it was read at the start.
pub(crate) type Reload = Box<dyn Fn() -> anyhow::Result<Config> + Send>;

/// What SIGHUP does.
pub(crate) enum Hangup {
    /// The server reads the configuration again and replaces what can be replaced while it runs.
    Reload(Reload),
    /// The server stops: its terminal was closed.
    Stop,
}

/// The signals of a server that runs.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    on_hangup: Hangup,
    tokens: TokenTable,
}

impl Signals {
    /// From here on, signals no longer end the process by themselves.
    pub(crate) fn listen(on_hangup: Hangup, tokens: TokenTable) -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, hangup: signal(SignalKind::hangup())?, on_hangup, tokens })
    }

    /// Waits for a signal to stop. Until then it does what SIGHUP asks for.
    pub(crate) async fn stop(mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {}
            }
            match &self.on_hangup {
                Hangup::Stop => return,
                Hangup::Reload(reload) => reload_tokens(reload, &self.tokens),
            }
        }
    }
}

/// Accepts the tokens of the configuration as it is now. If it cannot be used, the tokens stay as they are.
fn reload_tokens(reload: &Reload, tokens: &TokenTable) {
    match reload().and_then(|config| login::reloaded(&config)) {
        Ok(fresh) => {
            tracing::info!(tokens = fresh.len(), "auth.tokens was reloaded; other settings need a restart");
            tokens.replace(fresh);
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "auth.tokens could not be reloaded: the tokens stay as they are");
        }
    }
}
