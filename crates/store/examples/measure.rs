//! throwaway
use std::{sync::Arc, time::Instant};
use windlass_kernel::*;
use windlass_ports::*;
use windlass_store::{
    conformance::{Full, fixtures::*},
    *,
};
fn ut(name: &str) -> String {
    let mut o = String::new();
    for e in std::fs::read_dir("/proc/self/task").unwrap() {
        let p = e.unwrap().path();
        let c = std::fs::read_to_string(p.join("comm")).unwrap();
        if c.trim() == name {
            let s = std::fs::read_to_string(p.join("stat")).unwrap();
            let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
            o += &format!("u {} s {} ticks; ", f[11], f[12]);
        }
    }
    o
}
fn cpu(name: &str) -> f64 {
    let mut t = 0.0;
    for e in std::fs::read_dir("/proc/self/task").unwrap() {
        let p = e.unwrap().path();
        let c = std::fs::read_to_string(p.join("comm")).unwrap();
        if c.trim() == name {
            let s = std::fs::read_to_string(p.join("schedstat")).unwrap();
            t += s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e3;
        }
    }
    t
}
#[tokio::main]
async fn main() {
    let external = std::env::args().nth(1).as_deref() == Some("external");
    let dir = tempfile::tempdir_in(std::env::var("D").unwrap_or("/work".into())).unwrap();
    let path = dir.path().join("w.db");
    let store: Arc<dyn Full> = Arc::new(SqliteStore::open(&path, StoreOptions::default()).unwrap());
    let kit = Arc::new(Kit::new(&store));
    let runs = 4000u64;
    let conc: u64 = std::env::var("C").map_or(64, |c| c.parse().unwrap());
    let t = Instant::now();
    let c0 = cpu("windlass-writer");
    let r0 = cpu("windlass-reader");
    let mut js = tokio::task::JoinSet::new();
    for w in 0..conc {
        let kit = kit.clone();
        let store = store.clone();
        js.spawn(async move {
            for r in 0..runs / conc {
                let a = agent(&format!("agent-{w}-{r}"));
                let mut now = START;
                let new = kit.entering(kit.new_run_after(&a, None, vec![kit.item(ItemKind::Instruction, &[b'x'; 600])], now));
                let mut state = new.enter.as_ref().unwrap().state.clone();
                let run = new.run;
                let Enqueued::Entered { epoch, seq, .. } = store.enqueue(new).await.unwrap() else { panic!() };
                let mut seq = seq;
                for _ in 0..3 {
                    now = now.plus_ms(1);
                    let tool = if external { LOOKUP } else { LOCAL };
                    let input = Input::Replied(Reply {
                        text: String::new(),
                        calls: vec![RequestedCall {
                            provider_id: "call_abcdefgh".into(),
                            tool: tool.into(),
                            arguments: format!("{{\"q\":\"{}\"}}", "y".repeat(250)),
                        }],
                        usage: Usage { tokens_in: 100, tokens_out: 20 },
                    });
                    let c = kit.commit(run, &state, input, now);
                    let g = Guard { agent: a.clone(), status: HeadStatus::Running, epoch, run, seq };
                    state = c.state.clone();
                    seq = store.commit(g, c).await.unwrap().seq;
                    let call = state.calls()[0].call.0;
                    let mut rep = kit.new_report(&a, run, call, now);
                    rep.content.content = vec![b'z'; 550].into();
                    let mut consumed = vec![];
                    if external {
                        let Taken::Recorded(id) = store.report(rep.clone()).await.unwrap() else { panic!() };
                        consumed.push(id);
                    }
                    let mut c = kit.commit(
                        run,
                        &state,
                        Input::Reported(Report {
                            call: CallNumber(call),
                            cause: ReportCause::Tool,
                            status: TaskStatus::Success,
                            item: rep.content.id,
                            after: None,
                        }),
                        now,
                    );
                    c.consumed = consumed;
                    if !external {
                        c.items.push(rep.content);
                        c.messages.push(rep.message);
                    }
                    let g = Guard { agent: a.clone(), status: HeadStatus::Suspended, epoch, run, seq };
                    state = c.state.clone();
                    seq = store.commit(g, c).await.unwrap().seq;
                }
                let c = kit.commit(run, &state, says(&"w".repeat(600)), now);
                let g = Guard { agent: a.clone(), status: HeadStatus::Running, epoch, run, seq };
                store.commit(g, c).await.unwrap();
            }
        });
    }
    while let Some(r) = js.join_next().await {
        r.unwrap();
    }
    let el = t.elapsed();
    println!(
        "{:?} {:.0} runs/s writer {:.0} us/run reader {:.0}",
        el,
        runs as f64 / el.as_secs_f64(),
        (cpu("windlass-writer") - c0) / runs as f64,
        (cpu("windlass-reader") - r0) / runs as f64
    );
    println!("{}", ut("windlass-writer"));
    let t = Instant::now();
    for i in 0..2000 {
        let _ = store.load(&agent(&format!("agent-{}-0", i % 64))).await.unwrap();
    }
    println!("load {:?}", t.elapsed() / 2000);
    drop(kit);
    drop(store);
    println!("bytes/run {}", std::fs::metadata(&path).unwrap().len() / runs);
    let c = rusqlite::Connection::open(&path).unwrap();
    let mut s = match c.prepare("SELECT name, sum(pgsize)/4000.0, sum(payload)/4000.0 FROM dbstat GROUP BY name ORDER BY 2 DESC") {
        Ok(s) => s,
        Err(e) => {
            println!("{e}");
            return;
        }
    };
    for r in s.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, f64>(1)?, r.get::<_, f64>(2)?))).unwrap() {
        println!("{:?}", r.unwrap());
    }
}
