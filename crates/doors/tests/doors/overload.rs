//! A tenant at its limits is refused while another one is served.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, http::Response};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;
use windlass_doors::Limits;

use crate::support::{World, request};

const PATIENCE: Duration = Duration::from_secs(20);
const ENQUEUE: &str = "/v1/agents/alice/enqueue";

/// Serves the world on a real port.
async fn listen(world: &World) -> std::net::SocketAddr {
    world.engine.ready().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = world.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn body(bytes: usize) -> Vec<u8> {
    let mut body = br#"{"input": "x"}"#.to_vec();
    body.resize(bytes, b' ');
    body
}

/// Reads what the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Opens a WebSocket on a raw connection.
async fn socket(address: std::net::SocketAddr, token: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// The head of a masked text frame of this length, and some of its bytes.
fn part_of_frame(length: u32, sent: usize) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend(u64::from(length).to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + sent, b' ');
    frame
}

#[tokio::test]
async fn tm_11_bodies_of_one_tenant_leave_room_for_another() {
    let limits = Limits { body_bytes_max: 150_000, in_flight_bytes_max: 300_000, tenant_in_flight_bytes_max: 200_000, ..Limits::default() };
    let world = World::limited(limits);
    let (slow, pieces) = tokio::sync::mpsc::channel(1);
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) });
    let sent = request("POST", "all", ENQUEUE).body(Body::from_stream(pieces.map(Ok::<Vec<u8>, Infallible>))).unwrap();
    let answered = tokio::spawn(world.router.clone().oneshot(sent));
    slow.send(body(140_000)).await.unwrap();
    // The channel holds one chunk: once it accepts the third, the server has counted the first.
    for _ in 0..2 {
        slow.send(b" ".to_vec()).await.unwrap();
    }
    let refused = world.post(ENQUEUE, body(100_000)).await;
    assert_eq!(refused.refusal(), (429, "tenant_bytes_in_flight_full".into()));
    assert_eq!(refused.headers["retry-after"], "1");
    world.post_as("other", ENQUEUE, body(100_000)).await.expect(202);
    world.post(ENQUEUE, body(50_000)).await.expect(202);
    drop(slow);
    assert_eq!(answered.await.unwrap().unwrap().status(), 202);
    world.post(ENQUEUE, body(100_000)).await.expect(202);
}

#[tokio::test]
async fn tm_11_streams_of_one_tenant_leave_room_for_another() {
    let world = World::limited(Limits { requests_per_tenant: 3, requests_per_token: 2, ..Limits::default() });
    let run = world.enqueue("alice", "hello").await;
    world.ended("alice", &run).await;
    let open = async |token: &str| -> Response<Body> {
        world.router.clone().oneshot(request("GET", token, "/v1/agents/alice/events").body(Body::empty()).unwrap()).await.unwrap()
    };
    let mut streams = vec![open("all").await, open("all").await];
    assert!(streams.iter().all(|stream| stream.status() == 200));
    let refused = world.get("/v1/models").await;
    assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(refused.text.contains("this token has 2 requests open"), "{}", refused.text);
    streams.push(open("reader").await);
    assert_eq!(world.get_as("writer", "/v1/agents/alice").await.refusal(), (429, "too_many_open".into()), "another token of the tenant");
    assert_eq!(world.get_as("other", "/v1/models").await.status, 200, "another tenant");
    streams.clear();
    assert_eq!(world.get("/v1/models").await.status, 200);
}

#[tokio::test]
async fn tm_11_sockets_of_one_tenant_leave_room_for_another() {
    let limits = Limits {
        body_bytes_max: 90_000,
        in_flight_bytes_max: 200_000,
        tenant_in_flight_bytes_max: 100_000,
        sockets_per_tenant: 2,
        ..Limits::default()
    };
    let world = World::limited(limits);
    let address = listen(&world).await;
    let (mut first, mut second) = (socket(address, "all").await, socket(address, "all").await);
    let third = tokio::time::timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = "GET /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer all\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    });
    assert_eq!(third.await.unwrap(), "HTTP/1.1 429");
    let mut other = socket(address, "other").await;

    for socket in [&mut first, &mut second, &mut other] {
        socket.write_all(&part_of_frame(80_000, 70_000)).await.unwrap();
    }
    // The one that is read last exceeds the limit.
    let answer = tokio::select! {
        answer = rest(&mut first) => answer,
        answer = rest(&mut second) => answer,
    };
    assert!(answer.contains("this tenant is sending more than 100000 bytes at once"), "{answer}");
    other.write_all(&[b' '; 10_000]).await.unwrap();
    let mut answer = [0; 4096];
    let length = tokio::time::timeout(PATIENCE, other.read(&mut answer)).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&answer[..length]).contains("invalid_json"), "another tenant's frame is read");
}

#[tokio::test]
async fn tm_11_a_frame_that_does_not_arrive_closes_its_socket() {
    let world = World::limited(Limits { body_ms_max: 200, ..Limits::default() });
    let address = listen(&world).await;
    let mut silent = socket(address, "all").await;
    let mut slow = socket(address, "all").await;
    slow.write_all(&part_of_frame(1_000, 10)).await.unwrap();
    let answer = rest(&mut slow).await;
    assert!(answer.contains("a frame did not arrive within 0.2 seconds"), "{answer}");
    silent.write_all(&part_of_frame(2, 2)).await.unwrap();
    let mut answer = [0; 4096];
    let length = tokio::time::timeout(PATIENCE, silent.read(&mut answer)).await.unwrap().unwrap();
    assert!(length > 0 && !String::from_utf8_lossy(&answer[..length]).contains("did not arrive"), "a silent socket stays open");
}
