//! The facts of a model call that are stored for cost reports and traces.

use windlass_kernel::{CallerSpan, Event, ReplyFacts, SpanId, Usage};
use windlass_ports::Lineage;

use crate::support::*;

const USAGE: Usage = Usage { tokens_in: 20, tokens_out: 5, cached: 4, cache_written: 3, reasoning: 0 };

#[tokio::test(start_paused = true)]
async fn the_providers_model_and_the_time_to_the_first_token_are_kept() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = Stage::new(move |_| {
        let reply = Turn::SayAs { upstream: "script-2026-01", usage: USAGE, text: "done".into() };
        Turn::After(shut.clone(), Box::new(reply))
    });
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    settle().await;
    pass_ms(300).await;
    hold.open();
    assert_eq!(stage.ended(&a, run).await, "done");
    let replied = stage
        .journal(&a, run)
        .await
        .into_iter()
        .find_map(|entry| if let Event::Replied { model, usage, .. } = entry.event { Some((model, usage)) } else { None });
    let (model, usage) = replied.expect("the model replied");
    assert_eq!(usage, USAGE);
    assert_eq!(model.upstream.as_deref(), Some("script-2026-01"));
    assert!(model.first_token_ms.is_some_and(|ms| ms >= 300), "{model:?}");
    let state = stage.run(&a, run).await.state;
    assert_eq!((state.model, state.usage.cache_written), (model, 3));
}

#[tokio::test(start_paused = true)]
async fn an_immediate_reply_without_a_model_name_stores_no_facts() {
    let stage = Stage::new(|_| say("done"));
    let engine = stage.engine(1);
    let a = agent("a");
    let run = engine.begin(&a, "go").await.run;
    stage.ended(&a, run).await;
    assert_eq!(stage.run(&a, run).await.state.model, ReplyFacts::default());
}

#[tokio::test(start_paused = true)]
async fn the_span_of_the_request_is_kept() {
    let stage = Stage::new(|_| say("done"));
    let engine = stage.engine(1);
    let a = agent("a");
    let caller = Some(CallerSpan { id: SpanId(7), sampled: true });
    let asked = windlass_engine::Enqueue { lineage: Lineage { caller, ..Lineage::default() }, ..request(&a, "go") };
    let run = engine.enqueue(asked).await.unwrap().run;
    stage.ended(&a, run).await;
    assert_eq!(stage.run(&a, run).await.lineage.caller, caller);
}
