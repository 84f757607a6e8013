//! The outbox: messages are published at least once, in order, with stable ids, and never before their commit.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};

use futures_util::{FutureExt, future::join_all};
use windlass_engine::{Respond, messages};
use windlass_kernel::{AgentKey, AgentName, Budgets, CallKey, ItemKind, Manifest, RunId, content};
use windlass_ports::{Lineage, ModelRequest, Published, Subject, Views};
use windlass_store::{MemoryStore, StoreOptions};

use crate::support::*;

fn one_of_each(request: &ModelRequest) -> Turn {
    match request.iteration {
        1 => call(&[LOOK]),
        2 => call(&[LOOKUP, LOOKUP]),
        _ => say("done"),
    }
}

fn publisher(stage: &Stage) -> Arc<TestPublisher> {
    stage.publisher.clone().unwrap()
}

/// Lets a run go through all its iterations.
async fn whole_run(stage: &Stage, engine: &windlass_engine::Engine, agent: &AgentKey) -> RunId {
    let run = engine.begin(agent, "go").await.run;
    settle().await;
    engine.answer(agent, run, 2, "2").await;
    engine.answer(agent, run, 3, "3").await;
    stage.ended(agent, run).await;
    run
}

/// The messages that the outbox would have published.
async fn waiting(stage: &Stage) -> Vec<Published> {
    let mut messages = Vec::new();
    for row in stage.data.outbox(1000).await.unwrap() {
        let run = stage.data.run(&row.agent.tenant, row.run).await.unwrap().unwrap();
        for entry in stage.data.journal(&row.agent.tenant, row.run, row.first, row.count as usize).await.unwrap() {
            messages.extend(messages::project(&run, &entry));
        }
    }
    messages
}

#[tokio::test(start_paused = true)]
async fn c_024_an_enqueue_leaves_a_wakeup_in_the_outbox() {
    let stage = Stage { publisher: None, ..Stage::publishing(|_| Turn::Hang) };
    let engine = stage.engine(1);
    let a = agent("a");
    engine.begin(&a, "entered").await;
    engine.begin(&a, "queued").await;
    let wakeups: Vec<Published> =
        waiting(&stage).await.into_iter().filter(|message| message.subject == Subject::Wakeup("a".into())).collect();
    assert_eq!(wakeups.len(), 2, "one for each turn, entered or queued");
}

#[tokio::test(start_paused = true)]
async fn c_080_a_wakeup_names_the_agent_and_carries_no_content() {
    let stage = Stage::publishing(|_| say("done"));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    stage.ended(&a, run).await;
    settle().await;
    let wakeups = publisher(&stage).on("cmd.agent.a.wakeup");
    let [wakeup] = wakeups.as_slice() else { panic!("{wakeups:?}") };
    let body = wakeup.body.as_object().unwrap();
    assert_eq!(body["agent_id"], "a");
    assert!(body.keys().all(|key| ["agent_id", "inbox_id", "metadata", "reason"].contains(&key.as_str())), "{body:?}");
}

/// A response has a head of its own, and its messages are published under the name of its agent.
#[tokio::test(start_paused = true)]
async fn messages_of_a_response_name_its_agent() {
    let stage = Stage::publishing(|_| say("done"));
    let engine = stage.engine(1);
    let text = content::encode(&content::Instruction::Text("go".to_owned()));
    let respond = |agent: Option<AgentName>| Respond {
        tenant: "acme".into(),
        agent,
        serial: false,
        manifest: Manifest::plain(
            "script",
            Budgets { iterations: 1, calls: None, tokens: None, wall_ms: None, children: None, cost: None },
        ),
        input: vec![(ItemKind::Instruction, text.clone())],
        parent: None,
        conversation: None,
        left: None,
        note: bytes::Bytes::new(),
        erase_ms: None,
        dedupe: None,
        request: None,
        lineage: Lineage::default(),
    };
    for agent in [Some("clerk".into()), None] {
        let responded = engine.respond(respond(agent.clone())).await.unwrap();
        stage.ended(&responded.agent, responded.run).await;
        settle().await;
        assert_eq!(responded.agent.agent.as_str(), responded.run.to_string(), "the run has a head of its own");
        let name = agent.as_ref().unwrap_or(&responded.agent.agent);
        for subject in ["cmd.agent.*.wakeup", "evt.agent.*.step", "evt.agent.*.task"] {
            assert!(!publisher(&stage).on(&subject.replace('*', name.as_str())).is_empty(), "{subject} of {name}");
        }
        let states = publisher(&stage).on(&format!("evt.agent.{name}.state"));
        assert!(!states.is_empty() && states.iter().all(|message| message.body["agent_id"] == name.as_str()), "{states:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c_041_a_call_for_a_service_is_published_as_its_command() {
    let stage = Stage::publishing(one_of_each);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = whole_run(&stage, &engine, &a).await;
    settle().await;
    let commands = publisher(&stage).on("cmd.tool.lookup");
    let ids: Vec<String> = commands.iter().map(|command| command.body["tool_call_id"].as_str().unwrap().to_owned()).collect();
    let key = |call| CallKey { run, call: windlass_kernel::CallNumber(call) }.to_string();
    assert_eq!(ids, [key(2), key(3)]);
    assert!(commands.iter().all(|command| command.body.get("arguments").is_none() && command.body.get("args").is_none()), "pointers only");
    assert!(publisher(&stage).on("cmd.tool.look").is_empty(), "a call of this process is not for services");
}

#[tokio::test(start_paused = true)]
async fn c_040_a_call_is_stored_before_its_command_is_published() {
    let data = Arc::new(MemoryStore::new(StoreOptions { publish: true, usage: false }));
    let (views, found) = (data.clone(), Arc::new(Mutex::new(Vec::new())));
    let log = found.clone();
    let look = move |message: &Published| {
        if let Subject::Tool(_) = message.subject {
            let key: CallKey = message.body["tool_call_id"].as_str().unwrap().parse().unwrap();
            // The memory store never waits, so its answers are ready at once.
            let calls = views.calls(&"acme".into(), key.run, key.call, 1).now_or_never().unwrap().unwrap();
            let item = views.item(&"acme".into(), calls[0].item).now_or_never().unwrap().unwrap();
            log.lock().unwrap().push((calls[0].call, item.unwrap().kind));
        }
    };
    let stage = Stage { publisher: Some(Arc::new(TestPublisher::looking(look))), ..Stage::on(data, one_of_each) };
    let engine = stage.engine(1);
    whole_run(&stage, &engine, &agent("a")).await;
    settle().await;
    let found: Vec<(u32, ItemKind)> = found.lock().unwrap().iter().map(|(call, kind)| (call.0, *kind)).collect();
    assert_eq!(found, [(2, ItemKind::Call), (3, ItemKind::Call)]);
}

#[tokio::test(start_paused = true)]
async fn c_055_the_end_of_a_turn_is_published_with_its_deliverable() {
    let stage = Stage::publishing(one_of_each);
    let engine = stage.engine(1);
    let a = agent("a");
    let run = whole_run(&stage, &engine, &a).await;
    settle().await;
    let tasks = publisher(&stage).on("evt.agent.a.task");
    let [task] = tasks.as_slice() else { panic!("{tasks:?}") };
    let view = stage.run(&a, run).await;
    assert_eq!(task.body["agent_turn_id"], run.to_string());
    assert_eq!(task.body["status"], "success");
    assert_eq!(task.body["deliverable_card_id"], view.deliverable.unwrap().to_string());
    assert_eq!(task.body["output_box_id"], view.state.output.id.to_string());
}

#[tokio::test(start_paused = true)]
async fn c_008_one_task_event_per_turn_however_often_publishing_is_cut() {
    let stage = Stage::publishing(one_of_each);
    publisher(&stage).loses_answers.store(true, SeqCst);
    let engine = stage.engine(1);
    let agents: Vec<AgentKey> = (0..5).map(|n| agent(&format!("a{n}"))).collect();
    for agent in &agents {
        whole_run(&stage, &engine, agent).await;
    }
    pass_ms(10_000).await;
    let publisher = publisher(&stage);
    assert!(publisher.taken().len() >= 2 * publisher.distinct().len(), "every message was published twice");
    for agent in &agents {
        assert_eq!(publisher.on(&format!("evt.agent.{}.task", agent.agent)).len(), 1, "one id, so one event");
    }
    assert!(stage.data.outbox(10).await.unwrap().is_empty(), "published rows are deleted");
}

#[tokio::test(start_paused = true)]
async fn c_018_a_state_event_says_what_the_agent_is_doing() {
    let stage = Stage::publishing(one_of_each);
    let engine = stage.engine(1);
    whole_run(&stage, &engine, &agent("a")).await;
    settle().await;
    let states = publisher(&stage).on("evt.agent.a.state");
    let activities: Vec<&str> = states.iter().filter_map(|state| state.body["metadata"]["activity"].as_str()).collect();
    assert_eq!(
        activities,
        [
            "thinking",
            "executing_tool",
            "awaiting_tool_result",
            "thinking",
            "awaiting_tool_result",
            "awaiting_tool_result",
            "awaiting_tool_result",
            "thinking"
        ]
    );
    assert_eq!(states.last().unwrap().body["status"], "idle");
}

#[tokio::test(start_paused = true)]
async fn c_019_a_state_event_names_the_tool_and_counts_the_waiting() {
    let stage = Stage::publishing(one_of_each);
    let engine = stage.engine(1);
    whole_run(&stage, &engine, &agent("a")).await;
    settle().await;
    let states = publisher(&stage).on("evt.agent.a.state");
    let suspended = states.iter().find(|state| state.body["metadata"]["current_tool"] == "lookup").unwrap();
    assert_eq!(suspended.body["metadata"]["waiting_tool_count"], 2);
    assert_eq!(suspended.body["status"], "suspended");
}

#[tokio::test(start_paused = true)]
async fn f_008_after_an_outage_the_publisher_gets_everything_in_order() {
    let stage = Stage::publishing(one_of_each);
    let publisher = publisher(&stage);
    publisher.is_down.store(true, SeqCst);
    let engine = stage.engine(1);
    let agents: Vec<AgentKey> = (0..20).map(|n| agent(&format!("a{n:02}"))).collect();
    let runs = join_all(agents.iter().map(|agent| whole_run(&stage, &engine, agent))).await;
    pass_ms(60_000).await;
    assert!(publisher.taken().is_empty());
    let expected = waiting(&stage).await;
    publisher.is_down.store(false, SeqCst);
    pass_ms(5000).await;
    assert_eq!(publisher.taken(), expected, "everything once, in the order of the outbox");
    assert!(stage.data.outbox(10).await.unwrap().is_empty());
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for message in publisher.taken() {
        let mut parts = message.id.split('.');
        let (run, number) = (parts.next().unwrap().to_owned(), parts.next().unwrap().parse().unwrap());
        let before = last.insert(run, number);
        assert!(before.is_none_or(|before| before <= number), "{} after {before:?}", message.id);
    }
    assert_eq!(last.len(), runs.len());
}

#[test]
fn f_009_a_message_whose_publishing_was_cut_is_published_by_the_next_process() {
    let stage = Stage::publishing(one_of_each);
    let publisher = publisher(&stage);
    publisher.hangs.store(true, SeqCst);
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(whole_run(&stage, &first.engine, &a));
    first.kill();
    assert!(publisher.taken().is_empty());
    publisher.hangs.store(false, SeqCst);
    let second = Process::start(&stage, 2);
    second.does(pass_ms(1000));
    let (view, journal) = second.does(async { (stage.run(&a, run).await, stage.journal(&a, run).await) });
    let expected: Vec<Published> = journal.iter().flat_map(|entry| messages::project(&view, entry)).collect();
    assert_eq!(publisher.distinct(), expected, "all of it, from the wakeup to the task event");
}

#[test]
fn f_009_a_result_that_was_acknowledged_survives_the_process() {
    let stage = Stage::new(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say(&request.results().join(",")) });
    let a = agent("a");
    let first = Process::start(&stage, 1);
    let run = first.does(async {
        let run = first.engine.begin(&a, "go").await.run;
        settle().await;
        first.engine.answer(&a, run, 1, "8").await;
        run
    });
    first.kill();
    let second = Process::start(&stage, 2);
    assert_eq!(second.does(stage.ended(&a, run)), "8");
}

#[tokio::test(start_paused = true)]
async fn without_a_publisher_the_outbox_stays_empty() {
    let stage = Stage::new(one_of_each);
    let engine = stage.engine(1);
    whole_run(&stage, &engine, &agent("a")).await;
    assert!(stage.data.outbox(10).await.unwrap().is_empty());
}
