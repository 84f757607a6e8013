//! The reactions of the server to signals.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_doors::TokenTable;

use crate::{config::Config, login, tls::Certificate};

/// Reads the configuration again, in the same way as at the start.
pub(crate) type Reload = Box<dyn Fn() -> anyhow::Result<Config> + Send>;

/// The reaction to SIGHUP.
pub(crate) enum Hangup {
    /// The server reads the configuration again and replaces what can be replaced while it runs.
    Reload(Reload),
    /// The server stops: its terminal was closed.
    Stop,
}

/// The parts of a server that a reload replaces.
pub(crate) struct Replaceable {
    pub tokens: TokenTable,
    /// The certificate of `server.tls`, if the server was started with one.
    pub certificate: Option<Arc<Certificate>>,
}

/// The signal handlers of a running server.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    on_hangup: Hangup,
    replaceable: Replaceable,
}

impl Signals {
    /// Installs the handlers. From here on the signals no longer end the process by themselves.
    pub(crate) fn listen(on_hangup: Hangup, replaceable: Replaceable) -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, hangup: signal(SignalKind::hangup())?, on_hangup, replaceable })
    }

    /// Waits for SIGTERM or SIGINT, and handles SIGHUP meanwhile.
    pub(crate) async fn stop(mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {}
            }
            match &self.on_hangup {
                Hangup::Stop => return,
                Hangup::Reload(read) => self.replaceable.reload(read),
            }
        }
    }
}

impl Replaceable {
    /// Replaces the tokens and the certificate by those of the current configuration. A part that is invalid stays unchanged.
    fn reload(&self, read: &Reload) {
        let config = match read() {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the configuration could not be reloaded: tokens and certificate stay as they are"
                );
                return;
            }
        };
        self.reload_tokens(&config);
        self.reload_certificate(&config);
    }

    fn reload_tokens(&self, config: &Config) {
        match login::reloaded(config) {
            Ok(fresh) => {
                let tokens = fresh.len();
                self.tokens.replace(fresh);
                tracing::info!(tokens, "auth.tokens was reloaded; other settings than tokens and server.tls need a restart");
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "auth.tokens could not be reloaded: the tokens stay as they are");
            }
        }
    }

    fn reload_certificate(&self, config: &Config) {
        let reloaded = match (&self.certificate, &config.server.tls) {
            (Some(certificate), Some(files)) => certificate.reload(files),
            (None, None) => return,
            (Some(_), None) | (None, Some(_)) => Err(anyhow::anyhow!("switching server.tls on or off needs a restart")),
        };
        match reloaded {
            Ok(()) => tracing::info!("the certificate of server.tls was reloaded"),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the certificate of server.tls could not be reloaded: it stays as it is");
            }
        }
    }
}
