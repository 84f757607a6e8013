//! Ended runs are erased by their age, and stored bytes are counted.

use windlass_engine::{Engine, EngineError, Quota, Quotas, Retention};
use windlass_kernel::{AgentKey, ItemKind, RunId, Tenant, content};
use windlass_ports::{ItemScan, QuotaKind};

use crate::support::*;

const HOUR_MS: u64 = 60 * 60 * 1_000;

async fn ended(stage: &Stage, engine: &Engine, agent: &AgentKey) -> RunId {
    let run = engine.begin(agent, "go").await.run;
    stage.ended(agent, run).await;
    run
}

async fn is_erased(stage: &Stage, tenant: &Tenant, run: RunId) -> bool {
    stage.data.journal(tenant, run, 0, 1).await.unwrap().is_empty()
}

fn keeping_runs(ms: u64) -> Retention {
    Retention { responses_ms: None, runs_ms: Some(ms) }
}

/// The sweep makes one round per minute over all tenants. A run that cannot be erased is skipped, and the next round tries it again.
#[tokio::test(start_paused = true)]
async fn tm_13_the_sweep_erases_runs_that_are_too_old() {
    let stage = Stage::new(|_| say("done")).with_settings(|settings| settings.retention = keeping_runs(HOUR_MS));
    let engine = stage.engine(1);
    let mut runs = Vec::new();
    for n in 0..100 {
        let agent = of_tenant(["acme", "other"][n % 2], &format!("agent {n}"));
        runs.push((agent.tenant.clone(), ended(&stage, &engine, &agent).await));
    }
    let (tenant, bad) = runs[0].clone();
    stage.store.fault(|faults| faults.keep = vec![bad]);
    pass_ms(HOUR_MS - 120_000).await;
    let young = ended(&stage, &engine, &agent("young")).await;
    for (tenant, run) in &runs {
        assert!(!is_erased(&stage, tenant, *run).await, "it is not old enough");
    }
    pass_ms(240_000).await;
    for (tenant, run) in &runs {
        assert_eq!(is_erased(&stage, tenant, *run).await, *run != bad);
    }
    assert!(!is_erased(&stage, &tenant, young).await);
    stage.store.fault(|faults| faults.keep.clear());
    pass_ms(61_000).await;
    assert!(is_erased(&stage, &tenant, bad).await);
    assert!(stage.data.run(&tenant, bad).await.unwrap().unwrap().ended_at.is_some(), "the skeleton stays");
}

#[tokio::test(start_paused = true)]
async fn tm_13_without_retention_nothing_is_erased_by_age() {
    let stage = Stage::new(|_| say("done")).with_settings(|settings| {
        settings.retention = Retention { responses_ms: Some(HOUR_MS), runs_ms: None };
    });
    let engine = stage.engine(1);
    let run = ended(&stage, &engine, &agent("a")).await;
    pass_ms(2 * HOUR_MS).await;
    assert!(!is_erased(&stage, &agent("a").tenant, run).await, "the retention of responses is not that of runs");
}

async fn stored(stage: &Stage, tenant: &str) -> u64 {
    let found = stage.data.item_bytes(&ItemScan { after: None, up_to: None, limit: usize::MAX >> 1 }).await.unwrap();
    found.tenants.into_iter().find(|(whose, _)| whose.as_str() == tenant).map_or(0, |(_, bytes)| bytes)
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, EngineError>) -> (QuotaKind, u64, u32) {
    let Err(EngineError::OverQuota(over)) = outcome else { panic!("{outcome:?}") };
    (over.kind, over.limit, over.retry_after_s)
}

/// The quota is the size of one run. The second run is refused after the next sweep, and accepted a minute after the first was erased.
#[tokio::test(start_paused = true)]
async fn tm_13_a_tenant_over_its_bytes_stores_nothing_until_some_are_erased() {
    let probe = Stage::new(|_| say("done"));
    ended(&probe, &probe.engine(1), &agent("a")).await;
    let limit = stored(&probe, "acme").await;
    let quota = Quota { bytes_stored: Some(limit), ..Quota::default() };
    let quotas = Quotas { tenants: [("acme".into(), quota)].into(), ..Quotas::default() };
    let stage = Stage::new(|_| say("done")).with_settings(|settings| settings.quotas = quotas);
    let engine = stage.engine(1);
    let (first, tenant) = (ended(&stage, &engine, &agent("a")).await, agent("a").tenant);
    pass_ms(1_000).await;
    let refused = (QuotaKind::Bytes, limit, 60);
    let text = || vec![(ItemKind::Instruction, content::encode(&content::Instruction::Text("more".into())))];
    assert_eq!(refusal(engine.enqueue(request(&agent("b"), "go")).await), refused);
    assert_eq!(refusal(engine.pack(&tenant, &[], text(), None).await), refused);
    assert_eq!(refusal(engine.begin_conversation(&tenant, "{}".into(), text()).await), refused);
    ended(&stage, &engine, &of_tenant("other", "b")).await;
    // A server that has just started counts what is stored.
    let other = stage.engine(2);
    pass_ms(1_000).await;
    assert_eq!(refusal(other.enqueue(request(&agent("b"), "go")).await), refused);
    engine.erase(&tenant, first).await.unwrap();
    assert_eq!(stored(&stage, "acme").await, 0);
    pass_ms(62_000).await;
    ended(&stage, &engine, &agent("b")).await;
    pass_ms(1_000).await;
    assert_eq!(refusal(other.enqueue(request(&agent("c"), "go")).await), refused, "content added after the erasure counts");
}
