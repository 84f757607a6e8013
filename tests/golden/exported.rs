//! The output of `windlass export`.

use std::process::Command;

use serde_json::json;
use windlass_tests::{ServerBuilder, binary};

use crate::{agents::CONFIG, responses, transcript::Transcript};

fn export(folder: &std::path::Path, run: &str) -> String {
    let output = Command::new(binary()).args(["export", run]).current_dir(folder).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("an export is text")
}

#[tokio::test]
async fn exported_runs() {
    let mut transcript = Transcript::default();
    let server = ServerBuilder::new(CONFIG).start().await;
    let run = server.enqueue("ada", "call echo").await;
    let call = server.claim("echo").await;
    server.report(&call, json!({ "said": "hi" })).await.ok();
    server.ended(&run).await;
    transcript.line(&export(server.folder(), &run));
    let (server, _tools) = responses::server().await;
    let body = json!({ "model": "m", "input": "the weather", "tools": responses::tools() });
    let made = server.post("/v1/responses", body).await.ok();
    let run = made["windlass"]["run_id"].as_str().expect("a response has a run").to_owned();
    transcript.line(&export(server.folder(), &run));
    transcript.check("export");
}
