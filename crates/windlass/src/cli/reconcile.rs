//! `windlass reconcile`: a person decides about a parked call.

use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Common, Done, client::CliError, run_id};

#[derive(Args)]
pub(crate) struct ReconcileArguments {
    /// The run: its id, the beginning of it, or @last.
    run: String,
    /// The call: its id as call_…, or its number in the run.
    call: String,
    #[command(flatten)]
    decision: Decision,
    /// How the recorded call ended.
    #[arg(long, requires = "record", value_parser = ["success", "failed"], default_value = "success")]
    status: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Decision {
    /// It ran, and this JSON is its result.
    #[arg(long, value_name = "JSON")]
    record: Option<String>,
    /// It may run, again if it did.
    #[arg(long)]
    run_again: bool,
    /// Report to the model that the outcome is unknown.
    #[arg(long)]
    tell: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    run_id: &'a str,
    tool_call_id: &'a str,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

pub(super) async fn reconcile(arguments: ReconcileArguments) -> Result<Done, CliError> {
    let Decision { record, run_again, .. } = &arguments.decision;
    let result: Option<Box<RawValue>> = match record {
        Some(text) => Some(
            serde_json::from_str(text)
                .map_err(|error| CliError::Usage(format!("--record takes JSON, such as '{{\"ok\":true}}' or '\"done\"': {error}")))?,
        ),
        None => None,
    };
    let action = match (&result, run_again) {
        (Some(_), _) => "record",
        (None, true) => "release",
        (None, false) => "tell",
    };
    let client = arguments.common.client()?;
    let run = run_id::resolve(&client, &arguments.run).await?;
    let call = call_id(&run, &arguments.call)?;
    let status = result.is_some().then_some(arguments.status.as_str());
    let body = Body { run_id: &run, tool_call_id: &call, action, status, result: result.as_deref() };
    let body = serde_json::to_string(&body).map_err(|error| CliError::Failed(error.to_string()))?;
    let answer = client.post("/v1/windlass/reconcile", body, &uuid::Uuid::now_v7().to_string()).await?;
    match arguments.common.json {
        true => println!("{}", answer.text),
        false => println!("{} {call}; the run goes on: windlass show {run}", done(action)),
    }
    Ok(Done::Fully)
}

fn done(action: &str) -> &'static str {
    match action {
        "record" => "recorded the result of",
        "release" => "released",
        _ => "the model is told that the outcome is unknown of",
    }
}

/// The id of a call, from its id or its number.
fn call_id(run: &str, call: &str) -> Result<String, CliError> {
    let is_number = call.parse::<u32>().is_ok_and(|number| number > 0);
    match (is_number, call.starts_with("call_")) {
        (true, _) => Ok(format!("call_{}_{call}", run.trim_start_matches("run_"))),
        (false, true) => Ok(call.to_owned()),
        (false, false) => {
            Err(CliError::Usage(format!("{call:?} is no call; name one as call_…, or by its number, as `windlass show` has them")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_its_number_or_its_id() {
        assert_eq!(call_id("run_0a", "2").ok().as_deref(), Some("call_0a_2"));
        assert_eq!(call_id("run_0a", "call_0a_2").ok().as_deref(), Some("call_0a_2"));
        for text in ["0", "-1", "pay", ""] {
            assert!(matches!(call_id("run_0a", text), Err(CliError::Usage(_))), "{text}");
        }
    }
}
