//! Tool services claim calls, hold them for a time, and give them back.

use std::sync::Arc;

use windlass_kernel::{CallNumber, Input, RunId, StreamedText};
use windlass_ports::{CallClaim, CallStatus, CallView, ClaimedCall, RequestKey, StoreError};

use super::{
    Full,
    fixtures::{CHARGE, DEADLINE_MS, Kit, LOOKUP, START, agent, calls},
};

async fn waiting_run(kit: &Kit, name: &str, tools: &[&str], ms: u64) -> RunId {
    let (run, _) = kit.begin(&agent(name), START.plus_ms(ms)).await;
    kit.advance(&agent(name), calls(tools), START.plus_ms(ms)).await;
    run
}

async fn call(store: &Arc<dyn Full>, run: RunId, number: u32) -> CallView {
    store.calls(&agent("a").tenant, run, CallNumber(number), 1).await.unwrap().remove(0)
}

fn keys(claimed: &[ClaimedCall]) -> Vec<(RunId, CallNumber)> {
    claimed.iter().map(|call| (call.run, call.call)).collect()
}

/// In the order in which they were made, not of their runs; only those of one tool; never to two services.
pub async fn calls_are_given_oldest_first(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let (old, _) = kit.begin(&agent("old"), START).await;
    let first = waiting_run(&kit, "a", &[LOOKUP, CHARGE, LOOKUP], 10).await;
    kit.advance(&agent("old"), calls(&[LOOKUP]), START.plus_ms(20)).await;
    let now = START.plus_ms(30);
    let one = store.claim_calls(kit.claim(LOOKUP, "w1", 2, now)).await.unwrap();
    assert_eq!(keys(&one), [(first, CallNumber(1)), (first, CallNumber(3))]);
    assert_eq!((one[0].attempt, one[0].iteration, one[0].epoch.0), (1, 1, 1));
    assert_eq!(one[0].agent, agent("a"));
    let content: serde_json::Value = serde_json::from_slice(&one[1].content).unwrap();
    assert_eq!(content["call"], 3);
    let two = store.claim_calls(kit.claim(LOOKUP, "w2", 5, now)).await.unwrap();
    assert_eq!(keys(&two), [(old, CallNumber(1))]);
    assert!(store.claim_calls(kit.claim(LOOKUP, "w3", 5, now)).await.unwrap().is_empty());
    let foreign = CallClaim { tenant: "other".into(), ..kit.claim(CHARGE, "w", 5, now) };
    assert!(store.claim_calls(foreign).await.unwrap().is_empty());
    let seen = call(&store, first, 1).await;
    assert_eq!((seen.status, seen.worker.as_deref()), (CallStatus::Claimed, Some("w1")));
    assert_eq!(seen.lease_until, Some(now.plus_ms(10_000)));
}

/// A different claim with the key of one that got calls is refused.
pub async fn a_claims_key_is_not_taken_for_another_request(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let keyed = |max: usize, asked: u8| CallClaim {
        key: Some("k".into()),
        request: Some(RequestKey { key: "claim:k".into(), asked: [asked; 16] }),
        ..kit.claim(LOOKUP, "w", max, START)
    };
    assert!(store.claim_calls(keyed(1, 1)).await.unwrap().is_empty());
    waiting_run(&kit, "a", &[LOOKUP, LOOKUP, LOOKUP], 0).await;
    let first = store.claim_calls(keyed(2, 2)).await.unwrap();
    assert_eq!(first.len(), 2, "a claim that was given nothing does not use its key up");
    assert_eq!(store.claim_calls(keyed(2, 2)).await.unwrap(), first);
    assert!(matches!(store.claim_calls(keyed(1, 1)).await, Err(StoreError::Fenced)));
    assert_eq!(store.claim_calls(kit.claim(LOOKUP, "w2", 3, START)).await.unwrap().len(), 1, "the third call is still there");
}

/// A claim whose answer was lost is repeated with its key.
pub async fn a_repeated_key_gives_the_same_calls(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting_run(&kit, "a", &[LOOKUP, LOOKUP, LOOKUP], 0).await;
    let keyed = |worker: &str, key: &str| CallClaim { key: Some(key.into()), ..kit.claim(LOOKUP, worker, 2, START) };
    let first = store.claim_calls(keyed("w1", "k")).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(store.claim_calls(keyed("w1", "k")).await.unwrap(), first);
    let other = store.claim_calls(keyed("w2", "k")).await.unwrap();
    assert_eq!(keys(&other), [(run, CallNumber(3))], "another worker's key is another key");
    let lost = store.release_calls(kit.claim(LOOKUP, "w1", 2, START), keys(&first[..1])).await.unwrap();
    assert!(lost.is_empty());
    assert_eq!(store.claim_calls(keyed("w1", "k")).await.unwrap(), first[1..], "only what is still held");
}

/// The agent is due when a lease ends, and not before; then the call can be claimed again.
pub async fn the_end_of_a_lease_is_due(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting_run(&kit, "a", &[LOOKUP, LOOKUP], 0).await;
    let claimed = store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap();
    let end = START.plus_ms(10_000);
    assert!(store.due(START.plus_ms(9_999), 10).await.unwrap().is_empty());
    assert_eq!(store.due(end, 10).await.unwrap(), [agent("a")]);
    assert_eq!(kit.load(&agent("a")).await.run.unwrap().claims, [(CallNumber(1), end)]);
    // A commit that does not touch the lease keeps its end as the time at which the agent is due.
    kit.report(&agent("a"), run, 2, START).await;
    kit.take_report(&agent("a"), START).await;
    assert!(store.due(START.plus_ms(9_999), 10).await.unwrap().is_empty());
    assert_eq!(store.due(end, 10).await.unwrap(), [agent("a")]);
    kit.advance(&agent("a"), Input::LeaseEnded(CallNumber(1)), end).await;
    assert!(store.due(end, 10).await.unwrap().is_empty());
    let seen = call(&store, run, 1).await;
    assert_eq!((seen.status, seen.worker, seen.lease_until), (CallStatus::Waiting, None, None));
    let again = store.claim_calls(kit.claim(LOOKUP, "w2", 1, end)).await.unwrap();
    assert_eq!((keys(&again), again[0].attempt), (keys(&claimed), 2));
}

/// A prolonged lease does not make the agent due at its old end; a call that is given back goes to the next claim.
pub async fn a_lease_is_prolonged_or_given_back(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting_run(&kit, "a", &[LOOKUP], 0).await;
    let held = keys(&store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap());
    let later = START.plus_ms(5_000);
    assert!(store.renew_calls(kit.claim(LOOKUP, "w", 1, later), held.clone()).await.unwrap().is_empty());
    assert!(store.due(START.plus_ms(14_999), 10).await.unwrap().is_empty());
    assert_eq!(store.due(START.plus_ms(15_000), 10).await.unwrap().len(), 1);
    let beyond = CallClaim { until: START.plus_ms(DEADLINE_MS * 2), ..kit.claim(LOOKUP, "w", 1, later) };
    store.renew_calls(beyond, held.clone()).await.unwrap();
    assert_eq!(call(&store, run, 1).await.lease_until, Some(START.plus_ms(DEADLINE_MS)), "no hold outlives the deadline");
    assert!(store.release_calls(kit.claim(LOOKUP, "w", 1, later), held.clone()).await.unwrap().is_empty());
    assert_eq!(store.release_calls(kit.claim(LOOKUP, "w", 1, later), held.clone()).await.unwrap(), held, "given back once");
    assert!(store.due(START.plus_ms(15_000), 10).await.unwrap().is_empty());
    assert_eq!(keys(&store.claim_calls(kit.claim(LOOKUP, "w2", 1, later)).await.unwrap()), held);
}

/// Another worker, tool or tenant does not hold the call, and a lease that has ended does not count.
pub async fn only_the_holder_keeps_a_call(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting_run(&kit, "a", &[LOOKUP], 0).await;
    let mut held = keys(&store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap());
    let strangers = [
        kit.claim(LOOKUP, "other", 1, START),
        kit.claim(CHARGE, "w", 1, START),
        CallClaim { tenant: "other".into(), ..kit.claim(LOOKUP, "w", 1, START) },
        kit.claim(LOOKUP, "w", 1, START.plus_ms(10_000)),
    ];
    for claim in strangers {
        assert_eq!(store.renew_calls(claim.clone(), held.clone()).await.unwrap(), held, "{claim:?}");
        assert_eq!(store.release_calls(claim.clone(), held.clone()).await.unwrap(), held, "{claim:?}");
    }
    assert_eq!(call(&store, run, 1).await.status, CallStatus::Claimed);
    held.push((kit.run_id(), CallNumber(1)));
    assert_eq!(store.renew_calls(kit.claim(LOOKUP, "w", 1, START), held.clone()).await.unwrap(), held[1..]);
}

/// A service that got the call could not report in time.
pub async fn a_call_past_its_deadline_is_not_given(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    waiting_run(&kit, "a", &[LOOKUP], 0).await;
    let late = START.plus_ms(DEADLINE_MS);
    assert!(store.claim_calls(kit.claim(LOOKUP, "w", 1, late)).await.unwrap().is_empty());
    assert_eq!(store.due(late, 10).await.unwrap().len(), 1, "the deadline itself is due");
}

/// Calls of an ended run are not claimed, and services that hold some lose them.
pub async fn calls_of_an_ended_run_are_dropped(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting_run(&kit, "a", &[LOOKUP, LOOKUP], 0).await;
    let held = keys(&store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap());
    kit.advance(&agent("a"), Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    assert!(store.claim_calls(kit.claim(LOOKUP, "w", 5, START)).await.unwrap().is_empty());
    assert_eq!(store.renew_calls(kit.claim(LOOKUP, "w", 1, START), held.clone()).await.unwrap(), held);
    for number in [1, 2] {
        assert_eq!(call(&store, run, number).await.status, CallStatus::Dropped);
    }
    assert!(store.due(START.plus_ms(DEADLINE_MS), 10).await.unwrap().is_empty());
}
