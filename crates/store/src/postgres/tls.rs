//! Connections to a database, with TLS if its address demands it.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use percent_encoding::percent_decode_str;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{open::PostgresOpenError, pg_error::error_text};

/// The messages that the server sends to a listening connection.
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

/// The address of a database, and how connections to it are protected.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Endpoint {
    /// Reads an address. Errors never repeat its text, because it may have a password. `sslmode` and `sslrootcert` are read here, because
    /// the driver does not verify certificates.
    pub fn read(url: &str) -> Result<Self, PostgresOpenError> {
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(value),
                Some(_) | None => rest.push(pair),
            }
        }
        let tls = match (mode, roots) {
            (None | Some("disable"), None) => None,
            (Some("require"), None) => Some(unverified()?),
            (Some("verify-full"), roots) => Some(verified(roots)?),
            (_, Some(_)) => return Err(PostgresOpenError::Tls("sslrootcert needs sslmode=verify-full".to_owned())),
            (Some(_), None) => {
                return Err(PostgresOpenError::Tls("sslmode must be disable, require or verify-full".to_owned()));
            }
        };
        let url = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
        let mut config: Config = url.parse().map_err(|_| PostgresOpenError::Address)?;
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(Endpoint { config, tls })
    }

    /// A connection that a background task drives.
    pub async fn client(&self) -> Result<Client, tokio_postgres::Error> {
        match &self.tls {
            None => self.config.connect(NoTls).await.map(driven),
            Some(tls) => self.config.connect(tls.clone()).await.map(driven),
        }
    }

    /// A connection that the reader of its messages drives.
    pub async fn listener(&self) -> Result<(Client, Messages), tokio_postgres::Error> {
        match &self.tls {
            None => self.config.connect(NoTls).await.map(listening),
            Some(tls) => self.config.connect(tls.clone()).await.map(listening),
        }
    }
}

fn driven<S, T>((client, connection): (Client, Connection<S, T>)) -> Client
where
    Connection<S, T>: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = error_text(&error), "a connection to the database ended");
        }
    });
    client
}

fn listening<S, T>((client, mut connection): (Client, Connection<S, T>)) -> (Client, Messages)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    (client, Box::pin(stream::poll_fn(move |context| connection.poll_message(context))))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn failed(error: impl std::fmt::Display) -> PostgresOpenError {
    PostgresOpenError::Tls(error.to_string())
}

/// `verify-full`: the certificate is signed by a root of the file or of the system, and names the host.
fn verified(roots: Option<&str>) -> Result<MakeRustlsConnect, PostgresOpenError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(failed)?;
    let config = match roots {
        None => builder.with_platform_verifier().map_err(failed)?.with_no_client_auth(),
        Some(path) => {
            let path = percent_decode_str(path).decode_utf8().map_err(failed)?;
            let unreadable = |error: &dyn std::fmt::Display| failed(format!("sslrootcert {path} cannot be read: {error}"));
            let mut store = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path.as_ref()).map_err(|error| unreadable(&error))? {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                store.add(certificate).map_err(|error| unreadable(&error))?;
            }
            if store.is_empty() {
                return Err(unreadable(&"it has no certificate"));
            }
            builder.with_root_certificates(store).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

/// `require`: encrypted, but the certificate is not checked, as with PostgreSQL's own clients.
fn unverified() -> Result<MakeRustlsConnect, PostgresOpenError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(failed)?;
    let verifier = Arc::new(AnyCertificate(provider()));
    Ok(MakeRustlsConnect::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Accepts every certificate. That the server has the key of its certificate is still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
