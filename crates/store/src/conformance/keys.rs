//! Requests with an idempotency key: the answer is recorded in the same transaction as the effect, and both happen once.

use std::sync::Arc;

use windlass_kernel::{AgentKey, CallNumber, Input, RunId, StreamedText};
use windlass_ports::{CallClaim, Commit, Guard, KeptAnswer, MessageKind, NewMessage, RequestKey, RunStatus, StoreError, Taken, Withdrawn};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, START, agent, calls},
};

fn request(key: &str, asked: u8) -> RequestKey {
    RequestKey { key: key.into(), asked: [asked; 16] }
}

async fn kept(store: &Arc<dyn Full>, key: &str) -> Option<KeptAnswer> {
    store.answered(&agent("a").tenant, key).await.unwrap()
}

/// A commit of a stop that has a key.
async fn stop_with_key(kit: &Kit, agent: &AgentKey, key: RequestKey) -> (Guard, Commit) {
    let stopped = Input::Stopped { reason: "enough".into(), streamed: StreamedText::default() };
    let (guard, mut commit) = kit.prepare(agent, stopped, START).await;
    let (call, item, outcome, after, source, reason) = (None, None, None, None, None, None);
    commit.messages.push(NewMessage { kind: MessageKind::Stop, call, retry: 0, item, outcome, after, source, reason, key: Some(key) });
    (guard, commit)
}

async fn waiting(kit: &Kit, name: &str) -> RunId {
    let (run, _) = kit.begin(&agent(name), START).await;
    kit.advance(&agent(name), calls(&[LOOKUP, LOOKUP]), START).await;
    run
}

/// The answer is stored with the commit, for its tenant alone. After a lost answer there is no second effect, and the key can't be used for
/// another request.
pub async fn a_commit_and_its_answer_are_one(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    waiting(&kit, "a").await;
    waiting(&kit, "b").await;
    assert_eq!(kept(&store, "k").await, None);
    let (guard, commit) = stop_with_key(&kit, &agent("a"), request("k", 1)).await;
    let done = store.commit(guard.clone(), commit.clone()).await.unwrap();
    let recorded = KeptAnswer { asked: [1; 16], message: Some(done.messages[0]), lost: Vec::new() };
    assert_eq!(kept(&store, "k").await, Some(recorded.clone()));
    assert_eq!(store.answered(&"other".into(), "k").await.unwrap(), None);
    assert_eq!(store.commit(guard, commit).await.unwrap().messages, done.messages, "the same commit once more");
    let (guard, commit) = stop_with_key(&kit, &agent("b"), request("k", 1)).await;
    assert!(matches!(store.commit(guard, commit).await, Err(StoreError::Fenced)), "another one under the key");
    assert!(!kit.load(&agent("b")).await.run.unwrap().state.has_ended(), "and nothing of it was done");
    assert_eq!(kept(&store, "k").await, Some(recorded));
}

/// A fenced commit records no answer.
pub async fn a_fenced_commit_answers_nothing(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting(&kit, "a").await;
    let (mut guard, commit) = stop_with_key(&kit, &agent("a"), request("k", 1)).await;
    guard.seq.0 += 1;
    assert!(matches!(store.commit(guard, commit).await, Err(StoreError::Fenced)));
    assert_eq!(kept(&store, "k").await, None);
    assert_eq!(kit.load(&agent("a")).await.run.unwrap().id, run);
}

/// A request that was answered for another run does not end a queued one, and other requests of the same group are applied.
pub async fn a_withdrawal_whose_request_was_answered_changes_nothing(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    waiting(&kit, "a").await;
    waiting(&kit, "b").await;
    let (guard, stop) = stop_with_key(&kit, &agent("a"), request("k", 1)).await;
    store.commit(guard, stop.clone()).await.unwrap();
    let queued = kit.new_run(&agent("b"), START);
    store.enqueue(queued.clone()).await.unwrap();
    let stopped = || Input::Stopped { reason: "enough".into(), streamed: StreamedText::default() };
    let answered = Commit { messages: stop.messages, ..kit.commit(queued.run, &queued.state, stopped(), START) };
    let other = kit.new_report(&agent("b"), kit.load(&agent("b")).await.run.unwrap().id, 1, START);
    let (refused, recorded) = tokio::join!(store.withdraw(agent("b"), answered), store.report(other));
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    assert!(matches!(recorded, Ok(Taken::Recorded(_))), "{recorded:?}");
    let view = store.run(&agent("b").tenant, queued.run).await.unwrap().unwrap();
    assert_eq!((view.status, view.state), (RunStatus::Queued, queued.state.clone()));
    assert_eq!(kit.load(&agent("b")).await.head.queued, 1);
    let withdrawn = store.withdraw(agent("b"), kit.commit(queued.run, &queued.state, stopped(), START)).await.unwrap();
    assert_eq!(withdrawn, Withdrawn::Done);
}

/// A report with a key is recorded once, and its repetition does not count as a duplicate; a different report with the key is not recorded.
pub async fn a_repeated_report_with_a_key_gets_the_same_answer(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting(&kit, "a").await;
    let report = |call, asked| {
        let mut report = kit.new_report(&agent("a"), run, call, START);
        report.message.key = Some(request("k", asked));
        report
    };
    let first = store.report(report(1, 1)).await.unwrap();
    assert!(matches!(first, Taken::Recorded(_)));
    assert_eq!(store.report(report(1, 1)).await.unwrap(), first);
    assert!(matches!(store.report(report(2, 2)).await, Err(StoreError::Fenced)));
    assert_eq!(kit.load(&agent("a")).await.pending.len(), 1);
}

/// Calls are given back once: a worker that claimed them before the request was repeated keeps them.
pub async fn calls_are_given_back_once_under_a_key(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting(&kit, "a").await;
    let held = store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap();
    let named = vec![(held[0].run, held[0].call), (run, CallNumber(9))];
    let give_back = |asked| CallClaim { request: Some(request("k", asked)), ..kit.claim(LOOKUP, "w", 1, START) };
    let lost = [(run, CallNumber(9))];
    assert_eq!(store.release_calls(give_back(1), named.clone()).await.unwrap(), lost);
    assert_eq!(store.claim_calls(kit.claim(LOOKUP, "w", 1, START)).await.unwrap()[0].attempt, 2);
    assert_eq!(store.release_calls(give_back(1), named.clone()).await.unwrap(), lost, "the same answer");
    assert!(matches!(store.release_calls(give_back(2), named).await, Err(StoreError::Fenced)));
    assert_eq!(kit.load(&agent("a")).await.run.unwrap().claims.len(), 1, "and held still");
    assert_eq!(kept(&store, "k").await, Some(KeptAnswer { asked: [1; 16], message: None, lost: lost.to_vec() }));
}

/// The recorded answers about a run are erased with it.
pub async fn answers_are_erased_with_their_run(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = waiting(&kit, "a").await;
    let (guard, commit) = stop_with_key(&kit, &agent("a"), request("k", 1)).await;
    store.commit(guard, commit).await.unwrap();
    store.erase(agent("a").tenant, run).await.unwrap();
    assert_eq!(kept(&store, "k").await, None);
}

/// A key of a run, of a request and of a claim. Some databases store the backslash escaped.
pub const KEYS: [&str; 3] = ["run\\key", "request\\key", "claim\\key"];

/// Makes a run and uses each of [`KEYS`].
pub async fn use_keys(store: &Arc<dyn Full>, kit: &Kit) -> RunId {
    let mut new = kit.entering(kit.new_run(&agent("a"), START));
    new.dedupe = Some(KEYS[0].into());
    let run = new.run;
    store.enqueue(new).await.unwrap();
    kit.advance(&agent("a"), calls(&[LOOKUP, LOOKUP]), START).await;
    let mut report = kit.new_report(&agent("a"), run, 1, START);
    report.message.key = Some(request(KEYS[1], 1));
    assert!(matches!(store.report(report).await.unwrap(), Taken::Recorded(_)));
    assert_eq!(store.claim_calls(claim(kit)).await.unwrap().len(), 1);
    run
}

fn claim(kit: &Kit) -> CallClaim {
    CallClaim { key: Some(KEYS[2].into()), ..kit.claim(LOOKUP, "w", 1, START) }
}

/// What repeated requests with [`KEYS`] must find, however the store keeps keys.
pub async fn check_keys(store: &Arc<dyn Full>, kit: &Kit, run: RunId) {
    assert_eq!(store.run_by_key(&agent("a").tenant, KEYS[0]).await.unwrap(), Some(run));
    assert_eq!(store.run_by_key(&"other".into(), KEYS[0]).await.unwrap(), None);
    assert!(kept(store, KEYS[1]).await.is_some_and(|answer| answer.asked == [1; 16]));
    let again = store.claim_calls(claim(kit)).await.unwrap();
    assert_eq!(again.iter().map(|call| (call.run, call.attempt)).collect::<Vec<_>>(), [(run, 1)], "the claim is not made twice");
}

/// A key is found by itself only, not by another key and not by its own hash.
pub async fn a_key_is_found_by_itself_alone(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = use_keys(&store, &kit).await;
    check_keys(&store, &kit, run).await;
    let tenant = agent("a").tenant;
    let hash = windlass_ports::codec::key_hash(&tenant, KEYS[0]);
    assert_eq!(store.run_by_key(&tenant, &hash).await.unwrap(), None);
    let view = store.run(&tenant, run).await.unwrap().unwrap();
    assert!(!format!("{view:?}").contains(KEYS[0]));
}
