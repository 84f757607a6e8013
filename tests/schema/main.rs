//! The real binary under Schemathesis: the answers match the served document, whatever is sent, and no answer is an internal error.
//!
//! `scripts/clients` installs it. With `WINDLASS_LONG=1` it runs for eleven minutes instead of about one.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use windlass_tests::{Server, ServerBuilder};

/// A model that answers by keywords, an agent, and a tool without a service. `hooks.py` knows their names.
const CONFIG: &str = "
models: [ { name: offline, provider: scripted } ]
tools: { external: [ { name: echo, description: gives the text back, parameters: { type: object }, effect: read } ] }
agents: { alice: { instructions: be brief, tools: [echo] } }
";

/// A stream of an agent's events has no end, so its answer can't be checked here; tests/streams and tests/turns read it.
const ENDLESS: &str = "events";

/// A request can be valid by its schema and name something that does not exist, or contradict itself. Then it is refused.
const UNCHECKED: &str = "positive_data_acceptance";

const SEED: &str = "5";
/// Examples of each operation, besides those at the bounds of what the document allows.
const EXAMPLES: &str = "8";
const LONG_S: &str = "660";

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_sent_the_answer_is_as_described_and_never_a_fault() {
    let server = ServerBuilder::new(CONFIG).start().await;
    let document = server.folder().join("openapi.json");
    std::fs::write(&document, server.get("/openapi.json").await.ok().to_string()).expect("the document can be written");
    let checked = python(&server).args(["-m", "openapi_spec_validator"]).arg(&document).output().expect("Python runs");
    assert!(checked.status.success(), "the document is no OpenAPI document:\n{}", output_text(&checked));

    let report = server.folder().join("report.json");
    let mut run = python(&server);
    run.args(["-m", "schemathesis.cli", "run"]).arg(&document).args(["--url", server.base(), "--report-json-path"]).arg(&report);
    run.args(["--header", "Authorization: Bearer test-token-of-22-characters", "--seed", SEED, "--max-examples", EXAMPLES]);
    run.args(["--phases", "coverage,fuzzing,stateful", "--exclude-operation-id", ENDLESS, "--exclude-checks", UNCHECKED]);
    run.args(["--request-timeout", "120", "--suppress-health-check", "all", "--output-truncate", "false", "--warnings", "off"]);
    if std::env::var_os("WINDLASS_LONG").is_some() {
        run.args(["--max-time", LONG_S]);
    }
    let output = tokio::task::spawn_blocking(move || run.output().expect("Schemathesis runs")).await.expect("it is waited for");
    check(&report, &output);
    assert_eq!(server.get("/healthz").await.ok()["status"], "ok");
    let log = server.log();
    assert!(!log.contains("panicked") && !log.contains("by our own fault"), "{log}");
}

fn check(report: &Path, output: &Output) {
    let printed = output_text(output);
    let report = std::fs::read(report).unwrap_or_else(|error| panic!("there is no report ({error}):\n{printed}"));
    let report: Value = serde_json::from_slice(&report).expect("a report is JSON");
    assert!(output.status.success() && report["failures"] == Value::Array(Vec::new()), "{printed}");
    assert_eq!(report["errors"], Value::Array(Vec::new()), "{printed}");
    let count = |at: &str| report.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    let (operations, cases) = (count("/operations/tested"), count("/test_cases/generated"));
    assert_eq!((operations, report["complete"].as_bool()), (count("/operations/selected"), Some(true)), "{printed}");
    // Otherwise the hooks had no effect, and only refusals were checked.
    let rates = report["valid_rates"].as_object().expect("rates are reported");
    let accepted: u64 =
        rates.values().flat_map(|phases| phases.as_object()).flatten().filter_map(|(_, rate)| rate["accepted"].as_u64()).sum();
    assert!(cases > 1_000 && accepted > 50, "{cases} cases, {accepted} of them accepted:\n{printed}");
    // Written past the test harness, which shows the output of a test only if it fails.
    let line = format!("schema: {cases} requests over {operations} operations, {accepted} that were to be taken were, 0 answers of 5xx");
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The Python that has Schemathesis.
fn python(server: &Server) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is the parent folder");
    let installed = Command::new(root.join("scripts/clients")).status();
    assert!(installed.expect("bash runs").success(), "Schemathesis cannot be installed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let mut python = Command::new(target.join("clients/schemathesis/bin/python"));
    // Schemathesis writes its state to the working folder.
    python.current_dir(server.folder()).env("NO_COLOR", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("SCHEMATHESIS_HOOKS", PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema/hooks.py"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        python.env_remove(name);
    }
    python
}
