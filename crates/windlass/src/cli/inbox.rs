//! `windlass inbox`: what waits for a person, and the commands that answer it.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Common, Done,
    client::{CliError, Client},
    last_inbox,
    text::{TextStyle, clean, member, span, table, time},
};

const HEADINGS: [&str; 7] = ["#", "CAUSE", "AGENT", "TOOL", "AGE", "LEFT", "ARGUMENTS"];

/// The characters of the arguments that a row shows.
const ARGUMENTS_CHARS: usize = 60;

#[derive(Args)]
pub(crate) struct InboxArguments {
    /// Lists answered interrupts too.
    #[arg(long)]
    all: bool,
    /// At most this many, up to 200.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct AnswerArguments {
    /// The interrupt: its id as int_…, or its number in the last `windlass inbox`.
    interrupt: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct ApproveArguments {
    /// The interrupt: its id as int_…, or its number in the last `windlass inbox`.
    interrupt: String,
    /// A file with other arguments for the call, as a JSON object: the call is approved with them. `-` reads the standard input.
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct RejectArguments {
    /// The interrupt: its id as int_…, or its number in the last `windlass inbox`.
    interrupt: String,
    /// What the model reads about the rejection.
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct RaiseArguments {
    /// The interrupt: its id as int_…, or its number in the last `windlass inbox`.
    interrupt: String,
    /// The new limit: a number of iterations, calls or tokens, or milliseconds of wall time.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub(crate) struct AnswerQuestionArguments {
    /// The question: its id as int_…, or its number in the last `windlass inbox`.
    interrupt: String,
    /// The answer, as text.
    #[arg(required_unless_present = "value", conflicts_with = "value")]
    answer: Option<String>,
    /// The answer as JSON, for a question that wants a number, a list or an object.
    #[arg(long, value_name = "JSON")]
    value: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn inbox(arguments: InboxArguments) -> Result<Done, CliError> {
    let limit = arguments.limit.to_string();
    let state = if arguments.all { "all" } else { "open" };
    let answer = arguments.common.client()?.get("/v1/windlass/interrupts", &[("state", state), ("limit", limit.as_str())]).await?;
    let interrupts = answer.json["interrupts"].as_array().map(Vec::as_slice).unwrap_or_default();
    last_inbox::save(interrupts.iter().filter_map(|interrupt| interrupt["interrupt_id"].as_str()));
    match arguments.common.json {
        true => println!("{}", answer.text),
        false => print!("{}", listed(interrupts, Timestamp::now(), TextStyle::of_stdout())),
    }
    let waits = interrupts.iter().any(|interrupt| interrupt["actions"].as_array().is_some_and(|actions| !actions.is_empty()));
    Ok(if waits { Done::WaitsForPerson } else { Done::Fully })
}

pub(super) async fn approve(arguments: ApproveArguments) -> Result<Done, CliError> {
    let body = match &arguments.edit {
        None => json!({ "action": "approve" }),
        Some(file) => json!({ "action": "edit", "arguments": edited(file)? }),
    };
    decide(&arguments.interrupt, body, &arguments.common).await
}

/// The arguments in a file. The server checks whether they fit the tool.
fn edited(file: &Path) -> Result<Value, CliError> {
    let text = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| CliError::Usage(format!("cannot read {}: {error}", file.display())))?;
    serde_json::from_str(&text).map_err(|error| CliError::Usage(format!("{} has no JSON object: {error}", file.display())))
}

pub(super) async fn reject(arguments: RejectArguments) -> Result<Done, CliError> {
    let mut body = json!({ "action": "reject" });
    if let Some(comment) = &arguments.comment {
        body["comment"] = comment.as_str().into();
    }
    decide(&arguments.interrupt, body, &arguments.common).await
}

pub(super) async fn answer(arguments: AnswerQuestionArguments) -> Result<Done, CliError> {
    let answer = match &arguments.value {
        Some(json) => serde_json::from_str(json).map_err(|error| CliError::Usage(format!("--value is not JSON: {error}")))?,
        None => Value::from(arguments.answer.clone().unwrap_or_default()),
    };
    decide(&arguments.interrupt, json!({ "action": "answer", "answer": answer }), &arguments.common).await
}

pub(super) async fn resume(arguments: AnswerArguments) -> Result<Done, CliError> {
    decide(&arguments.interrupt, json!({ "action": "resume" }), &arguments.common).await
}

pub(super) async fn raise(arguments: RaiseArguments) -> Result<Done, CliError> {
    decide(&arguments.interrupt, json!({ "action": "raise", "limit": arguments.limit }), &arguments.common).await
}

pub(super) async fn end(arguments: AnswerArguments) -> Result<Done, CliError> {
    decide(&arguments.interrupt, json!({ "action": "end" }), &arguments.common).await
}

async fn decide(interrupt: &str, mut body: Value, common: &Common) -> Result<Done, CliError> {
    let id = last_inbox::resolve(interrupt)?;
    let client = common.client()?;
    body["shows"] = shown(&client, &id).await?;
    let answer = client.post(&format!("/v1/windlass/interrupts/{id}"), body.to_string(), &uuid::Uuid::now_v7().to_string()).await?;
    match common.json {
        true => println!("{}", answer.text),
        false => println!("{}", receipt(&answer.json)),
    }
    Ok(Done::Fully)
}

/// The item that the interrupt shows now. The answer names it, so that it counts only for these arguments.
async fn shown(client: &Client, id: &str) -> Result<Value, CliError> {
    let found = client.get(&format!("/v1/windlass/interrupts/{id}"), &[]).await?;
    Ok(found.json["shows"].clone())
}

fn receipt(answer: &Value) -> String {
    let (id, action, by) = (member(answer, "interrupt_id"), member(answer, "action"), member(answer, "by"));
    match answer["remaining"].as_u64().filter(|remaining| *remaining > 0) {
        Some(remaining) => format!("{action} {id} by {by}; {remaining} more must approve"),
        None => format!("{action} {id} by {by}"),
    }
}

fn listed(interrupts: &[Value], now: Timestamp, style: TextStyle) -> String {
    if interrupts.is_empty() {
        return "nothing waits for a person\n".to_owned();
    }
    let rows: Vec<Vec<String>> = interrupts.iter().enumerate().map(|(index, interrupt)| row(index + 1, interrupt, now)).collect();
    let mut text = table(&HEADINGS, &rows, |_, _, padded| style.state("", padded));
    text.push_str("\nanswer with: windlass approve N [--edit FILE], reject N [--comment TEXT], answer N TEXT, raise N LIMIT, resume N, end N; for an unknown outcome: windlass reconcile RUN CALL\n");
    text
}

fn row(number: usize, interrupt: &Value, now: Timestamp) -> Vec<String> {
    let given = &interrupt["arguments"];
    let budget = &interrupt["budget"];
    let arguments = match given {
        Value::Null if budget.is_object() => format!("{}: {} of {}", member(budget, "kind"), budget["used"], budget["limit"]),
        Value::Null => member(interrupt, "run_id"),
        Value::String(text) => clean(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => clean(&given.to_string()),
    };
    vec![
        number.to_string(),
        member(interrupt, "cause"),
        member(interrupt, "agent_id"),
        member(interrupt, "tool"),
        time(&interrupt["created_at"]).map_or_else(|| "-".to_owned(), |at| span(at, now)),
        time(&interrupt["until"]).map_or_else(|| "-".to_owned(), |until| span(now, until)),
        arguments.chars().take(ARGUMENTS_CHARS).collect(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inbox_is_a_table_with_the_arguments() {
        let interrupts = [
            json!({ "interrupt_id": "int_0a_5", "cause": "approval", "agent_id": "clerk", "tool": "pay", "created_at": "1970-01-01T00:00:00Z",
                    "until": "1970-01-01T00:05:00Z", "arguments": { "sum": 5 }, "actions": ["approve"] }),
            json!({ "interrupt_id": "int_0b_9", "cause": "panicked", "agent_id": "run_0b", "run_id": "run_0b", "tool": null,
                    "created_at": "1970-01-01T00:01:00Z", "until": null, "arguments": null, "actions": ["resume"] }),
        ];
        let now = Timestamp::from_second(120).expect("a moment");
        let text = listed(&interrupts, now, TextStyle::of_stdout());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "#  CAUSE     AGENT   TOOL  AGE  LEFT  ARGUMENTS");
        assert_eq!(lines[1], "1  approval  clerk   pay   2m   3m    {\"sum\":5}");
        assert_eq!(lines[2], "2  panicked  run_0b  -     1m   -     run_0b");
        assert_eq!(listed(&[], now, TextStyle::of_stdout()), "nothing waits for a person\n");
    }

    #[test]
    fn a_receipt_says_who_must_still_approve() {
        let answer = json!({ "interrupt_id": "int_0a_5", "action": "approve", "by": "ann", "remaining": 1 });
        assert_eq!(receipt(&answer), "approve int_0a_5 by ann; 1 more must approve");
        assert_eq!(
            receipt(&json!({ "interrupt_id": "int_0a_5", "action": "reject", "by": "bob", "remaining": 0 })),
            "reject int_0a_5 by bob"
        );
    }
}
