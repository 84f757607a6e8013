//! The commands `ls`, `show` and `reconcile` against a running server, with the exit codes that scripts rely on.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{dev::Dev, windlass};

const CONFIG: &str = "tools: { external: [ { name: pay, description: pays, parameters: { type: object }, effect: write } ] }
agents: { clerk: { tools: [pay] } }
limits: { sweep_interval: 50ms }";

/// Runs a command. Returns its stdout, its stderr and its exit code.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    let out = windlass(folder, arguments).output().expect("the command runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr), out.status.code())
}

pub(crate) fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let (out, err, _) = run(folder, arguments);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}{err}"))
}

pub(crate) async fn post(dev: &Dev, path: &str, body: Value) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let request = client.post(format!("{}{path}", dev.value("API"))).bearer_auth(dev.value("token")).json(&body);
    let answer = request.send().await.expect("an answer").bytes().await.expect("a body");
    serde_json::from_slice(&answer).expect("JSON")
}

/// A parked write of an agent: a worker claimed the call and died.
async fn parked_write(dev: &Dev, folder: &Path) -> String {
    post(dev, "/v1/responses", json!({ "model": "agent/clerk", "input": "call pay", "background": true })).await;
    let claimed = post(dev, "/v1/tools/pay/claim", json!({ "worker": "w1", "lease_s": 1, "wait_s": 10 })).await;
    let id = claimed["calls"][0]["agent_turn_id"].as_str().unwrap_or_else(|| panic!("{claimed}")).to_owned();
    for _ in 0..100 {
        if json_of(folder, &["ls", "--state", "parked", "--json"])["runs"][0]["run_id"] == id.as_str() {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it is never parked: {}", json_of(folder, &["ls", "--json"]));
}

#[tokio::test]
async fn a_parked_run_is_found_shown_and_decided_on() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("windlass.yaml"), CONFIG).expect("a configuration");
    let dev = Dev::start(folder.path());
    assert_eq!(run(folder.path(), &["ls"]).0, "no runs\n");
    let id = parked_write(&dev, folder.path()).await;

    // A folder below: the command uses the nearest .windlass folder, which has the server's address and token.
    let below = folder.path().join("a/b");
    std::fs::create_dir_all(&below).expect("folders");
    let (listed, err, code) = run(&below, &["ls", "--agent", "clerk"]);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    let line = listed.lines().nth(1).unwrap_or_else(|| panic!("{listed}"));
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((columns[1], columns[2]), ("clerk", "parked"), "{listed}");
    assert!(line.ends_with("pay: outcome unknown") && id.contains(columns[0]), "{listed}");
    assert!(!listed.contains('\u{1b}'), "no colours where no terminal is");

    let (shown, _, code) = run(&below, &["show", columns[0]]);
    assert_eq!(code, Some(3), "it waits for a person: {shown}");
    assert!(shown.contains("call 1  pay  write  parked") && shown.contains(&format!("windlass reconcile {id} 1")), "{shown}");
    assert_eq!(json_of(&below, &["show", "@last", "--json"])["run_id"], id.as_str());

    let (_, err, code) = run(&below, &["reconcile", &id, "1", "--record", "{paid"]);
    assert!(code == Some(2) && err.contains("--record takes JSON"), "{err}");
    let (out, err, code) = run(&below, &["reconcile", &id, "1", "--record", r#"{"paid":true}"#]);
    assert_eq!((err.as_str(), code), ("", Some(0)), "{out}");
    let (_, err, code) = run(&below, &["reconcile", &id, "1", "--tell"]);
    assert!(code == Some(1) && err.contains("409"), "{err}");
    for _ in 0..100 {
        let (shown, _, code) = run(&below, &["show", &id]);
        if shown.contains("ended") {
            assert!(code == Some(0) && shown.contains("call 1  pay  write  applied"), "{shown}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never ends");
}

#[tokio::test]
async fn exit_codes_show_scripts_what_happened() {
    let folder = TempDir::new().expect("a folder");
    let (_, err, code) = run(folder.path(), &["ls", "--server", "http://127.0.0.1:1"]);
    assert!(code == Some(8) && err.contains("http://127.0.0.1:1") && err.contains("--server"), "{err}");
    for arguments in [["ls", "--limit", "0"], ["ls", "--limit", "201"], ["reconcile", "@last", "1"], ["show", "nothing", "--json"]] {
        assert_eq!(run(folder.path(), &arguments).2, Some(2), "{arguments:?}");
    }
    let dev = Dev::start(folder.path());
    let (_, err, code) = run(folder.path(), &["show", "@last"]);
    assert!(code == Some(1) && err.contains("there is no run yet"), "{err}");
    let (_, err, code) = run(folder.path(), &["show", "0000"]);
    assert!(code == Some(1) && err.contains("no run begins with 0000"), "{err}");
    let (_, err, code) = run(folder.path(), &["ls", "--state", "asleep"]);
    assert!(code == Some(1) && err.contains("queued, thinking, waiting, parked, ended"), "{err}");
    std::fs::write(folder.path().join("wrong"), "another-token").expect("a file");
    let (_, err, code) = run(folder.path(), &["ls", "--token-file", "wrong"]);
    assert!(code == Some(9) && err.contains("--token-file"), "{err}");
    // In another folder the command knows neither the server nor its token.
    let elsewhere = TempDir::new().expect("a folder");
    let (_, err, code) = run(elsewhere.path(), &["ls", "--server", dev.value("API")]);
    assert!(code == Some(9) && err.contains("WINDLASS_TOKEN"), "{err}");
    let out = windlass(elsewhere.path(), &["ls"]).env("WINDLASS_URL", dev.value("API")).env("WINDLASS_TOKEN", dev.value("token")).output();
    assert_eq!(out.expect("the command runs").status.code(), Some(0));
}

/// The names of the files in a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let has_text = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let entries = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("a file").path());
    entries.filter(|path| std::fs::read(path).is_ok_and(|bytes| has_text(&bytes))).map(|path| path.display().to_string()).collect()
}

/// First through the running server, then in the database while no server runs.
#[tokio::test]
async fn tm_05_a_tenant_is_erased_from_the_command_line() {
    const MARKER: &str = "zebra-crossing";
    let folder = TempDir::new().expect("a folder");
    let data = folder.path().join(".windlass");
    let dev = Dev::start(folder.path());
    let ask = json!({ "input": MARKER, "instructions": MARKER, "metadata": { "about": MARKER }, "user": MARKER });
    assert_eq!(post(&dev, "/v1/responses", ask.clone()).await["status"], "completed");
    assert_ne!(files_with(&data, MARKER), [""; 0]);
    let (_, err, code) = run(folder.path(), &["erase", "--tenant", "default"]);
    assert!(code == Some(2) && err.contains("nothing was erased"), "{err}");
    let (_, err, code) = run(folder.path(), &["erase", "--tenant", "other", "--yes"]);
    assert!(code == Some(1) && err.contains("no such tenant"), "{err}");
    let erased = json_of(folder.path(), &["erase", "--tenant", "default", "--yes", "--json"]);
    assert!(erased["tenant"] == "default" && erased["erased"].as_u64() > Some(3), "{erased}");
    assert_eq!(run(folder.path(), &["ls"]).0, "no runs\n");
    assert_eq!(post(&dev, "/v1/responses", ask).await["status"], "completed");
    let (_, err, code) = run(folder.path(), &["erase", "--tenant", "default", "--yes", "--server", "http://127.0.0.1:1"]);
    assert!(code == Some(8), "a server that was named is the one that is meant: {err}");
    drop(dev);
    assert_ne!(files_with(&data, MARKER), [""; 0]);
    let (out, err, code) = run(folder.path(), &["erase", "--tenant", "default", "--yes"]);
    assert!(code == Some(0) && out.starts_with("erased everything of the tenant default"), "{out}{err}");
    assert_eq!(files_with(&data, MARKER), [""; 0]);
    let (out, _, code) = run(folder.path(), &["erase", "--tenant", "default", "--yes"]);
    assert!(code == Some(0) && out.contains("(0 rows)"), "{out}");
}

/// The runs are too young to be erased by age; other tests cover that. First through the running server, then in its database.
#[tokio::test]
async fn tm_08_a_database_is_rebuilt_from_the_command_line_when_no_server_has_it() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("windlass.yaml"), "retention: { responses: 30d }").expect("a configuration");
    let dev = Dev::start(folder.path());
    assert_eq!(post(&dev, "/v1/responses", json!({ "input": "hello" })).await["status"], "completed");
    assert_eq!(json_of(folder.path(), &["gc", "--json"]), json!({ "erased": 0, "failed": 0, "vacuum": null }));
    let (_, err, code) = run(folder.path(), &["gc", "--vacuum"]);
    assert!(code == Some(1) && err.contains("in use by another server") && err.contains("stop that server first"), "{err}");
    drop(dev);
    let (out, err, code) = run(folder.path(), &["gc", "--config", "windlass.yaml"]);
    assert!(code == Some(0) && out.starts_with("erased 0 runs"), "{out}{err}");
    let (out, err, code) = run(folder.path(), &["gc", "--vacuum", "--config", "windlass.yaml"]);
    assert!(code == Some(0) && out.contains("rebuilt the database: ") && out.contains(" bytes after"), "{out}{err}");
    let (_, err, code) = run(folder.path(), &["gc", "--data", "nowhere"]);
    assert!(code == Some(1) && err.contains("there is no database nowhere"), "{err}");
    std::fs::write(folder.path().join("shared.yaml"), "store: { url: 'postgres://u@127.0.0.1/w' }").expect("a configuration");
    let (_, err, code) = run(folder.path(), &["gc", "--vacuum", "--config", "shared.yaml"]);
    assert!(code == Some(2) && err.contains("VACUUM (FULL)"), "{err}");
}
