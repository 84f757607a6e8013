//! Doorbells over NATS.

use std::{collections::BTreeSet, time::Duration};

use futures_util::StreamExt;
use windlass_kernel::{RunId, Tenant};
use windlass_ports::{Doorbell, NodeId, Published, Publisher, Subject};
use windlass_store::Nats;
use windlass_tests::NatsServer;

use crate::{agent, ring_until_received, talk};

fn page(numbers: std::ops::Range<u32>) -> Vec<Published> {
    let message = |number: u32| Published {
        tenant: Tenant::from("acme"),
        subject: Subject::Task("a".into()),
        body: serde_json::json!({ "number": number }),
        id: format!("run_7.{number}.0"),
        run: RunId::from_slice(&[7; 16]).unwrap(),
        trace: [7; 16],
        parent_step: None,
    };
    numbers.map(message).collect()
}

#[tokio::test]
async fn two_processes_ring_each_other() {
    let server = NatsServer::start().await;
    let (one, mut one_receives) = Nats::connect(&server.url(), "windlass", NodeId(1)).await.unwrap();
    let (other, mut other_receives) = Nats::connect(&server.url(), "windlass", NodeId(2)).await.unwrap();
    let (elsewhere, mut elsewhere_receives) = Nats::connect(&server.url(), "elsewhere", NodeId(3)).await.unwrap();
    talk(&*one, &mut one_receives, &*other, &mut other_receives).await;
    assert!(elsewhere_receives.try_recv().is_err(), "another prefix is another bell");
    drop(elsewhere);
}

#[tokio::test]
async fn a_doorbell_comes_back_with_its_server() {
    let mut server = NatsServer::down(&[]);
    let (one, mut one_receives) = Nats::connect(&server.url(), "windlass", NodeId(1)).await.unwrap();
    let (other, mut other_receives) = Nats::connect(&server.url(), "windlass", NodeId(2)).await.unwrap();
    assert!(one.publish(&page(0..1)).await.is_err(), "nobody is there");
    for round in ["one", "two", "three"] {
        server.up().await;
        ring_until_received(&*one, &mut other_receives, round).await;
        ring_until_received(&*other, &mut one_receives, round).await;
        server.kill();
    }
}

#[tokio::test]
async fn a_page_is_published_when_the_server_has_all_of_it() {
    let server = NatsServer::start().await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let mut received = client.subscribe("windlass.acme.evt.agent.a.task").await.unwrap();
    client.flush().await.unwrap();
    let (nats, _bells) = Nats::connect(&server.url(), "windlass", NodeId(1)).await.unwrap();
    let began = std::time::Instant::now();
    while nats.publish(&page(0..1)).await.is_err() {
        assert!(began.elapsed() < crate::PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let messages = page(0..2000);
    nats.publish(&messages).await.unwrap();
    let mut ids = Vec::new();
    while ids.len() < 2001 {
        let message = received.next().await.unwrap();
        ids.push(message.headers.unwrap().get("Nats-Msg-Id").unwrap().to_string());
    }
    let expected: Vec<String> = page(0..1).into_iter().chain(messages).map(|message| message.id).collect();
    assert_eq!(ids, expected);
}

/// The server is killed again and again while pages are sent: a server has received every page that was confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn no_page_is_confirmed_that_the_server_never_had() {
    let mut server = NatsServer::down(&[]);
    let (nats, _bells) = Nats::connect(&server.url(), "windlass", NodeId(1)).await.unwrap();
    let mut number = 0;
    for round in 0..8_u64 {
        server.up().await;
        let client = async_nats::connect(server.url()).await.unwrap();
        let mut received = client.subscribe("windlass.acme.>").await.unwrap();
        let mut sync = client.subscribe("sync").await.unwrap();
        client.publish("sync", "".into()).await.unwrap();
        sync.next().await.unwrap();
        let first = tokio::sync::Notify::new();
        let publishing = async {
            let mut pages = Vec::new();
            loop {
                let page = page(number..number + 50);
                number += 50;
                match nats.publish(&page).await {
                    Ok(()) => {
                        first.notify_one();
                        pages.push(page);
                    }
                    Err(_) if pages.is_empty() => tokio::time::sleep(Duration::from_millis(2)).await,
                    Err(_) => break pages,
                }
            }
        };
        let killing = async {
            first.notified().await;
            tokio::time::sleep(Duration::from_millis(20 + 3 * round)).await;
            server.kill();
        };
        let (pages, ()) = tokio::join!(publishing, killing);
        let mut got = BTreeSet::new();
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(200), received.next()).await {
            got.insert(message.headers.unwrap().get("Nats-Msg-Id").unwrap().to_string());
        }
        // The last confirmed page may have been lost in the server, on its way to the listener. No earlier one can.
        assert!(pages.len() > 1, "round {round}: {} pages", pages.len());
        for page in pages.iter().rev().skip(1) {
            assert!(page.iter().all(|message| got.contains(&message.id)), "round {round}: a confirmed page is missing");
        }
    }
}

/// A server that refuses rings takes pages; one that refuses a message confirms no page with it.
#[tokio::test(flavor = "multi_thread")]
async fn no_page_is_confirmed_of_which_something_was_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("nats.conf");
    let denied = r#"["windlass.bell", "windlass.refused.>"]"#;
    let users = format!("{{ user: ours, password: p, permissions: {{ publish: {{ deny: {denied} }} }} }}");
    std::fs::write(&file, format!("authorization {{ users: [ {users} ] }}\n")).unwrap();
    let server = NatsServer::with(&["-c", file.to_str().unwrap()]).await;
    let url = server.url().replace("nats://", "nats://ours:p@");
    let (nats, _bells) = Nats::connect(&url, "windlass", NodeId(1)).await.unwrap();
    let began = std::time::Instant::now();
    while nats.publish(&page(0..1)).await.is_err() {
        assert!(began.elapsed() < crate::PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for round in 0..200 {
        nats.ring(agent(&format!("agent-{round}")));
        let mut messages = page(0..10);
        nats.publish(&messages).await.unwrap();
        messages[round % 10].tenant = Tenant::from("refused");
        let refused = nats.publish(&messages).await;
        assert!(refused.is_err_and(|error| error.contains("Permissions Violation")), "round {round}");
    }
}
