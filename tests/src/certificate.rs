//! Certificates for tests, created with `openssl`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The files of a self-signed certificate and its key.
pub struct SelfSigned {
    /// The certificate, in PEM.
    pub cert: PathBuf,
    /// The private key, in PEM. Only its owner can read it.
    pub key: PathBuf,
}

impl SelfSigned {
    /// Creates a certificate for 127.0.0.1 and `localhost` in this folder. `name` is its common name and the name of the files.
    pub fn make(folder: &Path, name: &str) -> Self {
        let made = SelfSigned { cert: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) };
        let mut openssl = Command::new("openssl");
        let openssl = request(&mut openssl, name, "IP:127.0.0.1,DNS:localhost").arg("-keyout").arg(&made.key).arg("-out").arg(&made.cert);
        let out = openssl.output().expect("openssl can be started");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        made
    }
}

/// The arguments with which `openssl` issues a certificate for a server. Clients would refuse a server that presents the certificate of an
/// authority.
pub(crate) fn request<'a>(openssl: &'a mut Command, common_name: &str, names: &str) -> &'a mut Command {
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &format!("/CN={common_name}")]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-addext", &format!("subjectAltName={names}")])
}
