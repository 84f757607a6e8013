//! The Responses door in front of a scripted backend, with everything durable. Measures processor time per request, the time to the first
//! event and to the first text delta compared with the backend's own, and memory after many responses.
//!
//! `gateway BINARY` starts that binary in a folder of its own. `SECS` (5) per phase, `CLIENTS` (16), `RESPONSES` (100,000) stored
//! before the memory is read.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::join_all};
use serde_json::{Value, json};
use windlass_bench::{backend, cpu_s, memory_kb, percentile, round, setting, stolen_s};

const TOKEN: &str = "bench-token-of-22-characters";
const ADDRESS: &str = "127.0.0.1:7689";

/// One request that is sent again and again.
#[derive(Clone)]
struct Load {
    client: reqwest::Client,
    url: String,
    body: Value,
    /// A text that marks the first event of interest.
    first: &'static str,
    /// A text that every complete answer contains.
    expected: &'static str,
}

impl Load {
    /// Microseconds to the first event of interest and to the end.
    async fn once(&self) -> (u64, u64) {
        let began = Instant::now();
        let answer = self.client.post(&self.url).bearer_auth(TOKEN).json(&self.body).send().await.expect("the server answers");
        let mut body = answer.bytes_stream();
        let (mut seen, mut first) = (Vec::new(), None);
        while let Some(bytes) = body.next().await {
            seen.extend_from_slice(&bytes.expect("the answer is whole"));
            if first.is_none() && contains(&seen, self.first) {
                first = Some(began.elapsed().as_micros() as u64);
            }
        }
        assert!(contains(&seen, self.expected), "{}", String::from_utf8_lossy(&seen));
        let whole = began.elapsed().as_micros() as u64;
        (first.unwrap_or(whole), whole)
    }

    /// Runs this many clients at the same time. Each sends its next request when its last has ended.
    async fn run(&self, clients: u64, enough: impl Fn(Duration, u64) -> bool + Copy) -> Vec<(u64, u64)> {
        let (began, sent) = (Instant::now(), AtomicU64::new(0));
        let one = || async {
            let mut times = Vec::new();
            while !enough(began.elapsed(), sent.fetch_add(1, Relaxed)) {
                times.push(self.once().await);
            }
            times
        };
        join_all((0..clients).map(|_| one())).await.concat()
    }
}

fn contains(seen: &[u8], wanted: &str) -> bool {
    seen.windows(wanted.len()).any(|window| window == wanted.as_bytes())
}

fn start(binary: &Path, folder: &Path, backend: &str) -> Child {
    let config = format!(
        "auth: {{ tokens: [ {{ token: {TOKEN}, scopes: ['*'] }} ] }}
models: [ {{ name: '*', provider: openai-chat, base_url: '{backend}/v1' }} ]
tools: {{ mcp: [ {{ label: tools, url: '{backend}/mcp', effects: {{ echo: read }} }} ] }}
egress: {{ allow: ['127.0.0.1'] }}
"
    );
    fs::write(folder.join("windlass.yaml"), config).expect("the configuration is written");
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", ADDRESS]).current_dir(folder).env("WINDLASS_LOG", "warn").stdin(Stdio::null());
    command.spawn().expect("the binary starts")
}

/// The median time of a flush in this folder, in milliseconds.
fn flush_ms(folder: &Path) -> f64 {
    let mut file = fs::File::create(folder.join("flushes")).expect("a file is made");
    file.write_all(&[0; 1 << 20]).and_then(|()| file.sync_all()).expect("the file is written");
    let mut times: Vec<u64> = (0..200)
        .map(|n| {
            use std::os::unix::fs::FileExt;
            let began = Instant::now();
            file.write_all_at(&[1; 4096], n * 4096).and_then(|()| file.sync_data()).expect("the file is flushed");
            began.elapsed().as_micros() as u64
        })
        .collect();
    percentile(&mut times, 0.50)
}

fn bounded(value: f64, max: f64) -> Value {
    json!({ "value": round(value, 3), "max": round(max, 3), "holds": value <= max })
}

async fn measure(binary: PathBuf) {
    let folder = tempfile::tempdir().expect("a folder for the data");
    let backend = backend::start();
    let mut server = start(&binary, folder.path(), &backend);
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().expect("a client is made");
    while !client.get(format!("http://{ADDRESS}/healthz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let load = |url: String, body: Value, first, expected| Arc::new(Load { client: client.clone(), url, body, first, expected });
    let door = || format!("http://{ADDRESS}/v1/responses");
    let (clients, phase) = (setting("CLIENTS", 16), Duration::from_secs(setting("SECS", 5)));
    let pid = server.id();

    let messages = json!([{ "role": "user", "content": "hi" }]);
    let own =
        load(format!("{backend}/v1/chat/completions"), json!({ "model": "fake", "stream": true, "messages": messages }), "All ", "[DONE]");
    let streamed = json!({ "model": "fake", "input": "hi", "stream": true });
    let event = load(door(), streamed.clone(), "response.created", "response.completed");
    let word = load(door(), streamed, "output_text.delta", "response.completed");
    let tools = json!([{ "type": "mcp", "server_label": "tools", "require_approval": "never" }]);
    let one = load(door(), json!({ "model": "fake", "input": "hi" }), "All ", "\"completed\"");
    let three = load(door(), json!({ "model": "fake-t2", "input": "hi", "tools": tools }), "All ", "mcp_call");

    let mut first = Vec::new();
    for load in [&own, &event, &word] {
        load.run(1, |_, sent| sent >= 50).await;
        let mut times: Vec<u64> = load.run(1, |time, _| time >= phase).await.into_iter().map(|(first, _)| first).collect();
        first.push(percentile(&mut times, 0.50));
    }
    let flush = flush_ms(folder.path());
    let later = bounded(first[1] - first[0], 2.0 * flush + 1.0);
    println!(
        "{}",
        json!({
            "peer": "windlass", "variant": "streamed alone", "backend_p50_ms": first[0], "flush_p50_ms": flush,
            "first_event_p50_ms": first[1], "later_ms": later, "first_word_p50_ms": first[2],
        })
    );
    for (name, load, max) in [("one turn", &one, 0.45), ("three turns, two calls", &three, 1.8)] {
        load.run(clients, |time, _| time >= Duration::from_secs(1)).await;
        let (before, stolen, began) = (cpu_s(pid), stolen_s(), Instant::now());
        let times = load.run(clients, |time, _| time >= phase).await;
        let (used, seconds) = (cpu_s(pid) - before, began.elapsed().as_secs_f64());
        let mut whole: Vec<u64> = times.into_iter().map(|(_, whole)| whole).collect();
        let (count, p50, p99) = (whole.len() as f64, percentile(&mut whole, 0.50), percentile(&mut whole, 0.99));
        let cpu = bounded(used * 1000.0 / count, max);
        println!(
            "{}",
            json!({ "peer": "windlass", "variant": name, "clients": clients, "requests_per_s": round(count / seconds, 1), "p50_ms": p50, "p99_ms": p99, "cpu_ms_per_request": cpu, "cores_stolen": round((stolen_s() - stolen) / seconds, 2) })
        );
    }
    let responses = setting("RESPONSES", 100_000);
    one.run(clients, |_, sent| sent >= responses).await;
    let memory = memory_kb(pid) as f64 / 1024.0;
    println!("{}", json!({ "peer": "windlass", "variant": "memory", "stored": responses, "mib": bounded(memory, 60.0) }));
    server.kill().and_then(|()| server.wait()).expect("the server stops");
}

#[tokio::main]
async fn main() {
    rustls::crypto::ring::default_provider().install_default().expect("no other provider is there");
    let binary = std::env::args().nth(1).expect("usage: gateway BINARY");
    measure(fs::canonicalize(binary).expect("the binary is there")).await;
}
