//! `windlass ls`: runs, newest first.

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Common, Done,
    client::CliError,
    run_id,
    text::{TextStyle, count, member, span, table, time, why},
};

const HEADINGS: [&str; 7] = ["RUN", "AGENT", "STATE", "ITER", "TOKENS", "AGE", "WHY"];
/// The index of the state's column.
const STATE: usize = 2;

#[derive(Args)]
pub(crate) struct LsArguments {
    /// Only runs in this state: queued, thinking, waiting, parked or ended.
    #[arg(long)]
    state: Option<String>,
    /// Only runs of this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only the child runs of this run: its id, the beginning of it, or @last.
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// At most this many, up to 200.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn ls(arguments: LsArguments) -> Result<Done, CliError> {
    let limit = arguments.limit.to_string();
    let client = arguments.common.client()?;
    let parent = match &arguments.parent {
        Some(run) => Some(run_id::resolve(&client, run).await?),
        None => None,
    };
    let (state, agent) = (arguments.state.as_deref(), arguments.agent.as_deref());
    let given = [("state", state), ("agent", agent), ("parent", parent.as_deref()), ("limit", Some(limit.as_str()))];
    let query: Vec<(&str, &str)> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let answer = client.get("/v1/windlass/runs", &query).await?;
    match arguments.common.json {
        true => println!("{}", answer.text),
        false => print!("{}", listed(&answer.json, Timestamp::now(), TextStyle::of_stdout())),
    }
    Ok(Done::Fully)
}

fn listed(list: &Value, now: Timestamp, style: TextStyle) -> String {
    let runs = list["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<&str> = runs.iter().filter_map(|run| run["run_id"].as_str()).collect();
    let digits = run_id::short(&ids);
    let rows: Vec<Vec<String>> = runs.iter().map(|run| row(run, digits, now)).collect();
    let mut text =
        table(&HEADINGS, &rows, |column, cell, padded| if column == STATE { style.state(cell, padded) } else { padded.to_owned() });
    if rows.is_empty() && list["next"].is_null() {
        "no runs\n".clone_into(&mut text);
    }
    text
}

fn row(run: &Value, digits: usize, now: Timestamp) -> Vec<String> {
    let id = member(run, "run_id");
    let agent = member(run, "agent_id");
    let tokens = [&run["usage"]["in"], &run["usage"]["out"], &run["usage"]["lost"]].iter().filter_map(|tokens| tokens.as_u64()).sum();
    vec![
        id.trim_start_matches("run_").chars().take(digits).collect(),
        // A run without a named agent has a head of its own, whose key would only repeat the run's id.
        if agent == id { "-".to_owned() } else { agent },
        member(run, "state"),
        run["iteration"].as_u64().map_or_else(|| "-".to_owned(), |iteration| iteration.to_string()),
        count(tokens),
        time(&run["created_at"]).map_or_else(|| "-".to_owned(), |at| span(at, now)),
        why(run, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_a_table() {
        let id = |digits: &str| format!("run_{digits}00000000000000000000");
        let list = json!({ "next": null, "runs": [
            { "run_id": id("0197f3aaaaaa"), "agent_id": "clerk", "state": "parked", "iteration": 3, "usage": { "in": 4000, "out": 100, "lost": 0 },
              "created_at": "1970-01-01T00:00:00Z", "wait": { "kind": "unknown_outcome", "what": "write_file" } },
            { "run_id": id("0197e8bbbbbb"), "agent_id": id("0197e8bbbbbb"), "state": "ended", "iteration": 1, "usage": { "in": 5, "out": 1, "lost": 0 },
              "created_at": "1970-01-01T00:00:00Z", "wait": null, "task_status": "success", "end_reason": "answered" },
        ] });
        let now = Timestamp::from_second(120).expect("a moment");
        let wanted = "RUN           AGENT  STATE   ITER  TOKENS  AGE  WHY\n\
                      0197f3aaaaaa  clerk  parked  3     4.1k    2m   write_file: outcome unknown\n\
                      0197e8bbbbbb  -      ended   1     6       2m   answered\n";
        assert_eq!(listed(&list, now, TextStyle::of_stdout()), wanted);
        assert_eq!(listed(&json!({ "runs": [], "next": null }), now, TextStyle::of_stdout()), "no runs\n");
    }
}
