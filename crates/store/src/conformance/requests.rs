//! Open requests: recorded with their run, closed with a later commit, adopted by one server.

use std::sync::Arc;

use windlass_kernel::{RunId, Timestamp};
use windlass_ports::{NewRun, NodeId, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};

use super::{
    Full,
    fixtures::{Kit, NODE, START, agent},
};

const HASH: RequestHash = RequestHash([7; 32]);

/// Servers that no store knows.
const OTHER: NodeId = NodeId(NODE.0 + 1);
const THIRD: NodeId = NodeId(NODE.0 + 2);

async fn begin(store: &Arc<dyn Full>, kit: &Kit, hash: RequestHash) -> (NewRun, OpenRequest) {
    let new = NewRun { request: Some(hash), ..kit.own_run(START) };
    store.enqueue(new.clone()).await.unwrap();
    let request = OpenRequest { tenant: new.agent.tenant.clone(), hash, run: new.run, node: NODE, left_at: None };
    (new, request)
}

async fn open(store: &Arc<dyn Full>) -> Vec<OpenRequest> {
    store.open_requests(&agent("a").tenant, HASH).await.unwrap()
}

async fn lost(store: &Arc<dyn Full>, node: NodeId) -> Vec<OpenRequest> {
    let mut lost: Vec<_> = store.lost_requests(node, 10).await.unwrap().into_iter().map(|lost| lost.request).collect();
    lost.sort_by_key(|request| request.run);
    lost
}

fn record(request: &OpenRequest, outcome: ReaderOutcome) -> ReaderRecord {
    ReaderRecord { request: request.clone(), outcome }
}

/// A request is open from the commit that starts its run, once, for its tenant, under its hash; and it is lost with its server.
pub async fn a_request_is_open_with_its_run(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (new, request) = begin(&store, &kit, HASH).await;
    let (_, other) = begin(&store, &kit, RequestHash([8; 32])).await;
    store.enqueue(kit.own_run(START)).await.unwrap();
    store.enqueue(new).await.unwrap();
    assert_eq!(open(&store).await, std::slice::from_ref(&request), "a repeated commit adds nothing");
    assert_eq!(store.open_requests(&"other".into(), HASH).await.unwrap(), []);
    assert_eq!(lost(&store, NODE).await, []);
    assert_eq!(lost(&store, OTHER).await, [request, other]);
    assert_eq!(store.lost_requests(OTHER, 1).await.unwrap().len(), 1);
}

/// The record about a client is written with the next commit, and at the latest when it is flushed.
pub async fn a_record_of_a_reader_is_written_with_the_next_commit(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (_, left) = begin(&store, &kit, HASH).await;
    let (_, answered) = begin(&store, &kit, HASH).await;
    store.record_reader(record(&left, ReaderOutcome::Left(Timestamp(9))));
    store.record_reader(record(&answered, ReaderOutcome::Closed));
    store.enqueue(kit.own_run(START)).await.unwrap();
    let left = OpenRequest { left_at: Some(Timestamp(9)), ..left };
    assert_eq!(open(&store).await, std::slice::from_ref(&left));
    store.record_reader(record(&left, ReaderOutcome::Closed));
    store.flush_readers().await.unwrap();
    assert_eq!(open(&store).await, []);
    let gone = OpenRequest { run: RunId::from_slice(&[9; 16]).unwrap(), ..left };
    store.record_reader(record(&gone, ReaderOutcome::Closed));
    store.flush_readers().await.unwrap();
}

/// A request belongs to the server that adopted it: later records of the earlier server change nothing.
pub async fn an_adopted_request_is_another_servers(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (_, request) = begin(&store, &kit, HASH).await;
    store.record_reader(record(&request, ReaderOutcome::Left(Timestamp(9))));
    store.flush_readers().await.unwrap();
    assert!(store.adopt_request(request.clone(), OTHER).await.unwrap());
    let adopted = OpenRequest { node: OTHER, left_at: None, ..request.clone() };
    assert_eq!(open(&store).await, std::slice::from_ref(&adopted), "its client reads again");
    assert!(!store.adopt_request(request.clone(), THIRD).await.unwrap(), "it is not the first server's any more");
    for outcome in [ReaderOutcome::Left(Timestamp(10)), ReaderOutcome::Closed] {
        store.record_reader(record(&request, outcome));
    }
    store.flush_readers().await.unwrap();
    assert_eq!(open(&store).await, std::slice::from_ref(&adopted));
    assert!(store.adopt_request(adopted.clone(), OTHER).await.unwrap(), "a server may adopt its own");
    store.record_reader(record(&adopted, ReaderOutcome::Closed));
    store.flush_readers().await.unwrap();
    assert_eq!(open(&store).await, []);
    assert!(!store.adopt_request(adopted, THIRD).await.unwrap());
}

/// If several servers adopt a request at the same time, one of them gets it.
pub async fn of_racing_adopters_one_has_the_request(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for _ in 0..20 {
        let (_, request) = begin(&store, &kit, HASH).await;
        let adopters = [OTHER, THIRD].map(|node| {
            let (store, request) = (store.clone(), request.clone());
            tokio::spawn(async move { store.adopt_request(request, node).await.unwrap() })
        });
        let mut winners = 0;
        for adopter in adopters {
            winners += usize::from(adopter.await.unwrap());
        }
        assert_eq!(winners, 1);
    }
}
