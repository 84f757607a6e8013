//! Behaviour that only a real connection shows.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{BODY_BYTES_MAX, World};

async fn connect(world: &World) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = world.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    TcpStream::connect(address).await.unwrap()
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer all\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_client_that_writes_too_much_still_reads_the_refusal() {
    let world = World::start();
    let mut stream = connect(&world).await;
    let body = vec![b' '; BODY_BYTES_MAX + (1 << 20)];
    stream.write_all(head("/v1/agents/alice/enqueue", body.len()).as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let world = World::start();
    let mut stream = connect(&world).await;
    stream.write_all(head("/v1/agents/bob/enqueue", 100).as_bytes()).await.unwrap();
    stream.write_all(br#"{"input": "x"}"#).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(world.get("/v1/agents/bob").await.refusal(), (404, "unknown_agent".into()));
}
