//! The lines of a script:
//!
//! ```text
//! entered                                   a worker entered the run
//! entered: pay({"sum":5})                   … which is an action
//! reply "text"                              the model answered
//! reply "text": look, pay({}) using 100+20  … and requests calls; tokens in + out
//! reasoned a thought                        the model finished a piece of reasoning and is about to write
//! thoughtful a / text / b / look            it answered, with reasoning before its text and between its text and its calls
//! failed rate_limited retry 500             an attempt failed, and the next one starts in 500 ms
//! failed refused never using 7+0            … or no other attempt is made
//! failed cut retry 500 losing 9             … and its provider reported no tokens; a cut and a takeover may lose tokens, too
//! report 1 success                          a tool's result
//! report 2 failed terminate                 … which says what follows
//! report 1 success below 50                 … of a child run, which used 50 tokens
//! begun 1                                   the child run of a call is on record
//! stale 1                                   … a success of the try before the present one
//! due 1                                     the pause before a repetition is over
//! timeout 1                                 the deadline of a call passed
//! lease_ended 1                             the lease of a tool service ended without a result
//! stop because                              a request to stop the run
//! taken over                                the owner was lost
//! takes look, pay as approved               a run begins with calls that an earlier run left, and what the client answered to it:
//!                                           approved, rejected WHY, unanswered; or tainted, if that run was
//! panicked
//! steer                                     a client gives the run another instruction
//! answer record 1 success                   a person decides: also say 1, release 1, tell 1, resume, end, raise 9, approve 1 by ann,
//!                                           approve 1 unseen, edit 1 by ann, edit 1 unseen, reject 1 why; timeout 1 is the end of the wait
//! at 1000                                   sets the clock
//! owed? expired? usage? iteration? head?    asks the run something
//! ```

use windlass_kernel::{AfterExecution, CallNumber, Remote, Spent, TaskStatus, Timestamp, ToolAddress, Usage, content::ClientAnswer};

use super::setup::number;

/// One parsed line.
pub enum Line {
    At(Timestamp),
    Ask(Question),
    Happens(ScriptedInput),
}

#[derive(Clone, Copy)]
pub enum Question {
    Owed,
    Expired,
    Usage,
    Iteration,
    Head,
}

/// An input to the run, before the driver gives it ids and times.
#[derive(Clone, Debug)]
pub enum ScriptedInput {
    Entered(Option<ScriptedCall>),
    Reply { text: String, calls: Vec<ScriptedCall>, usage: Usage },
    Failed { code: String, retry_ms: Option<u64>, spent: Spent, streamed: Option<String> },
    Report { call: CallNumber, status: TaskStatus, after: Option<AfterExecution>, below: Option<u64> },
    Begun(CallNumber),
    Timeout(CallNumber),
    LeaseEnded(CallNumber),
    Stale(CallNumber),
    RetryDue(CallNumber),
    Stop { reason: String, streamed: Option<String> },
    Reasoned(String),
    Thoughtful { before: String, text: String, between: String, calls: Vec<ScriptedCall> },
    Cut { text: String, lost: u64 },
    Quiet,
    TakeOver(Vec<LeftCall>),
    TakenOver { lost: u64, streamed: Option<String> },
    Panicked,
    Record { call: CallNumber, status: TaskStatus },
    Say(CallNumber),
    Release(CallNumber),
    Tell(CallNumber),
    Resume,
    Approve { call: CallNumber, by: Option<String> },
    ApproveUnseen(CallNumber),
    Edit { call: CallNumber, by: Option<String>, is_seen: bool },
    Reject { call: CallNumber, comment: String },
    EndByAnswer,
    Raise(u64),
    InterruptTimeout(CallNumber),
    Steer,
}

/// A call that an earlier run left, as a script writes it.
#[derive(Clone, Debug)]
pub struct LeftCall {
    pub call: ScriptedCall,
    pub answer: Option<ClientAnswer>,
    /// The server for which the client answered.
    pub address: Option<ToolAddress>,
    pub tainted: bool,
}

/// A call as a script writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedCall {
    pub tool: String,
    pub arguments: String,
}

pub fn parse(line: &str) -> Line {
    let (verb, rest) = line.split_once([' ', ':']).unwrap_or((line, ""));
    let parts: Vec<&str> = rest.split_whitespace().collect();
    match verb {
        "at" => Line::At(Timestamp(number(rest))),
        "owed?" => Line::Ask(Question::Owed),
        "expired?" => Line::Ask(Question::Expired),
        "usage?" => Line::Ask(Question::Usage),
        "iteration?" => Line::Ask(Question::Iteration),
        "head?" => Line::Ask(Question::Head),
        "entered" => Line::Happens(ScriptedInput::Entered(calls(rest).into_iter().next())),
        "reply" => Line::Happens(reply(line)),
        "failed" => Line::Happens(failed(rest)),
        "report" => {
            let below = parts.get(2).filter(|word| **word == "below").and_then(|_| parts.get(3)).map(|tokens| number(tokens));
            let after = parts.get(2).filter(|_| below.is_none()).map(|w| after(w));
            Line::Happens(ScriptedInput::Report { call: call(parts[0]), status: status(parts[1]), after, below })
        }
        "begun" => Line::Happens(ScriptedInput::Begun(call(rest))),
        "stale" => Line::Happens(ScriptedInput::Stale(call(rest))),
        "due" => Line::Happens(ScriptedInput::RetryDue(call(rest))),
        "timeout" => Line::Happens(ScriptedInput::Timeout(call(rest))),
        "lease_ended" => Line::Happens(ScriptedInput::LeaseEnded(call(rest))),
        "stop" => {
            let (reason, streamed) = split_streamed(rest);
            Line::Happens(ScriptedInput::Stop { reason: reason.to_owned(), streamed })
        }
        "reasoned" => Line::Happens(ScriptedInput::Reasoned(rest.to_owned())),
        "thoughtful" => Line::Happens(thoughtful(rest)),
        "cut" => {
            let (text, lost) = split_lost(rest);
            Line::Happens(ScriptedInput::Cut { text: text.to_owned(), lost })
        }
        "quiet" => Line::Happens(ScriptedInput::Quiet),
        "takes" => Line::Happens(ScriptedInput::TakeOver(rest.split(", ").map(left_call).collect())),
        "taken" => {
            let (body, streamed) = split_streamed(rest);
            Line::Happens(ScriptedInput::TakenOver { lost: split_lost(body).1, streamed })
        }
        "steer" => Line::Happens(ScriptedInput::Steer),
        "panicked" => Line::Happens(ScriptedInput::Panicked),
        "answer" => Line::Happens(decision(&parts)),
        other => panic!("unknown line {other:?}"),
    }
}

fn reply(line: &str) -> ScriptedInput {
    let (body, usage) = split_usage(line);
    let body = body.trim_start_matches("reply").trim_start();
    let (text, wanted) = match body.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').expect("a closing quote"),
        None => ("", body),
    };
    ScriptedInput::Reply { text: text.to_owned(), calls: calls(wanted.trim_start_matches(':')), usage }
}

fn thoughtful(rest: &str) -> ScriptedInput {
    let mut parts = rest.split(" / ").map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    ScriptedInput::Thoughtful { before: next(), text: next(), between: next(), calls: calls(&next()) }
}

fn failed(rest: &str) -> ScriptedInput {
    let (body, streamed) = split_streamed(rest);
    let (body, lost) = split_lost(body);
    let (body, usage) = split_usage(body);
    let (code, again) = body.split_once(' ').expect("failed CODE retry MS, or failed CODE never");
    ScriptedInput::Failed {
        code: code.to_owned(),
        retry_ms: again.strip_prefix("retry ").map(number),
        spent: Spent { usage, lost },
        streamed,
    }
}

/// `… saying WORDS`: streamed text that is in no item yet.
fn split_streamed(text: &str) -> (&str, Option<String>) {
    match text.rsplit_once("saying ") {
        Some((before, streamed)) => (before.trim_end(), Some(streamed.to_owned())),
        None => (text, None),
    }
}

/// `… losing TOKENS`: estimated tokens that no provider reported.
fn split_lost(text: &str) -> (&str, u64) {
    text.rsplit_once(" losing ").map_or((text, 0), |(body, tokens)| (body, number(tokens)))
}

fn split_usage(text: &str) -> (&str, Usage) {
    let Some((body, tokens)) = text.rsplit_once(" using ") else {
        return (text, Usage::default());
    };
    let (tokens_in, tokens_out) = tokens.split_once('+').expect("tokens are IN+OUT");
    (body, Usage { tokens_in: number(tokens_in), tokens_out: number(tokens_out), ..Usage::default() })
}

/// `look, pay({"sum":5})`: commas inside parentheses belong to the arguments, which are `{}` unless given.
fn calls(text: &str) -> Vec<ScriptedCall> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).map(wanted).collect()
}

/// `pay({}) as rejected too much`, `pay as approved`, `pay as approved at bank`, `pay as unanswered`, or `pay as tainted`.
fn left_call(text: &str) -> LeftCall {
    let (text, what) = text.split_once(" as ").unwrap_or((text, ""));
    let answer = match what.split_once(' ').unwrap_or((what, "")) {
        ("approved", _) => Some(ClientAnswer::Approved),
        ("rejected", reason) => Some(ClientAnswer::Rejected { reason: reason.to_owned() }),
        ("unanswered", "") => Some(ClientAnswer::Missing),
        _ => None,
    };
    let call = wanted(text.trim());
    let at = |server: &str| ToolAddress { remote: Remote { server: server.into(), name: call.tool.clone() }, url: None };
    LeftCall { answer, address: what.strip_prefix("approved at ").map(at), tainted: what == "tainted", call }
}

fn wanted(text: &str) -> ScriptedCall {
    let (tool, arguments) = text.split_once('(').unwrap_or((text, "{})"));
    ScriptedCall { tool: tool.into(), arguments: arguments.strip_suffix(')').expect("a closing parenthesis").into() }
}

fn decision(parts: &[&str]) -> ScriptedInput {
    match parts {
        ["record", number, rest @ ..] => {
            ScriptedInput::Record { call: call(number), status: rest.first().map_or(TaskStatus::Success, |w| status(w)) }
        }
        ["say", number] => ScriptedInput::Say(call(number)),
        ["release", number] => ScriptedInput::Release(call(number)),
        ["tell", number] => ScriptedInput::Tell(call(number)),
        ["resume"] => ScriptedInput::Resume,
        ["approve", number] => ScriptedInput::Approve { call: call(number), by: None },
        ["approve", number, "by", name] => ScriptedInput::Approve { call: call(number), by: Some((*name).to_owned()) },
        ["approve", number, "unseen"] => ScriptedInput::ApproveUnseen(call(number)),
        ["edit", number] => ScriptedInput::Edit { call: call(number), by: None, is_seen: true },
        ["edit", number, "unseen"] => ScriptedInput::Edit { call: call(number), by: None, is_seen: false },
        ["edit", number, "by", name] => ScriptedInput::Edit { call: call(number), by: Some((*name).to_owned()), is_seen: true },
        ["reject", number, comment @ ..] => ScriptedInput::Reject { call: call(number), comment: comment.join(" ") },
        ["end"] => ScriptedInput::EndByAnswer,
        ["raise", limit] => ScriptedInput::Raise(number(limit)),
        ["timeout", number] => ScriptedInput::InterruptTimeout(call(number)),
        other => panic!("unknown answer {other:?}"),
    }
}

fn call(text: &str) -> CallNumber {
    CallNumber(number(text.trim()))
}

fn status(text: &str) -> TaskStatus {
    TaskStatus::parse(text).unwrap_or_else(|| panic!("{text:?} is not a status"))
}

fn after(text: &str) -> AfterExecution {
    serde_json::from_value(text.into()).unwrap_or_else(|_| panic!("{text:?} is not what may follow a result"))
}
