//! HTTPS: `server.tls`, and its certificate replaced by SIGHUP.

use std::{fs, io::Read, net::TcpStream, os::unix::fs::PermissionsExt, path::Path, process::Command};

use rustix::process::Signal;
use windlass_tests::{SelfSigned, Server, ServerBuilder, TOKEN, until};

fn config(made: &SelfSigned) -> String {
    format!("server: {{ tls: {{ cert: '{}', key: '{}' }} }}\n", made.cert.display(), made.key.display())
}

/// A client that trusts only this certificate and opens a new connection.
fn client(trusted: &Path) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem = fs::read(trusted).expect("the certificate can be read");
    let trusted = reqwest::Certificate::from_pem(&pem).expect("a certificate");
    reqwest::Client::builder().no_proxy().tls_certs_only([trusted]).build().expect("a client")
}

fn https(server: &Server) -> String {
    server.base().replace("http://", "https://")
}

async fn status(server: &Server, trusted: &Path) -> Result<u16, reqwest::Error> {
    let request = client(trusted).get(format!("{}/v1/models", https(server))).bearer_auth(TOKEN);
    request.send().await.map(|response| response.status().as_u16())
}

#[tokio::test]
async fn tm_16_clients_are_served_over_tls_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = SelfSigned::make(folder.path(), "one");
    let builder =
        ServerBuilder::new(&format!("server: {{ head: 1s, tls: {{ cert: '{}', key: '{}' }} }}\n", made.cert.display(), made.key.display()));
    let server = builder.start().await;
    assert_eq!(status(&server, &made.cert).await.expect("the certificate is trusted"), 200);
    assert!(server.try_get("/v1/models").await.is_none(), "plain HTTP is not answered");
    // The timeout of a request head also covers the handshake: the server closes the connection of a client that never begins it.
    let mut silent = TcpStream::connect(server.base().trim_start_matches("http://")).expect("the server listens");
    let mut sent = Vec::new();
    let _ = silent.read_to_end(&mut sent);
    // The command line reads the address from server.json and trusts the certificates that SSL_CERT_FILE names.
    let mut ls = Command::new(windlass_tests::binary());
    ls.args(["ls"]).current_dir(server.folder()).env("WINDLASS_TOKEN", TOKEN).env("SSL_CERT_FILE", &made.cert);
    let out = ls.output().expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "no runs\n", "{}", String::from_utf8_lossy(&out.stderr));
}

#[tokio::test]
async fn tm_16_sighup_replaces_the_certificate_and_closes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (SelfSigned::make(folder.path(), "one"), SelfSigned::make(folder.path(), "two"));
    let used = SelfSigned { cert: folder.path().join("used.crt"), key: folder.path().join("used.key") };
    let install = |made: &SelfSigned| {
        fs::copy(&made.cert, &used.cert).expect("it can be copied");
        fs::copy(&made.key, &used.key).expect("it can be copied");
    };
    install(&one);
    let server = ServerBuilder::new(&config(&used)).start().await;
    let open = client(&one.cert);
    let models = || open.get(format!("{}/v1/models", https(&server))).bearer_auth(TOKEN).send();
    assert_eq!(models().await.expect("an answer").status(), 200);

    install(&two);
    server.signal(Signal::HUP);
    until("the log has the line", || async { server.log().contains("certificate of server.tls was reloaded").then_some(()) }).await;
    assert_eq!(status(&server, &two.cert).await.expect("the new certificate is shown"), 200);
    assert!(status(&server, &one.cert).await.is_err(), "the old one is no longer shown");
    assert_eq!(models().await.expect("the open connection is kept").status(), 200);

    // A key that does not belong to the certificate: the server keeps the old pair.
    fs::copy(&one.key, &used.key).expect("it can be copied");
    server.signal(Signal::HUP);
    until("the log has the line", || async { server.log().contains("could not be reloaded: it stays as it is").then_some(()) }).await;
    assert_eq!(status(&server, &two.cert).await.expect("the certificate stays"), 200);
}

#[test]
fn files_that_cannot_be_used_for_tls_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two) = (SelfSigned::make(folder.path(), "one"), SelfSigned::make(folder.path(), "two"));
    let refusal = |cert: &Path, key: &Path| {
        let files = SelfSigned { cert: cert.to_owned(), key: key.to_owned() };
        let (status, text) = ServerBuilder::new(&config(&files)).refuses();
        assert!(!status.success(), "{text}");
        text
    };
    let missing = folder.path().join("missing.pem");
    assert!(refusal(&missing, &one.key).contains("server.tls.cert"));
    assert!(refusal(&one.cert, &missing).contains("server.tls.key"));
    assert!(refusal(&one.key, &one.key).contains("has no certificate"));
    let no_key = folder.path().join("no.key");
    fs::copy(&one.cert, &no_key).expect("it can be copied");
    fs::set_permissions(&no_key, fs::Permissions::from_mode(0o600)).expect("its mode can be changed");
    assert!(refusal(&one.cert, &no_key).contains("has no private key"));
    assert!(refusal(&one.cert, &two.key).contains("cannot be used together"));
    fs::set_permissions(&one.key, fs::Permissions::from_mode(0o644)).expect("its mode can be changed");
    assert!(refusal(&one.cert, &one.key).contains("chmod 600"));
}
