//! The format of scripts, and the choice of the reply to a request.

use std::{
    fmt,
    io::{self, Read},
    num::{NonZeroU32, NonZeroUsize},
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;
use windlass_kernel::{FailureCause, Finish, Usage};
use windlass_ports::{ModelError, Retry};

use crate::{conversation::ConversationEnd, failure, limits::SCRIPT_BYTES_MAX};

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {}: {source}", path.display())]
    Read {
        /// The script file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is larger than the limit for scripts.
    #[error("the script {} has more than {SCRIPT_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The script file.
        path: PathBuf,
    },
    /// The text is not a script.
    #[error("line {line} of the script: {message}")]
    Format {
        /// The line, counted from 1.
        line: u64,
        /// The message of the parser.
        message: String,
    },
}

/// Reads a script file.
pub(super) fn read(path: &Path) -> Result<String, ScriptError> {
    let failed = |source| ScriptError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut yaml = String::new();
    // One byte more than the limit distinguishes a script that is too large from one that just fits.
    let bytes = file.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut yaml).map_err(failed)?;
    if bytes as u64 > SCRIPT_BYTES_MAX {
        return Err(ScriptError::TooLarge { path: path.to_owned() });
    }
    Ok(yaml)
}

/// A whole script.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawScript")]
pub(super) struct Script {
    rules: Vec<Rule>,
    iterations: Vec<Reply>,
}

impl Script {
    /// Parses a script. An error names the line.
    pub(super) fn parse(yaml: &str) -> Result<Self, ScriptError> {
        serde_saphyr::from_str(yaml).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().map_or(1, |location| location.line());
            let text = error.to_string();
            // The parser's message ends with the position, which the error has already.
            let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
            ScriptError::Format { line, message }
        })
    }

    /// The reply to the conversation in this iteration.
    pub(super) fn reply(&self, conversation: &ConversationEnd, iteration: u32) -> Result<&Reply, ModelError> {
        let ruled = self.rules.iter().find(|rule| rule.when.fits(conversation, iteration)).map(|rule| &rule.reply);
        let listed = || self.iterations.get(usize::try_from(iteration.checked_sub(1)?).ok()?);
        ruled.or_else(listed).ok_or_else(|| {
            let message = format!("the script has no reply for iteration {iteration} of this input");
            failure::failure("script_ended".into(), FailureCause::Other, message, Retry::Never)
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScript {
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(rename = "laps", default)]
    iterations: Vec<Reply>,
}

impl TryFrom<RawScript> for Script {
    type Error = &'static str;

    fn try_from(RawScript { rules, iterations }: RawScript) -> Result<Self, Self::Error> {
        if rules.is_empty() && iterations.is_empty() {
            return Err("a script needs `rules` or `laps`");
        }
        Ok(Script { rules, iterations })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    when: When,
    reply: Reply,
}

/// The conditions of a rule. All that are given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "RawWhen")]
struct When {
    input: Option<String>,
    iteration: Option<NonZeroU32>,
    result: Option<String>,
}

impl When {
    fn fits(&self, conversation: &ConversationEnd, iteration: u32) -> bool {
        let has_input = |part: &String| conversation.input.as_ref().is_some_and(|input| input.contains(part));
        let has_result = |part: &String| conversation.results.iter().any(|(_, output)| output.contains(part));
        self.input.as_ref().is_none_or(has_input)
            && self.iteration.is_none_or(|wanted| wanted.get() == iteration)
            && self.result.as_ref().is_none_or(has_result)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWhen {
    input: Option<String>,
    iteration: Option<NonZeroU32>,
    result: Option<String>,
    any: Option<bool>,
}

impl TryFrom<RawWhen> for When {
    type Error = &'static str;

    fn try_from(RawWhen { input, iteration, result, any }: RawWhen) -> Result<Self, Self::Error> {
        match any {
            Some(false) => Err("`any` can only be true"),
            Some(true) if input.is_some() || iteration.is_some() || result.is_some() => Err("`any` stands alone"),
            Some(true) | None => Ok(When { input, iteration, result }),
        }
    }
}

/// One answer and its timing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    /// The reasoning before the text.
    #[serde(default)]
    pub(super) think: Option<String>,
    #[serde(default)]
    pub(super) text: String,
    #[serde(default)]
    pub(super) calls: Vec<Call>,
    /// `None` counts the tokens from lengths.
    #[serde(default)]
    pub(super) usage: Option<Tokens>,
    /// Why the answer stops short, if it does.
    #[serde(default)]
    pub(super) finish: Option<Stop>,
    #[serde(default)]
    pub(super) delay_ms: u64,
    #[serde(default)]
    pub(super) chunk: Option<NonZeroUsize>,
    #[serde(default)]
    pub(super) chunk_delay_ms: u64,
    #[serde(default)]
    pub(super) fail: Option<Fail>,
    #[serde(default)]
    pub(super) cut_after: Option<Cut>,
}

/// Why an answer stops short.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stop {
    Length,
    ContentFilter,
}

impl From<Stop> for Finish {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Length => Finish::OutOfTokens,
            Stop::ContentFilter => Finish::Filtered,
        }
    }
}

/// One call of a tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    #[serde(default)]
    arguments: Option<Value>,
}

impl Call {
    /// A call with these arguments, sent as they are.
    pub(super) fn verbatim(tool: &str, arguments: String) -> Self {
        Call { tool: tool.to_owned(), arguments: Some(Value::String(arguments)) }
    }

    /// The arguments as the model would write them.
    pub(super) fn arguments(&self) -> String {
        match &self.arguments {
            None => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }
}

/// Tokens as a script spells them. The kernel's own type would let misspelled keys through.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tokens {
    #[serde(rename = "in", default)]
    tokens_in: u64,
    #[serde(rename = "out", default)]
    tokens_out: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    cache_written: u64,
    #[serde(default)]
    reasoning: u64,
}

impl From<Tokens> for Usage {
    fn from(Tokens { tokens_in, tokens_out, cached, cache_written, reasoning }: Tokens) -> Self {
        Usage { tokens_in, tokens_out, cached, cache_written, reasoning }
    }
}

/// A failure instead of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    #[serde(deserialize_with = "error_status")]
    pub(super) code: u16,
    #[serde(default = "Fail::default_message")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) retry_after_ms: Option<u64>,
    /// The number of attempts of an iteration that fail; `None` is all.
    #[serde(default)]
    pub(super) times: Option<u32>,
}

impl Fail {
    pub(super) fn default_message() -> String {
        "the script says so".to_owned()
    }
}

/// A stream that breaks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The number of chunks before the stream breaks.
    pub(super) chunks: usize,
    /// The number of attempts of an iteration that are cut; `None` is all.
    pub(super) times: Option<u32>,
}

/// Whether a fault that affects the first `times` attempts affects this one. Attempts count from 1.
pub(super) fn affects(times: Option<u32>, attempt: u32) -> bool {
    times.is_none_or(|times| attempt <= times)
}

fn error_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let code = u16::deserialize(deserializer)?;
    let is_error = (400..600).contains(&code);
    is_error.then_some(code).ok_or_else(|| de::Error::custom("`code` must be an HTTP status from 400 to 599"))
}

impl<'de> Deserialize<'de> for Cut {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CutVisitor)
    }
}

/// Reads a bare number or a mapping. An untagged enum would lose the line of an error.
struct CutVisitor;

impl<'de> Visitor<'de> for CutVisitor {
    type Value = Cut;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of pieces, or `{ chunks, times }`")
    }

    fn visit_u64<E: de::Error>(self, chunks: u64) -> Result<Cut, E> {
        usize::try_from(chunks).map(|chunks| Cut { chunks, times: None }).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, chunks: i64) -> Result<Cut, E> {
        usize::try_from(chunks).map(|chunks| Cut { chunks, times: None }).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cut, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Spelled {
            chunks: usize,
            #[serde(default)]
            times: Option<u32>,
        }
        let Spelled { chunks, times } = Spelled::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Cut { chunks, times })
    }
}
