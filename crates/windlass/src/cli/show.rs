//! `windlass show`: one run, iteration by iteration.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Common, Done,
    client::{CliError, Client},
    run_id,
    text::{TextStyle, clean, clock, count, member, span, time, took, why},
};

/// Rows per request.
const PAGE_ROWS: &str = "1000";
/// Children per run that are shown at most.
const CHILDREN_ROWS: &str = "200";
/// Levels of child runs that are shown at most.
const LEVELS_MAX: usize = 8;
/// Pages of the journal and of the calls that are shown at most.
const PAGES_MAX: usize = 5;

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// The run: its id, the beginning of it, or @last.
    run: String,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn show(arguments: ShowArguments) -> Result<Done, CliError> {
    let client = arguments.common.client()?;
    let id = run_id::resolve(&client, &arguments.run).await?;
    let path = format!("/v1/windlass/runs/{id}");
    let run = client.get(&path, &[]).await?;
    if arguments.common.json {
        println!("{}", run.text);
    } else {
        let journal = pages(&client, &format!("{path}/journal"), "entries").await?;
        let calls = pages(&client, &format!("{path}/calls"), "calls").await?;
        print!("{}", shown(&run.json, &journal, &calls, Timestamp::now(), TextStyle::of_stdout()));
        print!("{}", tree(&client, &id, 1, TextStyle::of_stdout()).await?);
    }
    Ok(if run.json["state"] == "parked" { Done::WaitsForPerson } else { Done::Fully })
}

/// The lines of the runs below a run: each child with its own children below it, the first one first.
async fn tree(client: &Client, id: &str, level: usize, style: TextStyle) -> Result<String, CliError> {
    let page = client.get(&format!("/v1/windlass/runs/{id}/children"), &[("limit", CHILDREN_ROWS)]).await?.json;
    let mut text = String::new();
    for child in page["children"].as_array().into_iter().flatten().rev() {
        text += &child_line(child, level, style);
        if level < LEVELS_MAX {
            text += &Box::pin(tree(client, &member(child, "run_id"), level + 1, style)).await?;
        }
    }
    if !page["next"].is_null() {
        let _ = writeln!(text, "{:1$}… there are more children; see windlass ls --parent {id}", "", level * 2);
    }
    Ok(text)
}

fn child_line(child: &Value, level: usize, style: TextStyle) -> String {
    let (id, agent, state) = (member(child, "run_id"), member(child, "agent_id"), member(child, "state"));
    let outcome = child["task_status"].as_str().map_or(String::new(), |outcome| format!(" {outcome}"));
    format!("{:1$}child {id}  {agent}  {2}{outcome}\n", "", level * 2, style.state(&state, &state))
}

/// The rows of the first pages.
async fn pages(client: &Client, path: &str, name: &str) -> Result<Vec<Value>, CliError> {
    let (mut rows, mut from) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let mut query = vec![("limit", PAGE_ROWS)];
        query.extend(from.as_deref().map(|from| ("from", from)));
        let page = client.get(path, &query).await?.json;
        rows.extend(page[name].as_array().cloned().unwrap_or_default());
        match page["next"].as_u64() {
            Some(next) => from = Some(next.to_string()),
            None => break,
        }
    }
    Ok(rows)
}

/// The journal's entries about one iteration, summarised.
#[derive(Default)]
struct Iteration {
    started: Option<Value>,
    replied: Option<Value>,
    usage: Value,
    failures: Vec<String>,
    takeovers: usize,
}

fn shown(run: &Value, journal: &[Value], calls: &[Value], now: Timestamp, style: TextStyle) -> String {
    let mut text = heading(run, now, style);
    let mut iterations = iterations(journal);
    for call in calls {
        iterations.entry(call["iteration"].as_u64().unwrap_or(0)).or_default();
    }
    for (number, iteration) in &iterations {
        let of_iteration: Vec<&Value> = calls.iter().filter(|call| call["iteration"].as_u64() == Some(*number)).collect();
        text += &iteration_lines(*number, iteration, &of_iteration, style);
    }
    if run["state"] == "parked" {
        text += &decisions(run, calls);
    }
    text
}

fn heading(run: &Value, now: Timestamp, style: TextStyle) -> String {
    let (id, agent, state) = (member(run, "run_id"), member(run, "agent_id"), member(run, "state"));
    let agent = if agent == id { String::new() } else { format!("  {agent}") };
    let mut text = format!("{id}{agent}  {}", style.state(&state, &state));
    if let Some(since) = time(&run["wait"]["since"]) {
        let _ = write!(text, " {}", span(since, now));
    }
    let why = why(run, now);
    if !why.is_empty() {
        let _ = write!(text, ": {why}");
    }
    text.push('\n');
    if let Some(title) = run["title"].as_str() {
        let _ = writeln!(text, "{}", clean(title));
    }
    let tokens: u64 = ["tokens_in", "tokens_out", "lost"].iter().filter_map(|name| run["usage"][name].as_u64()).sum();
    let made = run["calls"]["made"].as_u64().unwrap_or(0);
    let created = time(&run["created_at"]).map(|at| span(at, now)).unwrap_or_default();
    let _ = writeln!(text, "model {}, {} tokens, {made} calls, accepted {created} ago", member(run, "model"), count(tokens));
    text
}

/// The iterations by number. Entries before the first one are left out.
fn iterations(journal: &[Value]) -> BTreeMap<u64, Iteration> {
    let mut found: BTreeMap<u64, Iteration> = BTreeMap::new();
    let mut current = None;
    for entry in journal {
        let event = &entry["event"];
        if let Some(number) = event["iteration"].as_u64() {
            current = Some(number);
        }
        let Some(iteration) = current.map(|number| found.entry(number).or_default()) else { continue };
        match event["kind"].as_str() {
            Some("lap_started") => iteration.started = Some(entry["at"].clone()),
            Some("replied") => {
                iteration.replied = Some(entry["at"].clone());
                iteration.usage = event["usage"].clone();
            }
            Some("attempt_failed") => iteration.failures.push(member(event, "code")),
            Some("taken_over") => iteration.takeovers += 1,
            Some(_) | None => {}
        }
    }
    found
}

fn iteration_lines(number: u64, iteration: &Iteration, calls: &[&Value], style: TextStyle) -> String {
    let mut text = format!("{number:>3} {}", iteration.started.as_ref().map(clock).unwrap_or_else(|| "        ".to_owned()));
    let started = iteration.started.as_ref().and_then(time);
    let replied = iteration.replied.as_ref().and_then(time);
    match started.zip(replied) {
        Some((started, replied)) => {
            let tokens = |name: &str| count(iteration.usage[name].as_u64().unwrap_or(0));
            let _ = write!(text, " model {} {}+{}", took(started, replied), tokens("in"), tokens("out"));
        }
        None if started.is_some() => text += " model",
        None => {}
    }
    if !iteration.failures.is_empty() {
        let _ = write!(text, "  failed tries: {}", iteration.failures.join(", "));
    }
    if iteration.takeovers > 0 {
        let _ = write!(text, "  takeovers: {}", iteration.takeovers);
    }
    text.push('\n');
    for call in calls {
        let _ = writeln!(text, "      {}", call_line(call, style));
    }
    text
}

fn call_line(call: &Value, style: TextStyle) -> String {
    let status = member(call, "status");
    let mut line = format!(
        "call {}  {}  {}  {}",
        call["number"].as_u64().unwrap_or(0),
        member(call, "tool"),
        member(call, "effect"),
        style.state(&status, &status)
    );
    if let Some(attempt @ 2..) = call["attempt"].as_u64() {
        let _ = write!(line, " x{attempt}");
    }
    if let Some(worker) = call["worker"].as_str() {
        let _ = write!(line, "  worker {}", clean(worker));
    }
    line
}

/// The commands with which a person can decide about the parked calls.
fn decisions(run: &Value, calls: &[Value]) -> String {
    let id = member(run, "run_id");
    let parked = calls.iter().filter(|call| call["status"] == "parked").filter_map(|call| call["number"].as_u64());
    parked.map(|number| format!("decide: windlass reconcile {id} {number} --record JSON | --run-again | --tell\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_child_is_shown_below_its_parent() {
        let child = json!({ "run_id": "run_0b", "agent_id": "helper", "state": "ended", "task_status": "success" });
        assert_eq!(child_line(&child, 2, TextStyle::of_stdout()), "    child run_0b  helper  ended success\n");
    }

    #[test]
    fn a_run_is_shown_by_iteration() {
        let at = |second: u32| format!("1970-01-01T00:00:{second:02}.000Z");
        let run = json!({
            "run_id": "run_0a", "agent_id": "clerk", "state": "parked", "title": "write it down", "model": "offline",
            "usage": { "tokens_in": 1000, "tokens_out": 50, "lost": 0 }, "calls": { "made": 2 }, "created_at": at(0),
            "wait": { "kind": "unknown_outcome", "what": "write_file", "since": at(30) },
        });
        let journal = [
            json!({ "at": at(0), "event": { "kind": "accepted" } }),
            json!({ "at": at(1), "event": { "kind": "lap_started", "iteration": 1 } }),
            json!({ "at": at(2), "event": { "kind": "attempt_failed", "code": "overloaded" } }),
            json!({ "at": at(3), "event": { "kind": "replied", "iteration": 1, "usage": { "in": 812, "out": 64 } } }),
            json!({ "at": at(4), "event": { "kind": "taken_over" } }),
            json!({ "at": at(5), "event": { "kind": "lap_started", "iteration": 2 } }),
        ];
        let call = |number: u32, iteration: u32, tool: &str, status: &str, attempt: u32, worker: Value| {
            let effect = if status == "parked" { "write" } else { "read" };
            json!({ "number": number, "iteration": iteration, "tool": tool, "effect": effect, "status": status, "attempt": attempt, "worker": worker })
        };
        let calls = [call(1, 1, "search", "applied", 2, Value::Null), call(2, 2, "write_file", "parked", 1, json!("w1"))];
        let now = Timestamp::from_second(150).expect("a moment");
        let wanted = "run_0a  clerk  parked 2m: write_file: outcome unknown\n\
                      write it down\n\
                      model offline, 1.0k tokens, 2 calls, accepted 2m ago\n  \
                      1 00:00:01 model 2.0s 812+64  failed tries: overloaded  takeovers: 1\n      \
                      call 1  search  read  applied x2\n  \
                      2 00:00:05 model\n      \
                      call 2  write_file  write  parked  worker w1\n\
                      decide: windlass reconcile run_0a 2 --record JSON | --run-again | --tell\n";
        assert_eq!(shown(&run, &journal, &calls, now, TextStyle::of_stdout()), wanted);
    }
}
