//! Runs that are not to be kept are erased when it is time, even if others cannot be erased.

use windlass_engine::{Engine, Respond};
use windlass_kernel::{AgentKey, Budgets, ItemKind, Manifest, RunId, Timestamp, content};
use windlass_ports::Lineage;

use crate::support::*;

/// A run that is erased soon after its end.
async fn unkept(engine: &Engine, task: &str) -> (AgentKey, RunId) {
    let manifest =
        Manifest::plain("script", Budgets { iterations: 1, calls: None, tokens: None, wall_ms: None, children: None, cost: None });
    let text = content::encode(&content::Instruction::Text(task.to_owned()));
    let request = Respond {
        tenant: "acme".into(),
        agent: Some(task.into()),
        serial: true,
        manifest,
        input: vec![(ItemKind::Instruction, text)],
        parent: None,
        conversation: None,
        left: None,
        note: bytes::Bytes::new(),
        erase_ms: Some(1000),
        dedupe: None,
        request: None,
        lineage: Lineage::default(),
    };
    let responded = engine.respond(request).await.unwrap();
    (responded.agent, responded.run)
}

/// The oldest runs cannot be erased, and there are more of them than a pass lists at once. The runs behind them are erased all the same,
/// and the oldest ones as soon as that is possible.
#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_erased_does_not_block_other_erasures() {
    let stage = Stage::new(|_| say("done")).with_settings(|settings| settings.sweep_page = 2);
    let engine = stage.engine(1);
    let mut runs = Vec::new();
    for n in 0..6 {
        let (agent, run) = unkept(&engine, &format!("task {n}")).await;
        stage.ended(&agent, run).await;
        runs.push(run);
    }
    let bad = runs[..4].to_vec();
    stage.store.fault(|faults| faults.keep.clone_from(&bad));
    pass_ms(2000).await;
    let left = || async {
        let listed = stage.data.erasable(Timestamp(i64::MAX), 100).await.unwrap();
        listed.into_iter().map(|(_, run)| run).collect::<Vec<_>>()
    };
    assert_eq!(left().await, bad);
    stage.store.fault(|faults| faults.keep.clear());
    pass_ms(2000).await;
    assert_eq!(left().await, []);
}

/// The sweep asks in every pass. The store itself knows whether anything was erased since it last emptied its log.
#[tokio::test(start_paused = true)]
async fn the_sweep_empties_the_log_after_an_erasure() {
    let stage = Stage::new(|_| say("done"));
    let engine = stage.engine(1);
    let (agent, run) = unkept(&engine, "task").await;
    stage.ended(&agent, run).await;
    let ended_at = stage.data.run(&agent.tenant, run).await.unwrap().unwrap().ended_at.unwrap();
    pass_ms(5000).await;
    assert_eq!(stage.data.erasable(Timestamp(i64::MAX), 1).await.unwrap(), [], "it is erased");
    let emptied_at = *stage.store.emptied_at.lock().unwrap();
    assert!(emptied_at > Some(ended_at.plus_ms(1000)), "{emptied_at:?}");
}
