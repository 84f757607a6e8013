//! Many suspended runs: what they cost in memory, and how soon after `kill -9` the first one continues.
//!
//! `suspended BINARY` starts that binary in a folder of its own. `SUSPENDED` (10,000) runs are suspended, the first 1,000 of them
//! before the memory is read for the first time.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use windlass_bench::{memory_kb, round, setting};

const TOKEN: &str = "bench-token-of-22-characters";
const CONFIG: &str = "auth: { tokens: [ { token: bench-token-of-22-characters, scopes: ['*'] } ] }
tools: { external: [ { name: slow, effect: read } ] }
limits: { open_per_tenant: 100000 }
";
const ADDRESS: &str = "127.0.0.1:7688";

struct Bench {
    binary: PathBuf,
    folder: PathBuf,
    client: reqwest::Client,
}

impl Bench {
    async fn start(&self) -> Child {
        let child = Command::new(&self.binary)
            .args(["serve", "--listen", ADDRESS])
            .current_dir(&self.folder)
            .env("WINDLASS_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        while !self.is_healthy().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        child
    }

    /// Whether the server accepts requests. It answers 503 while it still reads its state.
    async fn is_healthy(&self) -> bool {
        let answer = self.client.get(format!("http://{ADDRESS}/healthz")).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    async fn post(&self, path: String, body: Value) -> Value {
        let request = self.client.post(format!("http://{ADDRESS}{path}")).bearer_auth(TOKEN).json(&body);
        request.send().await.expect("the server answers").json().await.expect("an answer is JSON")
    }

    async fn get(&self, path: String) -> Value {
        let request = self.client.get(format!("http://{ADDRESS}{path}")).bearer_auth(TOKEN);
        request.send().await.expect("the server answers").json().await.expect("an answer is JSON")
    }

    /// Suspends runs of the agents in this range on a tool that has no service.
    async fn suspend(&self, agents: std::ops::Range<usize>) {
        let last = agents.end - 1;
        let all = stream::iter(agents).for_each_concurrent(32, |n| async move {
            let body = json!({ "input": "call slow {}", "tools": ["slow"] });
            let answer = self.post(format!("/v1/agents/agent-{n}/enqueue"), body).await;
            assert!(answer["run_id"].is_string(), "{answer}");
        });
        all.await;
        while self.get(format!("/v1/agents/agent-{last}")).await["status"] != "suspended" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Work in flight settles first, so that memory is read when the server is idle.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::main]
async fn main() {
    let binary = PathBuf::from(std::env::args().nth(1).expect("usage: suspended BINARY"));
    let binary = std::fs::canonicalize(binary).expect("the binary is there");
    let folder = tempfile::tempdir().expect("a folder for the server");
    std::fs::write(Path::join(folder.path(), "windlass.yaml"), CONFIG).expect("the configuration can be written");
    // The TLS client needs a crypto provider, although it speaks plain HTTP here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let bench = Bench { binary, folder: folder.path().to_owned(), client };
    let mut server = bench.start().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle_kb = memory_kb(server.id());
    bench.suspend(0..1000).await;
    let at_1000_kb = memory_kb(server.id());
    let suspended = setting("SUSPENDED", 10_000).max(1_001) as usize;
    bench.suspend(1000..suspended).await;
    let at_last_kb = memory_kb(server.id());
    let calls = bench.post("/v1/tools/slow/claim".into(), json!({ "worker": "w", "max": 1, "lease_s": 600 })).await;
    let call = calls["calls"][0].clone();
    server.kill().expect("the server can be killed");
    server.wait().expect("it is gone");

    let began = Instant::now();
    let mut server = bench.start().await;
    let served_ms = began.elapsed().as_secs_f64() * 1000.0;
    let agent = call["agent_id"].as_str().expect("a call has its agent").to_owned();
    let run = call["agent_turn_id"].as_str().expect("a call has its turn").to_owned();
    let report = json!({ "agent_turn_id": run, "tool_call_id": call["tool_call_id"], "status": "success", "result": "done" });
    bench.post(format!("/v1/agents/{agent}/report"), report).await;
    while bench.get(format!("/v1/windlass/runs/{run}")).await["iteration"] != 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let resumed_ms = began.elapsed().as_secs_f64() * 1000.0;
    server.kill().expect("the server can be killed");
    server.wait().expect("it is gone");
    let growth_mb = at_last_kb.saturating_sub(at_1000_kb) as f64 / 1024.0;
    let idle_mb = idle_kb as f64 / 1024.0;
    println!(
        "{}",
        json!({
            "peer": "suspended",
            "idle_mib": { "value": round(idle_mb, 1), "max": 25.0, "holds": idle_mb <= 25.0 },
            "at_1000_mib": round(at_1000_kb as f64 / 1024.0, 1), format!("at_{suspended}_mib"): round(at_last_kb as f64 / 1024.0, 1),
            "growth_mib": { "value": round(growth_mb, 1), "max": 5.0, "holds": growth_mb <= 5.0 },
            "serving_after_kill_ms": round(served_ms, 0),
            "first_resumed_after_kill_ms": { "value": round(resumed_ms, 0), "max": 1000.0, "holds": resumed_ms <= 1000.0 },
        })
    );
}
