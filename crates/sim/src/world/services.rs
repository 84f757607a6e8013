//! Tool services: they claim calls, work, and report; or crash, work slowly, repeat themselves and report for the wrong call.

use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{ClaimRequest, EngineError, ToolResult};
use windlass_kernel::{
    AgentKey, CallKey, CallNumber, EffectClass, ItemId, ItemKind, NewItem, RunId, TaskStatus, Tenant, Timestamp, content,
};
use windlass_ports::{ClaimedCall, MessageKind, NewMessage, NewReport, Store, Taken};

use super::{
    Fact, World,
    clients::{Unanswered, any_node, ask},
    ledger, pass_ms, tools,
};

/// How long a service leases a call.
const HOLD_MS: u64 = 12_000;

/// Starts one service for each tenant and tool, and a gateway that reports before the call is made.
pub(super) fn begin(world: &Arc<World>) {
    for tenant in ["acme", "umbrella"] {
        if world.agents.iter().all(|agent| agent.tenant.as_str() != tenant) {
            continue;
        }
        for (tool, effect) in tools::SERVED {
            tokio::spawn(serve(world.clone(), tenant.into(), tool, effect));
        }
    }
    tokio::spawn(report_early(world.clone()));
}

async fn serve(world: Arc<World>, tenant: Tenant, tool: &'static str, effect: EffectClass) {
    let mut claims = 0;
    loop {
        pass_ms(if world.is_calm() { 300 } else { world.between(100, 3_000) }).await;
        claims += 1;
        let key = world.chance(2, 3).then(|| format!("{tool} {claims}"));
        let claim = ClaimRequest {
            tenant: tenant.clone(),
            tool: tool.into(),
            worker: "worker".into(),
            max: world.between(1, 3) as usize,
            lease_ms: HOLD_MS,
            key,
            request: None,
        };
        let asked_ms = world.elapsed_ms();
        for call in claim_calls(&world, &claim).await {
            tokio::spawn(work(world.clone(), claim.clone(), call, effect, asked_ms));
        }
    }
}

/// Claims calls. With a key, the claim is repeated once if there was no answer.
async fn claim_calls(world: &Arc<World>, claim: &ClaimRequest) -> Vec<ClaimedCall> {
    for _ in 0..=usize::from(claim.key.is_some()) {
        let (node, engine) = any_node(world).await;
        match ask(world, &node, engine.claim(claim.clone())).await {
            Ok(calls) => return calls,
            Err(Unanswered::Lost) => {}
            Err(Unanswered::Refused(error)) => world.break_promise("S5", format_args!("a claim is refused: {error}")),
        }
    }
    Vec::new()
}

async fn work(world: Arc<World>, claim: ClaimRequest, call: ClaimedCall, effect: EffectClass, asked_ms: u64) {
    let key = CallKey { run: call.run, call: call.call };
    let is_bad = world.fault(world.options.services, 100);
    if is_bad && world.chance(1, 3) {
        // The service crashes before it begins, or gives the call back.
        if world.chance(1, 2) {
            let (node, engine) = any_node(&world).await;
            let _ = ask(&world, &node, engine.release(claim, vec![(call.run, call.call)])).await;
        }
        return;
    }
    // The answer came so late that another service may hold the call by now.
    if world.elapsed_ms() - asked_ms >= HOLD_MS / 2 {
        return;
    }
    world.log("service", format_args!("starts {} as {key}", claim.tool));
    ledger::started(&world, key, effect);
    if is_bad && world.chance(1, 3) {
        return;
    }
    let longest = if is_bad { 2 * tools::DEADLINE_MS } else { HOLD_MS / 2 };
    let ms = if world.is_calm() { world.between(10, 500) } else { world.between(10, longest) };
    if ms > HOLD_MS && world.chance(1, 2) {
        pass_ms(HOLD_MS / 2).await;
        let (node, engine) = any_node(&world).await;
        let _ = ask(&world, &node, engine.renew(claim.clone(), vec![(call.run, call.call)])).await;
    }
    pass_ms(ms).await;
    if world.fault(world.options.services, 200) {
        report_foreign(&world, &call).await;
    }
    let times = if world.fault(10, 100) { 2 } else { 1 };
    for _ in 0..times {
        report(&world, &call, key).await;
    }
}

/// Reports the result until a process acknowledges it.
async fn report(world: &Arc<World>, call: &ClaimedCall, key: CallKey) {
    loop {
        let (node, engine) = any_node(world).await;
        let was_over = world.checks.lock().state_of(call.run).is_some_and(|state| state.has_ended());
        match ask(world, &node, engine.report(result(&call.agent, call.run, call.call))).await {
            Ok(reported) => {
                world.log("service", format_args!("has reported {key}, {reported:?}"));
                world.checks.lock().acknowledged.insert(key);
                if reported.is_duplicate {
                    world.saw(Fact::DuplicateReport);
                } else if was_over {
                    world.saw(Fact::LateReport);
                }
                return;
            }
            Err(Unanswered::Lost) => pass_ms(world.between(100, 2_000)).await,
            Err(Unanswered::Refused(error)) => return world.break_promise("S5", format_args!("the result of {key} is refused: {error}")),
        }
    }
}

/// Reports results that belong to no open call: for another agent, another tenant, or a call that was never made.
async fn report_foreign(world: &Arc<World>, call: &ClaimedCall) {
    let foreign_agent = AgentKey { tenant: "somebody else".into(), agent: call.agent.agent.clone() };
    let neighbour = AgentKey { tenant: call.agent.tenant.clone(), agent: "nobody".into() };
    let wrong = [
        result(&foreign_agent, call.run, call.call),
        result(&neighbour, call.run, call.call),
        result(&call.agent, call.run, CallNumber(999)),
        result(&call.agent, call.run, CallNumber(0)),
        result(&call.agent, RunId(uuid::Uuid::from_u128(7)), call.call),
    ];
    let chosen = world.between(0, wrong.len() as u64 - 1) as usize;
    let (node, engine) = any_node(world).await;
    match ask(world, &node, engine.report(wrong[chosen].clone())).await {
        Ok(_) => world.break_promise("S12", format_args!("a foreign result is taken: {:?}", wrong[chosen])),
        Err(Unanswered::Refused(EngineError::UnknownRun | EngineError::UnknownCall)) => world.saw(Fact::ForeignRefused),
        Err(Unanswered::Lost) => {}
        Err(Unanswered::Refused(error)) => world.break_promise("S12", format_args!("a foreign result gets an answer of its own: {error}")),
    }
}

fn result(agent: &AgentKey, run: RunId, call: CallNumber) -> ToolResult {
    ToolResult {
        agent: agent.clone(),
        run,
        call,
        retry: 0,
        status: TaskStatus::Success,
        result: Bytes::from_static(b"\"served\""),
        after: None,
        source: Some("service".into()),
        key: None,
    }
}

/// Reports to the run's next call before the run has made it, as another writer of the store could.
async fn report_early(world: Arc<World>) {
    let mut last = 0;
    loop {
        pass_ms(world.between(2_000, 10_000)).await;
        if world.is_calm() || !world.fault(world.options.services, 100) {
            continue;
        }
        let agent = world.agents[world.between(0, world.agents.len() as u64 - 1) as usize].clone();
        let Some((run, state)) = newest(&world, &agent) else { continue };
        last += 1;
        let (call, item) = (CallNumber(state + 1), ItemId(uuid::Uuid::from_u128(u128::MAX - last)));
        let recorded = world.data.report(early(&world, &agent, run, call, item)).await;
        world.log("gateway", format_args!("reports call {} of {run} early: {recorded:?}", call.0));
        if matches!(recorded, Ok(Taken::Recorded(_))) {
            world.ledger.lock().early.insert(item);
        }
    }
}

/// The agent's newest open run, and the number of its calls.
fn newest(world: &World, agent: &AgentKey) -> Option<(RunId, u32)> {
    let checks = world.checks.lock();
    let mut runs = checks.runs_of(agent).into_iter().filter_map(|run| Some((run, checks.state_of(run)?)));
    runs.rfind(|(_, state)| !state.has_ended()).map(|(run, state)| (run, state.calls_used))
}

fn early(world: &World, agent: &AgentKey, run: RunId, call: CallNumber, item: ItemId) -> NewReport {
    let raw = serde_json::value::RawValue::from_string("\"early\"".into()).expect("a string is JSON");
    NewReport {
        agent: agent.clone(),
        run,
        message: NewMessage {
            kind: MessageKind::ToolResult,
            call: Some(call),
            retry: 0,
            item: Some(item),
            outcome: Some(TaskStatus::Success),
            after: None,
            source: None,
            reason: None,
            key: None,
        },
        content: NewItem::own(item, ItemKind::Result, content::result(call, TaskStatus::Success, &raw)),
        now: Timestamp(1_700_000_000_000 + world.elapsed_ms() as i64),
    }
}
