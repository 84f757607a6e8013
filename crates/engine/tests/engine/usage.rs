//! The sweep adds up the usage of each ended run once, and quotas of tokens are decided by the sums.

use std::sync::Arc;

use windlass_engine::{Engine, EngineError, Quota, Quotas};
use windlass_kernel::{AgentKey, RunId, Usage};
use windlass_ports::{Day, QuotaKind, UsageQuery, UsageSums};
use windlass_store::{MemoryStore, StoreOptions};

use crate::support::*;

fn counting() -> Stage {
    let store = MemoryStore::new(StoreOptions { publish: false, usage: true });
    Stage::on(Arc::new(store), |_| {
        let usage = Usage { tokens_in: 3, tokens_out: 4, ..Usage::default() };
        Turn::SayAs { upstream: "upstream", usage, text: "done".into() }
    })
    .with_settings(|settings| settings.usage_days = Some(2))
}

async fn ended(stage: &Stage, engine: &Engine, agent: &AgentKey) -> RunId {
    let run = engine.begin(agent, "go").await.run;
    stage.ended(agent, run).await;
    run
}

async fn sums(stage: &Stage, tenant: &str) -> UsageSums {
    let found = stage.data.usage(&tenant.into(), &UsageQuery::whole(Day::default(), Day(u32::MAX))).await.unwrap();
    found.first().map(|group| group.sums).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn tm_13_two_servers_count_each_run_once() {
    let stage = counting();
    let engines = [stage.engine(1), stage.engine(2)];
    for (n, engine) in engines.iter().cycle().take(10).enumerate() {
        ended(&stage, engine, &agent(&format!("agent {n}"))).await;
    }
    pass_ms(1_000).await;
    assert_eq!(sums(&stage, "acme").await.runs, 10);
    assert_eq!(stage.data.uncounted_usage(10).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn tm_13_what_a_lost_server_did_not_count_is_counted_by_the_next() {
    let stage = counting().with_settings(|settings| settings.sweep_ms = 1_000_000);
    let life = tokio_util::sync::CancellationToken::new();
    let engine = stage.mortal(1, Some(life.clone()));
    ended(&stage, &engine, &agent("a")).await;
    assert_eq!((sums(&stage, "acme").await.runs, stage.data.uncounted_usage(10).await.unwrap().len()), (0, 1));
    life.cancel();
    let next = stage.with_settings(|settings| settings.sweep_ms = 100);
    let _engine = next.engine(2);
    pass_ms(1_000).await;
    assert_eq!((sums(&next, "acme").await.runs, next.data.uncounted_usage(10).await.unwrap().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn sums_of_old_days_are_deleted() {
    let stage = counting().with_settings(|settings| settings.sweep_ms = 60_000);
    let engine = stage.engine(1);
    ended(&stage, &engine, &agent("a")).await;
    pass_ms(100_000).await;
    assert_eq!(sums(&stage, "acme").await.runs, 1);
    pass_ms(24 * 60 * 60 * 1_000).await;
    assert_eq!(sums(&stage, "acme").await.runs, 1);
    pass_ms(2 * 24 * 60 * 60 * 1_000).await;
    assert_eq!(sums(&stage, "acme").await.runs, 0);
}

#[tokio::test(start_paused = true)]
async fn tm_13_a_tenant_that_used_its_tokens_starts_no_run_until_the_next_day() {
    let quota = Quota { tokens_per_day: Some(7), ..Quota::default() };
    let quotas = Quotas { tenants: [("acme".into(), quota)].into(), ..Quotas::default() };
    let stage = counting().with_settings(|settings| (settings.quotas, settings.sweep_ms) = (quotas, 60_000));
    let engine = stage.engine(1);
    ended(&stage, &engine, &agent("a")).await;
    pass_ms(100_000).await;
    assert_eq!(sums(&stage, "acme").await.tokens(), 7);
    let refused = engine.enqueue(request(&agent("b"), "go")).await.unwrap_err();
    let EngineError::OverQuota(over) = refused else { panic!("{refused}") };
    assert_eq!((over.kind, over.limit), (QuotaKind::Tokens, 7));
    let next_day = Day::of(engine.now()).next().start().0 - engine.now().0;
    assert_eq!(i64::from(over.retry_after_s), next_day / 1_000 + 1);
    ended(&stage, &engine, &of_tenant("other", "b")).await;
    pass_ms(u64::from(over.retry_after_s) * 1_000).await;
    ended(&stage, &engine, &agent("b")).await;
}
