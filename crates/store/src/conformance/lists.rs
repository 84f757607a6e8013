//! Lists: runs by time, by agent and by whether they have ended; agents by name.

use std::sync::Arc;

use windlass_kernel::{AgentKey, AgentName, CallNumber, Input, ItemKind, Progress, RunId, StreamedText};
use windlass_ports::{
    CallChange, CallStatus, Enqueued, INSTRUCTION_BYTES_MAX, INSTRUCTION_ITEMS_MAX, ListedRun, NewRun, RunScan, RunSet, RunStatus,
};

use super::{
    Full,
    fixtures::{CHARGE, Kit, LOCAL, LOOKUP, START, agent, calls, final_reply, foreign},
};

async fn begin(store: &Arc<dyn Full>, new: NewRun) -> RunId {
    let run = new.run;
    let outcome = store.enqueue(new).await.unwrap();
    assert!(matches!(outcome, Enqueued::Entered { .. } | Enqueued::Queued { .. }), "{outcome:?}");
    run
}

/// A run with a head of its own and an agent's name, like a response of that agent.
fn named(kit: &Kit, name: &str) -> NewRun {
    NewRun { agent_name: Some(name.into()), ..kit.entering(kit.own_run(START)) }
}

fn own_head(run: RunId) -> AgentKey {
    agent(&run.to_string())
}

async fn page(store: &Arc<dyn Full>, set: RunSet, below: Option<RunId>, limit: usize) -> (Vec<ListedRun>, Option<RunId>) {
    let page = store.scan_runs(&agent("").tenant, &RunScan { set, below, limit }).await.unwrap();
    (page.runs, page.next)
}

/// All ids of a set, read in pages of `limit`.
async fn ids(store: &Arc<dyn Full>, set: RunSet, limit: usize) -> Vec<RunId> {
    let (mut found, mut below) = (Vec::new(), None);
    loop {
        let (runs, next) = page(store, set.clone(), below, limit).await;
        assert!(runs.len() <= limit);
        found.extend(runs.iter().map(|run| run.id));
        match next {
            Some(next) => below = Some(next),
            None => return found,
        }
    }
}

fn stopped() -> Input {
    Input::Stopped { reason: String::new(), streamed: StreamedText::default() }
}

/// Newest first, in pages of any size, each run with its present state.
pub async fn runs_are_listed_newest_first(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut all = Vec::new();
    for n in 0..5 {
        all.insert(0, begin(&store, named(&kit, if n % 2 == 0 { "clerk" } else { "scout" })).await);
    }
    let elsewhere = NewRun { agent: foreign("clerk"), agent_name: Some("clerk".into()), ..kit.entering(kit.own_run(START)) };
    begin(&store, elsewhere).await;
    kit.advance(&own_head(all[1]), calls(&[LOOKUP]), START.plus_ms(1)).await;
    kit.advance(&own_head(all[2]), final_reply("done"), START.plus_ms(2)).await;
    for limit in [1, 2, 3, 5, 100] {
        assert_eq!(ids(&store, RunSet::All, limit).await, all, "{limit}");
        assert_eq!(ids(&store, RunSet::Named("clerk".into()), limit).await, [all[0], all[2], all[4]], "{limit}");
        assert_eq!(ids(&store, RunSet::Open, limit).await, [all[0], all[1], all[3], all[4]], "{limit}");
    }
    assert!(ids(&store, RunSet::Named("nobody".into()), 10).await.is_empty());
    let (runs, next) = page(&store, RunSet::All, Some(all[0]), 2).await;
    assert_eq!((runs.len(), next), (2, Some(all[2])));
    let (waiting, ended) = (&runs[0], &runs[1]);
    assert_eq!((waiting.status, waiting.created_at, waiting.ended_at), (RunStatus::Active, START, None));
    // The present state, not the one that was stored last.
    let view = waiting.view.as_ref().unwrap();
    assert_eq!(view.state.calls().iter().map(|call| call.progress).collect::<Vec<_>>(), [Progress::Open]);
    assert_eq!((&waiting.agent, &waiting.agent_name), (&own_head(all[1]), &Some("scout".into())));
    assert_eq!((ended.status, ended.ended_at), (RunStatus::Ended, Some(START.plus_ms(2))));
    assert!(ended.view.as_ref().unwrap().state.has_ended());
}

/// Runs of an agent's own head and runs that only take its settings are one list, and their agent is listed once.
pub async fn both_kinds_of_runs_of_an_agent_are_one_list(store: Arc<dyn Full>) {
    let (kit, clerk) = (Kit::new(&store), agent("clerk"));
    let tenant = &clerk.tenant;
    let mut all = Vec::new();
    for n in 0..6 {
        let turn = NewRun { agent_name: Some(clerk.agent.clone()), ..kit.new_run(&clerk, START.plus_ms(n)) };
        let new = if n % 2 == 0 { turn } else { NewRun { now: START.plus_ms(n), ..named(&kit, "clerk") } };
        let run = new.run;
        store.enqueue(new).await.unwrap();
        all.insert(0, run);
    }
    begin(&store, named(&kit, "scout")).await;
    for limit in [1, 2, 3, 4, 100] {
        assert_eq!(ids(&store, RunSet::Named("clerk".into()), limit).await, all, "{limit}");
    }
    let agents = store.agent_names(tenant, "", 10).await.unwrap();
    let listed: Vec<(&str, u64, i64)> =
        agents.iter().map(|agent| (agent.name.as_str(), agent.runs, agent.last_run_at.0 - START.0)).collect();
    assert_eq!(listed, [("clerk", 6, 5), ("scout", 1, 0)]);
    // An agent whose runs are in no list takes no place on a page.
    for name in ["abel", "dora"] {
        let head = agent(name);
        let unkept = NewRun { agent_name: Some(head.agent.clone()), erase_ms: Some(1_000), ..kit.new_run(&head, START) };
        store.enqueue(unkept).await.unwrap();
    }
    assert_eq!(store.agent_names(tenant, "", 1).await.unwrap(), agents[..1]);
    assert_eq!(store.agent_names(tenant, "clerk", 1).await.unwrap(), agents[1..]);
    assert_eq!(store.agent_names(tenant, "", 10).await.unwrap(), agents);
}

/// Ids are drawn before runs are accepted, so that two runs of one head can have their ids in the other order.
pub async fn runs_of_a_head_are_listed_by_their_ids(store: Arc<dyn Full>) {
    let (kit, clerk) = (Kit::new(&store), agent("clerk"));
    let turn = || NewRun { agent_name: Some(clerk.agent.clone()), ..kit.new_run(&clerk, START) };
    let drawn = [turn(), turn(), turn(), turn()];
    let mut all: Vec<RunId> = drawn.iter().map(|new| new.run).collect();
    all.sort_by(|left, right| right.cmp(left));
    for index in [1, 0, 3, 2] {
        store.enqueue(drawn[index].clone()).await.unwrap();
    }
    for limit in [1, 2, 3, 10] {
        assert_eq!(ids(&store, RunSet::Named("clerk".into()), limit).await, all, "{limit}");
    }
}

/// A run that is queued behind another one counts as open until it is withdrawn.
pub async fn queued_runs_are_listed_as_open(store: Arc<dyn Full>) {
    let (kit, clerk) = (Kit::new(&store), agent("clerk"));
    let turn = || NewRun { agent_name: Some(clerk.agent.clone()), ..kit.entering(kit.new_run(&clerk, START)) };
    let first = begin(&store, turn()).await;
    let (second, third) = (begin(&store, turn()).await, begin(&store, turn()).await);
    for limit in [1, 2, 10] {
        assert_eq!(ids(&store, RunSet::Open, limit).await, [third, second, first], "{limit}");
    }
    let (runs, _) = page(&store, RunSet::Open, None, 10).await;
    assert_eq!(runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Queued, RunStatus::Queued, RunStatus::Active]);
    let state = store.run(&clerk.tenant, third).await.unwrap().unwrap().state;
    store.withdraw(clerk.clone(), kit.commit(third, &state, stopped(), START)).await.unwrap();
    kit.advance(&clerk, final_reply("done"), START).await;
    for limit in [1, 10] {
        assert_eq!(ids(&store, RunSet::Open, limit).await, [second], "{limit}");
        assert_eq!(ids(&store, RunSet::All, limit).await, [third, second, first], "{limit}");
    }
}

/// A run that is not to be stored is in no list, and neither is one whose content was erased.
pub async fn runs_that_are_not_stored_are_in_no_list(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let unkept = begin(&store, NewRun { erase_ms: Some(1_000), ..named(&kit, "clerk") }).await;
    let kept = begin(&store, named(&kit, "clerk")).await;
    for set in [RunSet::All, RunSet::Open, RunSet::Named("clerk".into())] {
        for limit in [1, 10] {
            assert_eq!(ids(&store, set.clone(), limit).await, [kept], "{set:?}");
        }
    }
    assert_eq!(store.agent_names(&agent("").tenant, "", 10).await.unwrap()[0].runs, 1);
    kit.advance(&own_head(unkept), final_reply("done"), START).await;
    kit.advance(&own_head(kept), final_reply("done"), START).await;
    assert_eq!(ids(&store, RunSet::All, 10).await, [kept]);
    store.erase(agent("").tenant, kept).await.unwrap();
    assert!(ids(&store, RunSet::All, 10).await.is_empty());
    assert!(store.agent_names(&agent("").tenant, "", 10).await.unwrap().is_empty());
}

/// By name, each with the number of its runs and the time of the newest one.
pub async fn agents_are_listed_by_name(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let tenant = agent("").tenant;
    assert!(store.agent_names(&tenant, "", 10).await.unwrap().is_empty());
    for (n, name) in ["scout", "clerk", "scout", "Zoe"].into_iter().enumerate() {
        begin(&store, NewRun { now: START.plus_ms(n as u64), ..named(&kit, name) }).await;
    }
    begin(&store, kit.entering(kit.own_run(START))).await;
    begin(&store, NewRun { agent: foreign("x"), agent_name: Some("x".into()), ..kit.entering(kit.own_run(START)) }).await;
    let agents = store.agent_names(&tenant, "", 10).await.unwrap();
    let listed: Vec<(&str, u64, i64)> =
        agents.iter().map(|agent| (agent.name.as_str(), agent.runs, agent.last_run_at.0 - START.0)).collect();
    assert_eq!(listed, [("Zoe", 1, 3), ("clerk", 1, 1), ("scout", 2, 2)]);
    assert_eq!(store.agent_names(&tenant, "", 2).await.unwrap(), agents[..2]);
    assert_eq!(store.agent_names(&tenant, "clerk", 10).await.unwrap(), agents[2..]);
    assert!(store.agent_names(&tenant, "scout", 10).await.unwrap().is_empty());
}

/// The newest of the last items, and no more of it than a list needs.
pub async fn an_instruction_is_read_in_part(store: Arc<dyn Full>) {
    let (kit, clerk) = (Kit::new(&store), agent("clerk"));
    let long = vec![b'x'; INSTRUCTION_BYTES_MAX + 10];
    let items = vec![kit.item(ItemKind::Instruction, b"first"), kit.item(ItemKind::Instruction, &long), kit.item(ItemKind::Result, b"r")];
    let new = kit.new_run_after(&clerk, None, items, START);
    let context = new.context.id;
    store.enqueue(new).await.unwrap();
    let read = store.instruction(&clerk.tenant, context).await.unwrap().unwrap();
    assert_eq!(read, long[..INSTRUCTION_BYTES_MAX]);
    assert_eq!(store.instruction(&foreign("clerk").tenant, context).await.unwrap(), None);
    assert_eq!(store.instruction(&clerk.tenant, kit.box_id()).await.unwrap(), None);
    let mut items = vec![kit.item(ItemKind::Instruction, b"far away")];
    items.extend((0..INSTRUCTION_ITEMS_MAX).map(|_| kit.item(ItemKind::Result, b"r")));
    let new = kit.new_run_after(&clerk, None, items, START);
    let context = new.context.id;
    store.enqueue(new).await.unwrap();
    assert_eq!(store.instruction(&clerk.tenant, context).await.unwrap(), None);
}

/// The name of the agent is in what a worker loads and in the view of the run, whatever the run's head is called.
pub async fn a_run_has_the_name_of_its_agent(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let run = begin(&store, named(&kit, "clerk")).await;
    let unnamed = begin(&store, kit.entering(kit.own_run(START))).await;
    for run in [run, unnamed] {
        kit.advance(&own_head(run), calls(&[CHARGE]), START).await;
    }
    let view = store.run(&agent("").tenant, run).await.unwrap().unwrap();
    assert_eq!((view.agent_id().clone(), view.agent.clone()), (AgentName::from("clerk"), own_head(run)));
    let view = store.run(&agent("").tenant, unnamed).await.unwrap().unwrap();
    assert_eq!((view.agent_name.clone(), view.agent_id().clone()), (None, own_head(unnamed).agent));
    let claimed = store.claim_calls(kit.claim(CHARGE, "w", 5, START)).await.unwrap();
    let whose: Vec<_> = claimed.iter().map(|call| (call.agent.clone(), call.agent_name.clone())).collect();
    assert_eq!(whose, [(own_head(run), Some("clerk".into())), (own_head(unnamed), None)]);
}

/// Runs as a version before agents' names stored them: one of a named agent, one of a conversation, one with a head of its own, one that is
/// not to be stored, and one whose content was erased.
pub async fn runs_without_names(store: &Arc<dyn Full>, kit: &Kit) -> [RunId; 5] {
    let of_head = |head: &AgentKey| kit.entering(kit.new_run(head, START));
    let conversation = agent(&kit.conversation_id().to_string());
    let runs = [
        begin(store, of_head(&agent("run_clerk"))).await,
        begin(store, of_head(&conversation)).await,
        begin(store, kit.entering(kit.own_run(START))).await,
        begin(store, NewRun { erase_ms: Some(1), ..kit.entering(kit.own_run(START)) }).await,
        begin(store, kit.entering(kit.own_run(START))).await,
    ];
    kit.advance(&own_head(runs[4]), final_reply("done"), START).await;
    store.erase(agent("").tenant, runs[4]).await.unwrap();
    runs
}

/// Checks these runs after the store was migrated.
pub async fn check_names_of_earlier_runs(store: &Arc<dyn Full>, runs: [RunId; 5]) {
    let (listed, _) = page(store, RunSet::All, None, 10).await;
    assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [runs[2], runs[1], runs[0]]);
    let names: Vec<Option<AgentName>> = listed.into_iter().map(|run| run.agent_name).collect();
    assert_eq!(names, [None, None, Some("run_clerk".into())]);
    assert_eq!(ids(store, RunSet::Open, 10).await, [runs[2], runs[1], runs[0]]);
}

/// A call for the server process counts as started with the commit that makes it, and with each later one that starts it again.
pub async fn a_call_counts_how_often_it_was_started(store: Arc<dyn Full>) {
    let (kit, clerk) = (Kit::new(&store), agent("clerk"));
    let (run, _) = kit.begin(&clerk, START).await;
    kit.advance(&clerk, calls(&[LOCAL, LOOKUP]), START).await;
    let attempts = async || {
        let calls = store.calls(&clerk.tenant, run, CallNumber(1), 10).await.unwrap();
        calls.iter().map(|call| (call.attempt, call.created_at)).collect::<Vec<_>>()
    };
    assert_eq!(attempts().await, [(1, START), (0, START)]);
    let (guard, mut commit) = kit.prepare(&clerk, Input::owner_changed(), START.plus_ms(5)).await;
    let started = CallChange::Moved { status: CallStatus::Started, result: None, deadline: None, item: None, retry: None };
    commit.calls.push((CallNumber(1), started));
    store.commit(guard, commit).await.unwrap();
    store.claim_calls(kit.claim(LOOKUP, "w", 5, START)).await.unwrap();
    assert_eq!(attempts().await, [(2, START), (1, START)]);
    kit.advance(&clerk, stopped(), START.plus_ms(6)).await;
    assert_eq!(attempts().await, [(2, START), (1, START)], "an end starts nothing");
}
