//! The server's certificate for HTTPS (`server.tls`), which can be replaced while the server runs.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use anyhow::Context;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

/// The maximum size of a certificate or key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The paths of the certificate chain and the private key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The certificate in use. Handshakes that begin after [`Certificate::reload`] get the new one; open connections stay as they are.
#[derive(Debug)]
pub(crate) struct Certificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificate {
    /// Reads both files. They must belong together.
    pub(crate) fn read(files: &TlsFiles) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Certificate { current: RwLock::new(Arc::new(certified_key(files)?)) }))
    }

    /// Reads the files again. If they cannot be used, the certificate in use stays.
    pub(crate) fn reload(&self, files: &TlsFiles) -> anyhow::Result<()> {
        let fresh = Arc::new(certified_key(files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// An acceptor that uses the certificate in use at the time of each handshake. It offers only HTTP/1.1.
    pub(crate) fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn certified_key(files: &TlsFiles) -> anyhow::Result<CertifiedKey> {
    let (cert, key) = (files.cert.display(), files.key.display());
    let pem = read(&files.cert, Readers::Any).context("server.tls.cert")?;
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(|| format!("server.tls.cert: {cert} is not PEM"))?;
    anyhow::ensure!(!chain.is_empty(), "server.tls.cert: {cert} has no certificate (BEGIN CERTIFICATE)");
    let pem = read(&files.key, Readers::OwnerOnly).context("server.tls.key")?;
    // The cause is left out, because it could quote the file.
    let key =
        PrivateKeyDer::from_pem_slice(&pem).map_err(|_| anyhow::anyhow!("server.tls.key: {key} has no private key (BEGIN PRIVATE KEY)"))?;
    let provider = CryptoProvider::get_default().context("TLS has no cryptography provider")?;
    CertifiedKey::from_der(chain, key, provider).with_context(|| format!("server.tls: {cert} and its key cannot be used together"))
}

/// The users who can read a file.
#[derive(PartialEq, Eq)]
enum Readers {
    Any,
    OwnerOnly,
}

fn read(path: &Path, readers: Readers) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("{shown} cannot be read"))?;
    let mode = file.metadata().with_context(|| format!("{shown} cannot be read"))?.permissions().mode() & 0o777;
    // The group may read it: certificate tools keep keys for a group that servers belong to.
    anyhow::ensure!(
        readers == Readers::Any || mode & 0o027 == 0,
        "{shown} has the mode {mode:04o}: other users can read or change it; run chmod 600 on it"
    );
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| format!("{shown} cannot be read"))?;
    anyhow::ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "{shown} is larger than {FILE_BYTES_MAX} bytes");
    Ok(bytes)
}
