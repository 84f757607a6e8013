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
//! timeout 1                                 the deadline of a call passed
//! lease_ended 1                             the lease of a tool service ended without a result
//! stop because                              a request to stop the run
//! taken over                                the owner was lost
//! panicked
//! answer record 1 success                   a person decides: also release 1, tell 1, unpark
//! at 1000                                   sets the clock
//! owed? expired? usage? iteration? head?    asks the run something
//! ```

use windlass_kernel::{AfterExecution, CallNumber, Spent, TaskStatus, Timestamp, Usage};

use super::setup::number;

/// One parsed line.
pub enum Line {
    At(Timestamp),
    Ask(Question),
    Happens(Asked),
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
pub enum Asked {
    Entered(Option<Wanted>),
    Reply { text: String, calls: Vec<Wanted>, usage: Usage },
    Failed { code: String, retry_ms: Option<u64>, spent: Spent, said: Option<String> },
    Report { call: CallNumber, status: TaskStatus, after: Option<AfterExecution> },
    Timeout(CallNumber),
    LeaseEnded(CallNumber),
    Stop { reason: String, said: Option<String> },
    Reasoned(String),
    Thoughtful { before: String, text: String, between: String, calls: Vec<Wanted> },
    Cut { words: String, lost: u64 },
    Quiet,
    TakeOver(Vec<Wanted>),
    TakenOver { lost: u64, said: Option<String> },
    Panicked,
    Record { call: CallNumber, status: TaskStatus },
    Release(CallNumber),
    Tell(CallNumber),
    Unpark,
}

/// A call as a script writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub tool: String,
    pub arguments: String,
}

pub fn parse(line: &str) -> Line {
    let (verb, rest) = line.split_once([' ', ':']).unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    match verb {
        "at" => Line::At(Timestamp(number(rest))),
        "owed?" => Line::Ask(Question::Owed),
        "expired?" => Line::Ask(Question::Expired),
        "usage?" => Line::Ask(Question::Usage),
        "iteration?" => Line::Ask(Question::Iteration),
        "head?" => Line::Ask(Question::Head),
        "entered" => Line::Happens(Asked::Entered(calls(rest).into_iter().next())),
        "reply" => Line::Happens(reply(line)),
        "failed" => Line::Happens(failed(rest)),
        "report" => Line::Happens(Asked::Report { call: call(words[0]), status: status(words[1]), after: words.get(2).map(|w| after(w)) }),
        "timeout" => Line::Happens(Asked::Timeout(call(rest))),
        "lease_ended" => Line::Happens(Asked::LeaseEnded(call(rest))),
        "stop" => {
            let (reason, said) = split_said(rest);
            Line::Happens(Asked::Stop { reason: reason.to_owned(), said })
        }
        "reasoned" => Line::Happens(Asked::Reasoned(rest.to_owned())),
        "thoughtful" => Line::Happens(thoughtful(rest)),
        "cut" => {
            let (words, lost) = split_lost(rest);
            Line::Happens(Asked::Cut { words: words.to_owned(), lost })
        }
        "quiet" => Line::Happens(Asked::Quiet),
        "takes" => Line::Happens(Asked::TakeOver(calls(rest))),
        "taken" => {
            let (body, said) = split_said(rest);
            Line::Happens(Asked::TakenOver { lost: split_lost(body).1, said })
        }
        "panicked" => Line::Happens(Asked::Panicked),
        "answer" => Line::Happens(decision(&words)),
        other => panic!("unknown line {other:?}"),
    }
}

fn reply(line: &str) -> Asked {
    let (body, usage) = split_usage(line);
    let body = body.trim_start_matches("reply").trim_start();
    let (text, wanted) = match body.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').expect("a closing quote"),
        None => ("", body),
    };
    Asked::Reply { text: text.to_owned(), calls: calls(wanted.trim_start_matches(':')), usage }
}

fn thoughtful(rest: &str) -> Asked {
    let mut parts = rest.split(" / ").map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    Asked::Thoughtful { before: next(), text: next(), between: next(), calls: calls(&next()) }
}

fn failed(rest: &str) -> Asked {
    let (body, said) = split_said(rest);
    let (body, lost) = split_lost(body);
    let (body, usage) = split_usage(body);
    let (code, again) = body.split_once(' ').expect("failed CODE retry MS, or failed CODE never");
    Asked::Failed { code: code.to_owned(), retry_ms: again.strip_prefix("retry ").map(number), spent: Spent { usage, lost }, said }
}

/// `… saying WORDS`: streamed text that is in no item yet.
fn split_said(text: &str) -> (&str, Option<String>) {
    match text.rsplit_once("saying ") {
        Some((before, said)) => (before.trim_end(), Some(said.to_owned())),
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
fn calls(text: &str) -> Vec<Wanted> {
    let mut depth = 0;
    let parts = text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).map(wanted).collect()
}

fn wanted(text: &str) -> Wanted {
    let (tool, arguments) = text.split_once('(').unwrap_or((text, "{})"));
    Wanted { tool: tool.into(), arguments: arguments.strip_suffix(')').expect("a closing parenthesis").into() }
}

fn decision(words: &[&str]) -> Asked {
    match words {
        ["record", number, rest @ ..] => {
            Asked::Record { call: call(number), status: rest.first().map_or(TaskStatus::Success, |w| status(w)) }
        }
        ["release", number] => Asked::Release(call(number)),
        ["tell", number] => Asked::Tell(call(number)),
        ["unpark"] => Asked::Unpark,
        other => panic!("unknown answer {other:?}"),
    }
}

fn call(word: &str) -> CallNumber {
    CallNumber(number(word.trim()))
}

fn status(word: &str) -> TaskStatus {
    TaskStatus::parse(word).unwrap_or_else(|| panic!("{word:?} is not a status"))
}

fn after(word: &str) -> AfterExecution {
    serde_json::from_value(word.into()).unwrap_or_else(|_| panic!("{word:?} is not a way to go on"))
}
