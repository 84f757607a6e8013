//! Doorbells between processes: each notifies the others at once. The sweep is so slow in these tests that it finds nothing.

use std::time::Duration;

use windlass_engine::{Settings, Watch};
use windlass_kernel::HeadStatus;

use crate::support::*;

const HOUR_MS: u64 = 3_600_000;

fn stage(play: impl Fn(&windlass_ports::ModelRequest) -> Turn + Send + Sync + 'static) -> Stage {
    Stage::new(play).with_settings(|settings| settings.sweep_ms = HOUR_MS)
}

async fn is_notified(watch: &mut Watch) -> bool {
    tokio::time::timeout(Duration::from_millis(1), watch.changed()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_doorbell_wakes_followers_in_other_processes() {
    let stage = stage(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say("done") });
    let line = Line::default();
    let (here, there) = (stage.wired(1, &line), stage.wired(2, &line));
    let unconnected = stage.engine(3);
    let a = agent("a");
    let (mut news, mut end, mut tool) = (there.watch_agent(&a), there.watch_settled(&a), there.watch_tool(&a.tenant, &LOOKUP.into()));
    let mut unconnected_news = unconnected.watch_agent(&a);
    let mut other = there.watch_agent(&agent("b"));
    let run = here.begin(&a, "go").await.run;
    settle().await;
    assert!(is_notified(&mut news).await, "something was committed");
    assert!(is_notified(&mut tool).await, "a call can be claimed");
    while is_notified(&mut end).await {}
    here.answer(&a, run, 1, "5").await;
    stage.ended(&a, run).await;
    assert!(is_notified(&mut end).await, "the run is over");
    assert!(
        !is_notified(&mut other).await && !is_notified(&mut unconnected_news).await,
        "other agents are not concerned, and a process without a doorbell gets no notification"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_released_at_one_process_wakes_services_at_another() {
    let stage = stage(|_| call(&[LOOKUP]));
    let line = Line::default();
    let (here, there) = (stage.wired(1, &line), stage.wired(2, &line));
    let a = agent("a");
    here.begin(&a, "go").await;
    settle().await;
    let request = windlass_engine::ClaimRequest {
        tenant: a.tenant.clone(),
        tool: LOOKUP.into(),
        worker: "w".into(),
        max: 1,
        lease_ms: 1000,
        key: None,
        request: None,
    };
    let claimed = here.claim(request.clone()).await.unwrap();
    settle().await;
    let mut tool = there.watch_tool(&a.tenant, &LOOKUP.into());
    here.release(request, vec![(claimed[0].run, claimed[0].call)]).await.unwrap();
    settle().await;
    assert!(is_notified(&mut tool).await);
}

#[tokio::test(start_paused = true)]
async fn a_process_without_room_gets_help_at_once() {
    let front = stage(|request| if request.iteration == 1 { call(&[LOOKUP]) } else { say("done") });
    let front = front.with_settings(|settings| settings.workers_max = 0);
    let line = Line::default();
    let here = front.wired(1, &line);
    let back = Stage { settings: Settings { workers_max: 8, ..front.settings.clone() }, ..front };
    let _there = back.wired(2, &line);
    let a = agent("a");
    let run = here.begin(&a, "go").await.run;
    settle().await;
    assert_eq!(back.head(&a).await.status, HeadStatus::Suspended, "the other process entered it");
    here.answer(&a, run, 1, "5").await;
    settle().await;
    assert!(back.run(&a, run).await.state.has_ended(), "and applied the result in the inbox");
}

#[tokio::test(start_paused = true)]
async fn a_draining_process_passes_the_next_turn_on() {
    let hold = Latch::shut();
    let shut = hold.clone();
    let stage = stage(move |_| Turn::After(shut.clone(), Box::new(say("done"))));
    let line = Line::default();
    let (here, there) = (stage.wired(1, &line), stage.wired(2, &line));
    let a = agent("a");
    let (first, second) = (here.begin(&a, "one").await.run, here.begin(&a, "two").await.run);
    settle().await;
    let leaving = tokio::spawn(async move { here.drain().await });
    settle().await;
    hold.open();
    leaving.await.unwrap();
    settle().await;
    assert!(stage.run(&a, first).await.state.has_ended() && stage.run(&a, second).await.state.has_ended());
    assert!(!there.is_draining());
}

/// A process does not ask others for help with its own work.
#[tokio::test(start_paused = true)]
async fn other_processes_are_not_asked_for_help_with_a_run_in_progress() {
    let stage = stage(|_| say("done"));
    let line = Line::default();
    let here = stage.wired(1, &line);
    let (_bell, mut rings_received) = line.hang(2);
    let a = agent("a");
    let mut last = None;
    for _ in 0..5 {
        last = Some(here.begin(&a, "go").await.run);
    }
    stage.ended(&a, last.unwrap()).await;
    settle().await;
    let mut rings = 0;
    while let Ok(ring) = rings_received.try_recv() {
        assert_eq!(ring, windlass_ports::Ring::Agent(a.clone()));
        rings += 1;
    }
    assert!(rings >= 5);
}
