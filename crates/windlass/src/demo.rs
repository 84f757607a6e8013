//! `windlass demo`: starts a server of its own, kills it with SIGKILL in the middle of a streamed answer, and shows how the run continues.
//!
//! Nothing is staged: the server is this same program in a process of its own, and the demo talks to it over HTTP like any client and any
//! tool service. It checks every claim that it makes at the end, and fails if one does not hold.

mod api;
mod printer;
mod server;
mod service;
mod setup;
mod stream;

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use api::Api;
use printer::{Printer, seconds};
use server::DemoServer;
use service::Service;
use stream::{Follower, Received, Stream};

/// The time after which something must have gone wrong. The demo takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the demo once. It is an error if anything does not hold; nothing is left behind in either case.
pub(crate) async fn demo() -> anyhow::Result<()> {
    // rustls supports several crypto providers, and the process must choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    // The first branch to finish ends the demo. The others are dropped, and with them the server and the folder.
    tokio::select! {
        result = tokio::time::timeout(PATIENCE, run_demo()) => result.unwrap_or_else(|_| bail!("the demo took too long and was given up")),
        _ = tokio::signal::ctrl_c() => bail!("interrupted; the demo's server and folder are removed"),
        _ = terminate.recv() => bail!("told to stop; the demo's server and folder are removed"),
        _ = hangup.recv() => bail!("the terminal is gone; the demo's server and folder are removed"),
    }
}

async fn run_demo() -> anyhow::Result<()> {
    let began = Instant::now();
    let mut printer = Printer::new();
    let folder = TempDir::with_prefix("windlass-demo-").context("no temporary folder can be made")?;
    setup::write_files(folder.path())?;
    printer.title("Windlass demo: an agent is killed in the middle of its answer, and nothing is lost.")?;
    printer.line("Offline and without a key, in a temporary folder that is gone afterwards.")?;

    let server = DemoServer::start(folder.path()).await?;
    printer.title("1. A server starts")?;
    printer.line(&format!("process {}, {}, with a new database", server.pid(), server.base()))?;
    let api = Api::new(&server)?;
    let service = Service::new(&api);
    tokio::select! {
        result = run_steps(&mut printer, &api, &service, server, &folder) => result?,
        never = service.run() => match never {},
    }
    printer.title(&format!("Nothing was lost and nothing ran twice. That took {}.", seconds(began.elapsed())))?;
    printer.line("To try it yourself: windlass dev")?;
    Ok(())
}

/// The steps of the demo, while the tool service runs.
async fn run_steps(
    printer: &mut Printer,
    api: &Api,
    service: &Service<'_>,
    mut server: DemoServer,
    folder: &TempDir,
) -> anyhow::Result<()> {
    let mut follower = Follower::default();
    ask(printer, api, &mut follower).await.map_err(|error| beside_log(&error, &server))?;
    let broken_off = kill(printer, &mut server, &mut follower).await?;

    let restarted = Instant::now();
    let server = DemoServer::start(folder.path()).await?;
    api.move_to(&server);
    printer.title("4. A server starts again on the same data")?;
    printer.line(&format!("process {}, serving after {}", server.pid(), seconds(restarted.elapsed())))?;
    let resumed = read_rest(printer, api, &mut follower, broken_off).await.map_err(|error| beside_log(&error, &server))?;
    let stored = api.get(&format!("/v1/responses/{}", follower.id()?)).await?;
    let open = service.open_calls().await?;

    printer.title("5. What came of it")?;
    let checks = [
        check_numbers(&follower.received.numbers, broken_off, resumed),
        check_text(&follower.received, &stored),
        check_calls(service, &stored, &open),
    ];
    let mut failed = 0;
    for check in checks.into_iter().flatten() {
        failed += usize::from(!check.holds);
        printer.line(&format!("{} {}", if check.holds { "ok    " } else { "FAILED" }, check.text))?;
    }
    ensure!(failed == 0, "{failed} of the demo's promises did not hold\n{}", server.log_end());
    Ok(())
}

/// The error together with the end of the server's log.
fn beside_log(error: &anyhow::Error, server: &DemoServer) -> anyhow::Error {
    anyhow!("{error:#}\n{}", server.log_end())
}

/// Sends the question and reads the answer up to the middle of its text.
async fn ask(printer: &mut Printer, api: &Api, follower: &mut Follower) -> anyhow::Result<()> {
    printer.title("2. A client asks, and follows the answer as a stream of numbered events")?;
    printer.line(&format!("POST /v1/responses   \"{}\"", setup::QUESTION))?;
    printer.line("The model has two tools, served by this program. One only reads; the other writes, and must not run twice.\n")?;
    let body = json!({
        "model": setup::MODEL, "input": setup::QUESTION, "stream": true, "windlass": { "tools": [setup::READ, setup::WRITE] },
    });
    follower.stream = Some(Stream::open(api.post("/v1/responses", &body).await?));
    while follower.received.deltas < setup::DELTAS_BEFORE_KILL {
        let event = follower.next().await?.context("the answer was over before the server could be killed")?;
        show(printer, &event)?;
    }
    Ok(())
}

/// Kills the server and reads what it had already sent. Returns the number of the last event that arrived.
async fn kill(printer: &mut Printer, server: &mut DemoServer, follower: &mut Follower) -> anyhow::Result<u64> {
    let pid = server.pid();
    server.kill()?;
    // Data that was sent before the kill still arrives, then the connection breaks.
    while let Ok(Some(event)) = follower.next().await {
        show(printer, &event)?;
    }
    ensure!(!follower.received.is_done, "the answer was over before the server could be killed");
    let last = *follower.received.numbers.last().context("no event came before the kill")?;
    printer.title("3. kill -9, in the middle of the text")?;
    printer.line(&format!("process {pid} is dead, the stream has broken off, the last event that arrived was number {last}"))?;
    Ok(last)
}

/// Reads the rest of the stream. Returns the number of the first event that arrived.
async fn read_rest(printer: &mut Printer, api: &Api, follower: &mut Follower, after: u64) -> anyhow::Result<Option<u64>> {
    let path = format!("/v1/responses/{}?stream=true&starting_after={after}", follower.id()?);
    printer.line(&format!("GET {path}"))?;
    let asked = Instant::now();
    follower.stream = Some(Stream::open(api.get_response(&path).await?));
    let mut first = None;
    while let Some(event) = follower.next().await? {
        if first.is_none() {
            first = event["sequence_number"].as_u64();
            printer.line(&format!(
                "The first event came after {}. The model was asked again; what it repeated was left out.\n",
                seconds(asked.elapsed())
            ))?;
        }
        show(printer, &event)?;
    }
    Ok(first)
}

/// Prints tool calls as they finish, and the text as it arrives.
fn show(printer: &mut Printer, event: &Value) -> anyhow::Result<()> {
    let item = &event["item"];
    match event["type"].as_str() {
        Some("response.output_text.delta") => printer.delta(event["delta"].as_str().unwrap_or_default())?,
        Some("response.output_item.done") if item["type"] == "mcp_call" => {
            let text = |key: &str| item[key].as_str().unwrap_or_default();
            printer.line(&format!("{} {} -> {}", text("name"), text("arguments"), text("output")))?;
        }
        _ => {}
    }
    Ok(())
}

/// A claim and whether it holds.
struct Check {
    holds: bool,
    text: String,
}

fn check_numbers(numbers: &[u64], last: u64, resumed: Option<u64>) -> Vec<Check> {
    let next = resumed.map_or_else(|| "nothing".to_owned(), |number| number.to_string());
    let in_order = numbers.iter().copied().eq(0..numbers.len() as u64);
    vec![
        Check { holds: resumed == Some(last + 1), text: format!("the stream went on with the next number: after {last} came {next}") },
        Check {
            holds: in_order,
            text: format!("every number came once, in order: 0 to {}, over both connections", numbers.len().saturating_sub(1)),
        },
    ]
}

fn check_text(received: &Received, stored: &Value) -> Vec<Check> {
    let completed = received.last.as_deref() == Some("response.completed") && received.is_done && stored["status"] == "completed";
    let whole = received.text == setup::answer() && stored_text(stored) == received.text;
    let text = format!("the text is whole: {} characters, the same as in the stored response", received.text.chars().count());
    vec![Check { holds: completed, text: "the response is completed".to_owned() }, Check { holds: whole, text }]
}

fn check_calls(service: &Service<'_>, stored: &Value, open: &[String]) -> Vec<Check> {
    let asked = |tool: &str| items(stored, "mcp_call").filter(|item| item["name"] == tool && item["status"] == "completed").count();
    let once = |tool: &str| Check {
        holds: service.runs_of(tool) == 1 && asked(tool) == 1 && !open.iter().any(|name| name == tool),
        text: format!("{tool} was called once and ran {}", times(service.runs_of(tool))),
    };
    vec![once(setup::READ), once(setup::WRITE)]
}

fn items<'a>(stored: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    stored["output"].as_array().into_iter().flatten().filter(move |item| item["type"] == kind)
}

fn stored_text(stored: &Value) -> String {
    let parts = items(stored, "message").flat_map(|message| message["content"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["text"].as_str()).collect()
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(checks: &[Check]) -> usize {
        checks.iter().filter(|check| !check.holds).count()
    }

    #[test]
    fn a_lost_a_doubled_and_a_late_number_are_noticed() {
        assert_eq!(fails(&check_numbers(&[0, 1, 2, 3], 1, Some(2))), 0);
        assert_eq!(fails(&check_numbers(&[0, 1, 3], 1, Some(3))), 2);
        assert_eq!(fails(&check_numbers(&[0, 1, 1, 2], 1, Some(1))), 2);
        assert_eq!(fails(&check_numbers(&[0, 2, 1], 1, Some(2))), 1);
        assert_eq!(fails(&check_numbers(&[0, 1], 1, None)), 1);
    }

    #[test]
    fn a_text_with_a_hole_and_an_answer_without_an_end_are_noticed() {
        let stored = |text: &str, status: &str| {
            let message = json!({ "type": "message", "content": [{ "type": "output_text", "text": text }] });
            json!({ "status": status, "output": [message] })
        };
        let whole = Received { text: setup::answer(), last: Some("response.completed".into()), is_done: true, ..Received::default() };
        assert_eq!(fails(&check_text(&whole, &stored(&whole.text, "completed"))), 0);
        assert_eq!(fails(&check_text(&whole, &stored("Parcel", "completed"))), 1);
        assert_eq!(fails(&check_text(&whole, &stored(&whole.text, "failed"))), 1);
        let holed = Received { text: setup::answer().replacen("Ada", "", 1), ..whole };
        assert_eq!(fails(&check_text(&holed, &stored(&holed.text, "completed"))), 1);
    }
}
