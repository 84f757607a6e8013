//! Clients: they send requests, repeat them when there is no answer, stop their runs, and follow them.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use windlass_engine::{Action, Engine, EngineError, Enqueue, Stop};
use windlass_kernel::{AgentKey, ItemKind, RunId, content};
use windlass_ports::{JournalEntry, Lineage, RequestKey, StoreError};

use super::{Fact, World, node::Node, pass_ms, tools};

/// How long a client waits for an answer.
const PATIENCE_MS: u64 = 15_000;

/// Why a client has no answer.
pub(super) enum Unanswered {
    /// The process died or did not answer in time. Whether it did what was asked is unknown.
    Lost,
    /// The process refused.
    Refused(EngineError),
}

/// Any process that runs.
pub(super) async fn any_node(world: &Arc<World>) -> (Arc<Node>, Engine) {
    loop {
        let nodes = world.slots.lock().all();
        if !nodes.is_empty() {
            let node = nodes[world.between(0, nodes.len() as u64 - 1) as usize].clone();
            if let Some(engine) = node.engine() {
                return (node, engine);
            }
        }
        pass_ms(200).await;
    }
}

/// Sends a question to a process. A dead process gives no answer.
pub(super) async fn ask<T>(world: &World, node: &Node, question: impl Future<Output = Result<T, EngineError>>) -> Result<T, Unanswered> {
    let answer = tokio::select! {
        biased;
        () = node.died() => return Err(Unanswered::Lost),
        answer = question => answer,
        () = tokio::time::sleep(Duration::from_millis(PATIENCE_MS)) => return Err(Unanswered::Lost),
    };
    match answer {
        Ok(answer) => Ok(answer),
        Err(EngineError::Internal) if node.is_dead() => Err(Unanswered::Lost),
        Err(EngineError::Internal | EngineError::Store(StoreError::Corrupt(_))) => {
            world.break_promise("S8", format_args!("{} answers that the server failed", node.name));
            Err(Unanswered::Lost)
        }
        Err(EngineError::Store(StoreError::Unavailable(_) | StoreError::Fenced) | EngineError::Draining) => Err(Unanswered::Lost),
        Err(refused) => Err(Unanswered::Refused(refused)),
    }
}

/// Starts all clients.
pub(super) fn begin(world: &Arc<World>) {
    for agent in &world.agents {
        for n in 0..world.options.requests {
            let after = world.between(0, world.options.chaos_ms * 2 / 3);
            let is_action = world.chance(1, 6);
            let (world, agent) = (world.clone(), agent.clone());
            world.checks.lock().busy += 1;
            tokio::spawn(async move {
                pass_ms(after).await;
                match is_action {
                    true => act(&world, &agent, n).await,
                    false => request(&world, &agent, n).await,
                }
                world.checks.lock().busy -= 1;
            });
        }
        tokio::spawn(follow_journals(world.clone(), agent.clone()));
    }
}

/// Requests a run until the answer names it; often once more afterwards, from another process.
async fn request(world: &Arc<World>, agent: &AgentKey, n: u64) {
    let key = format!("request {n}");
    world.checks.lock().requests.insert((agent.clone(), key.clone()), None);
    let repeats = if world.chance(1, 3) { 2 } else { 1 };
    let mut answers = 0;
    while answers < repeats {
        let (node, engine) = any_node(world).await;
        match ask(world, &node, engine.enqueue(enqueue(agent, &key))).await {
            Ok(enqueued) => {
                answers += 1;
                world.log("client", format_args!("{} {key} is {} by {}", agent.agent, enqueued.run, node.name));
                check_same_run(world, agent, &key, enqueued.run);
                if answers == 1 && world.chance(world.options.stops, 100) {
                    tokio::spawn(stop_later(world.clone(), agent.clone(), enqueued.run));
                }
            }
            Err(Unanswered::Lost) => {}
            Err(Unanswered::Refused(error)) => return world.break_promise("S4", format_args!("a request is refused: {error}")),
        }
        pass_ms(world.between(50, 4_000)).await;
    }
}

/// S4: every process must name the same run for one key.
fn check_same_run(world: &World, agent: &AgentKey, key: &str, run: RunId) {
    let earlier = world.checks.lock().requests.insert((agent.clone(), key.to_owned()), Some(run)).flatten();
    if let Some(earlier) = earlier {
        world.saw(Fact::RequestRepeated);
        if earlier != run {
            world.break_promise("S4", format_args!("{} {key} was {earlier} and is {run}", agent.agent));
        }
    }
}

/// A person's action, which a busy agent may refuse.
async fn act(world: &Arc<World>, agent: &AgentKey, n: u64) {
    let key = format!("action {n}");
    world.checks.lock().requests.insert((agent.clone(), key.clone()), None);
    let tool = world.pick(&tools::NAMES);
    for _ in 0..20 {
        let action =
            Action { agent: agent.clone(), action_id: key.clone(), tool: tool.into(), arguments: "{}".into(), lineage: Lineage::default() };
        let (node, engine) = any_node(world).await;
        match ask(world, &node, engine.act(action)).await {
            Ok(enqueued) => return check_same_run(world, agent, &key, enqueued.run),
            Err(Unanswered::Lost | Unanswered::Refused(EngineError::Busy)) => {}
            Err(Unanswered::Refused(error)) => return world.break_promise("S4", format_args!("an action is refused: {error}")),
        }
        pass_ms(world.between(500, 4_000)).await;
    }
}

async fn stop_later(world: Arc<World>, agent: AgentKey, run: RunId) {
    pass_ms(world.between(0, 10_000)).await;
    for _ in 0..5 {
        let (node, engine) = any_node(&world).await;
        let stop = Stop { agent: agent.clone(), run, reason: "enough".into(), epoch: None, source: None, key: None };
        match ask(&world, &node, engine.stop(stop)).await {
            Ok(stopped) => return check_stopped(&world, run, &format!("{stopped:?}")),
            Err(Unanswered::Lost) => {}
            Err(Unanswered::Refused(error)) => return world.break_promise("S4", format_args!("a stop of {run} is refused: {error}")),
        }
        pass_ms(world.between(50, 2_000)).await;
    }
}

/// A stop that was acknowledged is final.
fn check_stopped(world: &World, run: RunId, text: &str) {
    world.log("client", format_args!("{run} is stopped: {text}"));
    if world.checks.lock().state_of(run).is_none_or(|state| !state.has_ended()) {
        world.break_promise("S7", format_args!("a stop of {run} is acknowledged, and the run continues"));
    }
}

fn enqueue(agent: &AgentKey, key: &str) -> Enqueue {
    Enqueue {
        agent: agent.clone(),
        input: vec![(ItemKind::Instruction, content::encode(&content::Instruction::Text(key.to_owned())))],
        model: None,
        instructions: None,
        tools: Some(tools::NAMES.map(Into::into).into()),
        context_box: None,
        result_fields: Vec::new(),
        key: Some(RequestKey { key: key.to_owned(), asked: [0; 16] }),
        lineage: Lineage::default(),
    }
}

/// Reads journals through any process. S7: what one reading gave, every later one gives. S12: another tenant sees none of it.
async fn follow_journals(world: Arc<World>, agent: AgentKey) {
    let mut seen: BTreeMap<RunId, Vec<JournalEntry>> = BTreeMap::new();
    loop {
        pass_ms(world.between(1_000, 8_000)).await;
        let runs = world.checks.lock().runs_of(&agent);
        let Some(last) = runs.len().checked_sub(1) else { continue };
        let run = runs[world.between(0, last as u64) as usize];
        let (node, engine) = any_node(&world).await;
        let read = async { Ok(engine.views().journal(&agent.tenant, run, 0, usize::MAX).await?) };
        let Ok(journal) = ask(&world, &node, read).await else { continue };
        let before = seen.entry(run).or_default();
        if !journal.starts_with(before) {
            world.break_promise("S7", format_args!("a reader of {run} saw {before:?}, then {journal:?}"));
        }
        *before = journal;
        let foreign = "somebody else".into();
        let peek = async { Ok((engine.views().run(&foreign, run).await?, engine.views().journal(&foreign, run, 0, 10).await?)) };
        if let Ok((view, entries)) = ask(&world, &node, peek).await
            && (view.is_some() || !entries.is_empty())
        {
            world.break_promise("S12", format_args!("{run} is shown to another tenant"));
        }
    }
}
