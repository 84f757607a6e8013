//! One test for each guard: every store must have what the model check removes from its model, also under concurrent requests.

use std::{future::Future, sync::Arc};

use windlass_kernel::{AgentKey, Epoch, HeadStatus, Input, RunId, Seq, StreamedText};
use windlass_ports::{Commit, Enqueued, Guard, MessageStatus, NodeId, Page, StoreError, Taken};

use super::{
    Full,
    fixtures::{CHARGE, Kit, LOOKUP, NODE, START, agent, calls, delta_batch, final_reply},
};

/// How often each race is run, because the scheduler decides who is first.
const ROUNDS: usize = 25;

/// The number of participants in races that are not for two.
const RACERS: u64 = 4;

/// Starts all of them at the same time.
async fn race<T: Send + 'static>(all: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

fn racer(round: usize) -> AgentKey {
    agent(&format!("a{round}"))
}

async fn events(store: &Arc<dyn Full>, agent: &AgentKey, run: RunId) -> usize {
    store.journal(&agent.tenant, run, 0, 100).await.unwrap().len()
}

/// A stop raises the epoch, so it does not use the fast path of the commit: each part of the guard must fence by itself there, too.
pub async fn a_stale_guard_stops_nothing(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (good, mut stop) = kit.prepare(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
    stop.raise_epoch = true;
    let before = (store.head(&agent).await.unwrap(), events(&store, &agent, run).await);
    for stale in [
        Guard { status: HeadStatus::Dispatched, ..good.clone() },
        Guard { epoch: Epoch(good.epoch.0 + 1), ..good.clone() },
        Guard { epoch: Epoch(good.epoch.0 - 1), ..good.clone() },
        Guard { run: kit.run_id(), ..good.clone() },
        Guard { seq: Seq(good.seq.0 + 1), ..good.clone() },
        Guard { seq: Seq(good.seq.0 - 1), ..good.clone() },
    ] {
        let outcome = store.commit(stale.clone(), stop.clone()).await;
        assert!(matches!(outcome, Err(StoreError::Fenced)), "{stale:?}: {outcome:?}");
        assert_eq!((store.head(&agent).await.unwrap(), events(&store, &agent, run).await), before, "{stale:?}");
    }
    assert_eq!(store.commit(good.clone(), stop).await.unwrap().epoch, Epoch(good.epoch.0 + 1));
}

/// The guard holds but the number exists: the commit is refused whole, because the journal is never overwritten.
pub async fn a_journal_number_is_given_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    let (_, old) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
    kit.advance(&agent, Input::owner_changed(), START).await;
    let (now, _) = kit.prepare(&agent, final_reply("done"), START).await;
    let before = (store.head(&agent).await.unwrap(), events(&store, &agent, run).await);
    let outcome = store.commit(now, old).await;
    assert!(matches!(outcome, Err(StoreError::Corrupt(_))), "{outcome:?}");
    assert_eq!((store.head(&agent).await.unwrap(), events(&store, &agent, run).await), before);
    kit.advance(&agent, final_reply("done"), START).await;
}

/// Requests for an agent without a head, or for an idle one: one is leased, the others are queued.
pub async fn of_racing_requests_one_leases(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        if round % 2 == 1 {
            kit.begin(&agent, START).await;
            kit.advance(&agent, final_reply("done"), START).await;
        }
        let ask = |store: Arc<dyn Full>| {
            let new = kit.entering(kit.new_run(&agent, START));
            async move { store.enqueue(new).await.unwrap() }
        };
        let outcomes = race((0..RACERS).map(|_| ask(store.clone())).collect::<Vec<_>>()).await;
        let entered = outcomes.iter().filter(|outcome| matches!(outcome, Enqueued::Entered { .. })).count();
        let queued = outcomes.iter().filter(|outcome| matches!(outcome, Enqueued::Queued { .. })).count();
        assert_eq!((entered, queued as u64), (1, RACERS - 1), "{outcomes:?}");
        assert_eq!(u64::from(store.head(&agent).await.unwrap().unwrap().queued), RACERS - 1);
    }
}

/// Several nodes with one guard: one commit is applied whole, and its node owns the head under a new epoch.
pub async fn of_racing_owners_one_wins(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        let mut asked = Vec::new();
        for node in 1..=RACERS {
            let (guard, mut commit) = kit.prepare(&agent, Input::owner_changed(), START).await;
            commit.node = NodeId(node);
            let store = store.clone();
            asked.push(async move { store.commit(guard, commit).await.map(|done| (node, done)) });
        }
        let before = events(&store, &agent, run).await;
        let outcomes = race(asked).await;
        let won: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(StoreError::Fenced))), "{outcomes:?}");
        let head = kit.load(&agent).await.head;
        assert_eq!((head.owner, head.epoch), (Some(NodeId(won[0].0)), won[0].1.epoch));
        assert_eq!(head.epoch, Epoch(1 + u64::from(won[0].0 != NODE.0)), "another owner, another epoch");
        assert_eq!(events(&store, &agent, run).await, before + 1);
    }
}

/// Several tasks send one commit at the same time, because answers were lost: all get the same answer, and it is applied once.
pub async fn a_commit_that_races_itself_is_applied_once(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        let (guard, commit) = kit.prepare(&agent, calls(&[LOOKUP, CHARGE]), START).await;
        let length = events(&store, &agent, run).await + commit.events.len();
        let ask = |guard: Guard, commit: Commit, store: Arc<dyn Full>| async move { store.commit(guard, commit).await };
        let outcomes = race((0..RACERS).map(|_| ask(guard.clone(), commit.clone(), store.clone()))).await;
        let answers: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(answers[0].seq, Seq(guard.seq.0 + 1));
        assert_eq!(events(&store, &agent, run).await, length);
    }
}

/// The end of an iteration and a stop at the same moment: one of them is applied, and the other is fenced.
pub async fn a_stop_and_a_reply_are_one_or_the_other(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        let (guard, reply) = kit.prepare(&agent, final_reply("done"), START).await;
        let (_, mut stop) = kit.prepare(&agent, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START).await;
        stop.raise_epoch = true;
        let ask = |commit: Commit| {
            let (store, guard) = (store.clone(), guard.clone());
            async move { store.commit(guard, commit).await }
        };
        let mut both = vec![ask(reply), ask(stop)];
        if round % 2 == 1 {
            both.reverse();
        }
        let outcomes = race(both).await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        let journal = store.journal(&agent.tenant, run, 0, 100).await.unwrap();
        let ends: Vec<_> = journal.iter().filter(|entry| entry.event.kind() == "ended").collect();
        assert_eq!(ends.len(), 1);
        let is_stop = journal.iter().all(|entry| entry.event.kind() != "replied");
        assert_eq!(ends[0].epoch, Some(Epoch(1 + u64::from(is_stop))), "a stop is above everything before it");
    }
}

/// One key, many requests at the same time: there is one run, and all answers name it.
pub async fn of_racing_requests_with_one_key_one_is_recorded(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let ask = |_| {
            let mut new = kit.entering(kit.new_run(&agent, START));
            new.dedupe = Some(format!("key {round}"));
            let (store, own) = (store.clone(), new.run);
            async move { (own, store.enqueue(new).await.unwrap()) }
        };
        let outcomes = race((0..RACERS).map(ask).collect::<Vec<_>>()).await;
        let (first, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(_, outcome)| matches!(outcome, Enqueued::Entered { .. }));
        assert_eq!(first.len(), 1, "{outcomes:?}");
        for (_, outcome) in others {
            assert!(matches!(outcome, Enqueued::Duplicate { run, .. } if *run == first[0].0), "{outcome:?}");
        }
        let head = store.head(&agent).await.unwrap().unwrap();
        assert_eq!((head.runs, head.queued), (1, 0));
    }
}

/// Many runs want to inherit the same calls at the same time: one does, and all answers name it.
pub async fn of_racing_heirs_one_is_recorded(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let (left, _) = kit.begin(&racer(round), START).await;
        let ask = |taker| {
            let mut new = kit.entering(kit.new_run(&agent(&format!("{round} {taker}")), START));
            new.takes = Some(left);
            let (store, own) = (store.clone(), new.run);
            async move { (own, store.enqueue(new).await.unwrap()) }
        };
        let outcomes = race((0..RACERS).map(ask).collect::<Vec<_>>()).await;
        let (first, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(|(_, outcome)| matches!(outcome, Enqueued::Entered { .. }));
        assert_eq!(first.len(), 1, "{outcomes:?}");
        for (_, outcome) in others {
            assert_eq!(*outcome, Enqueued::AlreadyInherited { by: first[0].0 });
        }
    }
}

/// Deltas and a takeover at the same moment: the new owner reads the deltas, or they are fenced.
pub async fn deltas_that_race_a_takeover_are_stored_or_fenced(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        store.append_deltas(delta_batch(&agent, run, 1, 0, &["a"])).await.unwrap();
        let (guard, mut takeover) = kit.prepare(&agent, Input::owner_changed(), START).await;
        takeover.node = NodeId(2);
        let (one, two, late) = (store.clone(), store.clone(), delta_batch(&agent, run, 1, 1, &["b"]));
        let tenant = agent.tenant.clone();
        let announces = tokio::spawn(async move { one.append_deltas(late).await });
        let takes = tokio::spawn(async move {
            two.commit(guard, takeover).await.unwrap();
            two.streamed_text(&tenant, run).await.unwrap().text
        });
        let seen = takes.await.unwrap();
        match announces.await.unwrap() {
            Ok(()) => assert_eq!(seen, "ab"),
            Err(StoreError::Fenced) => assert_eq!(seen, "a"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(store.streamed_text(&agent.tenant, run).await.unwrap().text, seen);
    }
}

/// A reader that reads while deltas are stored and settled gets the text of one moment, from its beginning, and nothing twice.
pub async fn deltas_are_complete_whenever_they_are_read(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), racer(0));
    let (run, _) = kit.begin(&agent, START).await;
    let (reading, tenant) = (store.clone(), agent.tenant.clone());
    let reader = tokio::spawn(async move {
        let (mut reads, mut last) = (0, 0);
        while last < ROUNDS {
            let streamed = reading.streamed_text(&tenant, run).await.unwrap();
            assert_eq!(streamed.text.len(), streamed.chunks.bytes());
            let chunks: Vec<&str> = streamed.text.split_inclusive(' ').collect();
            if let Some(chunk) = chunks.first() {
                let round: usize = chunk.split('.').next().unwrap().parse().unwrap();
                assert!(round >= last, "{round} {last}");
                last = round;
                let expected: Vec<String> = (0..chunks.len()).map(|index| format!("{round}.{index} ")).collect();
                assert_eq!(chunks, expected);
            }
            reads += 1;
            tokio::task::yield_now().await;
        }
        reads
    });
    for round in 0..=ROUNDS {
        for index in 0..8 {
            store.append_deltas(delta_batch(&agent, run, 1, index, &[&format!("{round}.{index} ")])).await.unwrap();
        }
        if round < ROUNDS {
            let (guard, mut commit) = kit.prepare(&agent, Input::owner_changed(), START).await;
            commit.clears_deltas = true;
            store.commit(guard, commit).await.unwrap();
        }
    }
    assert!(reader.await.unwrap() > 0);
}

/// One call, many reports at the same time: there is one row, counted once, and all answers have its number.
pub async fn of_racing_reports_one_is_recorded(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        kit.advance(&agent, calls(&[LOOKUP]), START).await;
        let ask = |_| {
            let (store, report) = (store.clone(), kit.new_report(&agent, run, 1, START));
            async move { store.report(report).await.unwrap() }
        };
        let outcomes = race((0..RACERS).map(ask).collect::<Vec<_>>()).await;
        let recorded: Vec<_> = outcomes.iter().filter_map(|taken| if let Taken::Recorded(id) = taken { Some(*id) } else { None }).collect();
        assert_eq!(recorded.len(), 1, "{outcomes:?}");
        assert!(outcomes.iter().all(|taken| matches!(taken, Taken::Recorded(id) | Taken::Duplicate(id) if *id == recorded[0])));
        assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, 1);
    }
}

/// A report and the owner's commit at the same moment: in either order the report is counted, and the agent is due.
pub async fn a_report_that_races_a_suspend_is_counted(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        let (guard, commit) = kit.prepare(&agent, calls(&[LOOKUP]), START).await;
        let report = kit.new_report(&agent, run, 1, START);
        let (one, two) = (store.clone(), store.clone());
        let suspends = tokio::spawn(async move { one.commit(guard, commit).await.unwrap() });
        let reports = tokio::spawn(async move { two.report(report).await.unwrap() });
        suspends.await.unwrap();
        assert!(matches!(reports.await.unwrap(), Taken::Recorded(_)));
        assert_eq!(store.head(&agent).await.unwrap().unwrap().pending, 1);
        assert!(store.due(START, 1_000).await.unwrap().contains(&agent), "the agent is due");
        kit.take_report(&agent, START).await;
        let rows = store.inbox(&agent, Page { after: 0, limit: 100 }).await.unwrap();
        assert!(rows.iter().all(|row| row.status == MessageStatus::Consumed), "{rows:?}");
        assert_eq!(kit.load(&agent).await.run.unwrap().state.iteration, 2);
    }
}

/// Many services claim the only call: one gets it, once.
pub async fn of_racing_services_one_is_given_the_call(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    for round in 0..ROUNDS {
        let agent = racer(round);
        let (run, _) = kit.begin(&agent, START).await;
        kit.advance(&agent, calls(&[CHARGE]), START).await;
        let ask = |worker| {
            let (store, claim) = (store.clone(), kit.claim(CHARGE, &format!("w{worker}"), 5, START));
            async move { store.claim_calls(claim).await.unwrap() }
        };
        let given: Vec<_> = race((0..RACERS).map(ask).collect::<Vec<_>>()).await.into_iter().flatten().collect();
        assert_eq!(given.len(), 1, "{given:?}");
        assert_eq!((given[0].run, given[0].attempt), (run, 1));
    }
}
