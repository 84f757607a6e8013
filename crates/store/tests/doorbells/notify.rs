//! Doorbells over LISTEN/NOTIFY.

use windlass_ports::{Doorbell, NodeId};
use windlass_store::Notify;
use windlass_tests::postgres::Server;

use crate::{ring_until_received, talk};

#[tokio::test]
async fn two_processes_ring_each_other() {
    let database = Server::shared().database_alone().await;
    let (one, mut one_receives) = Notify::connect(&database.url, NodeId(1)).unwrap();
    let (other, mut other_receives) = Notify::connect(&database.url, NodeId(2)).unwrap();
    let elsewhere = Server::shared().database_alone().await;
    let (_stranger, mut elsewhere_receives) = Notify::connect(&elsewhere.url, NodeId(3)).unwrap();
    talk(&*one, &mut one_receives, &*other, &mut other_receives).await;
    assert!(elsewhere_receives.try_recv().is_err(), "another database is another bell");
}

#[tokio::test]
async fn a_doorbell_comes_back_when_its_connections_are_cut() {
    let database = Server::shared().database_alone().await;
    let (one, mut one_receives) = Notify::connect(&database.url, NodeId(1)).unwrap();
    let (other, mut other_receives) = Notify::connect(&database.url, NodeId(2)).unwrap();
    let client = database.client().await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'windlass doorbell' AND datname = current_database()";
    for round in ["one", "two", "three"] {
        ring_until_received(&*one, &mut other_receives, round).await;
        ring_until_received(&*other, &mut one_receives, round).await;
        assert_eq!(client.execute(cut, &[]).await.unwrap(), 4, "two connections each");
    }
    ring_until_received(&*one, &mut other_receives, "again").await;
}

#[tokio::test]
async fn a_doorbell_comes_back_with_its_server() {
    let server = Server::start();
    let database = server.database().await;
    let (one, mut one_receives) = Notify::connect(&database.url, NodeId(1)).unwrap();
    let (other, mut other_receives) = Notify::connect(&database.url, NodeId(2)).unwrap();
    ring_until_received(&*one, &mut other_receives, "before").await;
    server.cut();
    for n in 0..10_000 {
        one.ring(crate::agent(&format!("unheard-{n}")));
    }
    server.begin();
    ring_until_received(&*one, &mut other_receives, "after").await;
    ring_until_received(&*other, &mut one_receives, "after").await;
}

#[tokio::test]
async fn garbage_on_the_channel_is_ignored() {
    let database = Server::shared().database_alone().await;
    let (one, _one_hears) = Notify::connect(&database.url, NodeId(1)).unwrap();
    let (_other, mut other_receives) = Notify::connect(&database.url, NodeId(2)).unwrap();
    ring_until_received(&*one, &mut other_receives, "before").await;
    let client = database.client().await;
    for garbage in ["", "x", "[", "[1,[[\"agent\",1,2]]]", "{}", &"x".repeat(7999)] {
        client.execute("SELECT pg_notify('windlass', $1)", &[&garbage]).await.unwrap();
    }
    ring_until_received(&*one, &mut other_receives, "after").await;
    let wrong = Notify::connect("postgres://ann:s3cret@host:nowhere/db", NodeId(1)).map(|_| ()).unwrap_err().to_string();
    assert!(!wrong.contains("s3cret"), "{wrong}");
}
