use std::net::Ipv4Addr;

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::timeout,
};

use super::*;

/// A time limit that no working step reaches.
const PATIENCE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3600);

fn limits() -> ConnectionLimits {
    ConnectionLimits { connections: 1_000, per_peer: None, head: LONG, peers: PeerRules::default() }
}

/// Starts a server with two routes that runs until the test ends.
async fn start(limits: ConnectionLimits) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/healthz", get(|| async { "healthy" })).route("/work", get(|| async { "worked" }));
    tokio::spawn(serve(listener, router, limits, None, std::future::pending()));
    address
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of this machine");
    timeout(PATIENCE, socket.connect(to)).await.expect("in time").expect("the server listens")
}

/// Reads what the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // Closing a connection with unread bytes resets it, which counts as its end here.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the server closes the connection");
    String::from_utf8_lossy(&text).into_owned()
}

async fn ask(from: Ipv4Addr, to: SocketAddr, path: &str) -> String {
    let mut stream = connect(from, to).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    rest(&mut stream).await
}

#[tokio::test]
async fn tm_01_a_connection_that_sends_nothing_is_closed_when_its_head_is_due() {
    let server = start(ConnectionLimits { head: Duration::from_millis(200), ..limits() }).await;
    for sent in ["", "P", "PRI * HTTP/2.0", "GET /work HTTP/1.1\r\nhost:"] {
        let mut stream = connect(Ipv4Addr::LOCALHOST, server).await;
        stream.write_all(sent.as_bytes()).await.expect("the server reads");
        let answer = rest(&mut stream).await;
        assert!(!answer.contains("200 OK"), "{sent:?}: {answer}");
    }
}

#[tokio::test]
async fn tm_01_health_is_answered_when_all_places_are_taken() {
    let server = start(ConnectionLimits { connections: 3, ..limits() }).await;
    let mut silent = Vec::new();
    for _ in 0..3 + 2 * RESERVE_MAX {
        silent.push(connect(Ipv4Addr::LOCALHOST, server).await);
    }
    let health = ask(Ipv4Addr::LOCALHOST, server, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 200 OK") && health.ends_with("healthy"), "{health}");
    let refused = ask(Ipv4Addr::LOCALHOST, server, "/work").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("connections_full"), "{refused}");
    assert!(refused.contains("retry-after: 1") && refused.contains("connection: close"), "{refused}");
    silent.truncate(2);
    let worked = async {
        while !ask(Ipv4Addr::LOCALHOST, server, "/work").await.ends_with("worked") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, worked).await.expect("a place that is given back is used again");
}

#[tokio::test]
async fn tm_01_a_peer_with_many_connections_leaves_places_to_others() {
    let (greedy, other) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::LOCALHOST);
    let server = start(ConnectionLimits { per_peer: Some(5), ..limits() }).await;
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(connect(greedy, server).await);
    }
    assert!(ask(greedy, server, "/work").await.starts_with("HTTP/1.1 503"));
    assert!(ask(greedy, server, "/healthz").await.ends_with("healthy"), "its health checks are answered");
    assert!(ask(other, server, "/work").await.ends_with("worked"), "others are served");
}

#[tokio::test]
async fn tm_01_a_proxy_may_have_all_connections_and_its_clients_may_not() {
    let proxies = vec!["127.0.0.2".parse().expect("an address")];
    let peers = PeerRules { behind_proxy: true, proxies };
    let server = start(ConnectionLimits { per_peer: Some(1), peers, ..limits() }).await;
    let (proxy, client) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let _open = (connect(proxy, server).await, connect(proxy, server).await, connect(client, server).await);
    assert!(ask(proxy, server, "/work").await.ends_with("worked"));
    assert!(ask(client, server, "/work").await.starts_with("HTTP/1.1 503"), "it came past the proxy");
}

#[tokio::test]
async fn a_stop_waits_for_answers_and_not_for_idle_connections() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let server = listener.local_addr().expect("an address");
    let (answer, waits) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (released, reached) = (answer.clone(), waits.clone());
    let work = move || async move {
        reached.notify_one();
        released.notified().await;
        "worked"
    };
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = stop.clone();
    let serving = serve(listener, Router::new().route("/work", get(work)), limits(), None, async move { stopped.notified().await });
    let serving = tokio::spawn(serving);
    let _idle = connect(Ipv4Addr::LOCALHOST, server).await;
    let asked = tokio::spawn(ask(Ipv4Addr::LOCALHOST, server, "/work"));
    waits.notified().await;
    stop.notify_one();
    tokio::task::yield_now().await;
    assert!(!serving.is_finished());
    answer.notify_one();
    assert!(asked.await.expect("no panic").ends_with("worked"));
    timeout(PATIENCE, serving).await.expect("the server stops").expect("no panic");
}
