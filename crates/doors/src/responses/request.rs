//! Parses and validates the body of `POST /v1/responses`.
//!
//! Every known field is checked for its type and range, so that no request can cause an internal error later. Unknown fields, item types
//! and tool types are accepted without a check: clients are always ahead of the contract.

mod choice;
mod conversation;
mod items;
mod limits;
mod mcp;
mod object;
mod sampling;
mod sound;
#[cfg(test)]
mod tests;
mod tools;

use std::collections::BTreeMap;

use serde_json::{Value, value::RawValue};

pub(crate) use choice::{Allowed, Choice};
pub(crate) use conversation::{Begin, read_items, read_metadata};
pub(crate) use limits::ITEMS_MAX;
pub(crate) use mcp::{Approval, Mcp, ToolFilter};
pub(crate) use sampling::Sampling;
pub(crate) use tools::{CUSTOM_INPUT, ClientName, Function, Hosted, Tool, adds_tools};

use crate::responses::{create::agent_of, error::WireError, join::TURN_METADATA};
use choice::Chosen;
use limits::{ALLOWED_MAX, INCLUDE_MAX, NAME_CHARS_MAX, NUMBER_MAX, OUTPUT_TOKENS_MIN, TURNS_MAX, WALL_S_MAX};
use object::{At, Object, Shape};
use tools::RequestTools;

/// A validated request for a response. It has no `Debug`, because it contains secrets of tool servers.
pub(crate) struct Create {
    pub model: Option<String>,
    /// The input items, each an object as the client sent it.
    pub input: Vec<Box<RawValue>>,
    /// Whether the request asks for a summary of the conversation and for nothing else.
    pub compacts: bool,
    pub instructions: Option<String>,
    /// The id of the response that it continues.
    pub previous: Option<String>,
    /// The id of the conversation that it belongs to. Never set together with `previous`.
    pub conversation: Option<String>,
    pub store: bool,
    pub background: bool,
    pub stream: bool,
    /// The tools, with namespaces flattened in place.
    pub tools: Vec<Tool>,
    /// The client's names of functions that the model knows by another name, or that take a text, by the model's name.
    pub client_names: BTreeMap<String, ClientName>,
    /// RequestTools that only OpenAI's own servers run.
    pub hosted: Vec<Hosted>,
    /// Whether `client_metadata` has Codex's turn metadata, which is a header over HTTP but not on a socket.
    pub has_codex_metadata: bool,
    pub choice: Choice,
    /// The only tools that may be called; empty means all.
    pub allowed: Vec<Allowed>,
    pub parallel_tool_calls: bool,
    pub max_tool_calls: Option<u32>,
    pub max_output_tokens: Option<u64>,
    pub max_turns: Option<u32>,
    pub budget_tokens: Option<u64>,
    pub budget_wall_ms: Option<u64>,
    /// The configured tools and tool servers that it may use.
    pub server_tools: Vec<String>,
    pub sampling: Sampling,
    pub metadata: BTreeMap<String, String>,
    /// The additions to the output that it asks for. May have unknown values.
    pub include: Vec<String>,
    pub echo: Echo,
}

/// A frame that asks for a response.
pub(crate) struct Frame {
    pub create: Create,
    /// Whether the model is asked. If not, the frame is a warm-up: it only sends input that a later frame continues.
    pub generate: bool,
}

/// How the response is delivered.
struct DeliveryMode {
    stream: bool,
    background: bool,
}

/// Fields of the request in the form in which the response repeats them.
pub(crate) struct Echo {
    pub tools: Vec<Value>,
    pub tool_choice: Value,
    pub text: Value,
    pub reasoning: Value,
}

impl Create {
    /// Parses a body. Every error is a 400 that says what to change.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        let body = Object::of(sound::sound(body)?, &At::Body)?;
        let mode = DeliveryMode { stream: body.flag("stream")?.unwrap_or(false), background: body.flag("background")?.unwrap_or(false) };
        Self::of(&body, mode, true)
    }

    /// Parses the body of `POST /v1/responses/compact`. The fields of a response are accepted and checked too, and apply where they make
    /// sense.
    pub fn read_compaction(body: &[u8]) -> Result<Self, WireError> {
        let body = Object::of(sound::sound(body)?, &At::Body)?;
        body.required("model")?;
        let create = Self::of(&body, DeliveryMode { stream: false, background: false }, true)?;
        Ok(Create { store: false, compacts: true, ..create })
    }

    /// Parses a frame. Responses on a socket are always streamed, so `stream` and `background` are ignored.
    pub fn read_frame(frame: &[u8]) -> Result<Frame, WireError> {
        let body = Object::of(sound::sound(frame)?, &At::Body)?;
        if body.required_name("type", NAME_CHARS_MAX)? != "response.create" {
            return Err(body.at("type").invalid("'response.create': nothing else can be asked for on a socket"));
        }
        let generate = body.flag("generate")?.unwrap_or(true);
        let create = Self::of(&body, DeliveryMode { stream: true, background: false }, generate)?;
        Ok(Frame { create, generate })
    }

    fn of(body: &Object<'_, '_>, mode: DeliveryMode, needs_input: bool) -> Result<Self, WireError> {
        let (previous, conversation) = history_of(body)?;
        let store = body.flag("store")?.unwrap_or(true);
        let DeliveryMode { stream, background } = mode;
        if conversation.is_some() && !store {
            return Err(body.at("store").invalid("true or left out if there is a 'conversation', which keeps what is said in it"));
        }
        if background && !store {
            return Err(body.at("background").invalid("false or left out if 'store' is false"));
        }
        let input = input_of(body, needs_input && previous.is_none() && conversation.is_none())?;
        let mut tools = body.given("tools").map(|value| RequestTools::read(value, &body.at("tools"))).transpose()?.unwrap_or_default();
        tools.read_items(&input, &body.at("input"))?;
        let RequestLimits { max_turns, budget_tokens, budget_wall_ms, tools: server_tools } = RequestLimits::read(body)?;
        let model = body.name("model", NAME_CHARS_MAX)?;
        let has_more = !server_tools.is_empty() || model.as_deref().and_then(agent_of).is_some();
        let Chosen { choice, allowed, echo: tool_choice } = choice::chosen(body, &tools, has_more)?;
        let sampling = Sampling::read(body)?;
        let echo = Echo { tools: tools.echo, tool_choice, text: sampling.text_echo(), reasoning: sampling.reasoning_echo() };
        Ok(Create {
            model,
            compacts: input.last().is_some_and(|item| items::is_trigger(item)),
            input,
            instructions: body.text("instructions")?,
            previous,
            conversation,
            store,
            background,
            stream,
            tools: tools.tools,
            client_names: tools.client_names,
            hosted: tools.hosted,
            has_codex_metadata: has_codex_metadata(body),
            choice,
            allowed,
            parallel_tool_calls: body.flag("parallel_tool_calls")?.unwrap_or(true),
            max_tool_calls: whole_u32(body, "max_tool_calls", u64::from(u32::MAX))?,
            max_output_tokens: body.whole("max_output_tokens", OUTPUT_TOKENS_MIN..=NUMBER_MAX)?,
            max_turns,
            budget_tokens,
            budget_wall_ms,
            server_tools,
            sampling,
            metadata: sampling::metadata_of(body)?,
            include: body.names("include", INCLUDE_MAX)?.unwrap_or_default(),
            echo,
        })
    }
}

impl Create {
    /// Adds tools from input items of earlier requests on the same socket. The request's own tools take precedence.
    pub fn add_tools(&mut self, earlier: &[Box<RawValue>]) -> Result<(), WireError> {
        let (tools, client_names) = (std::mem::take(&mut self.tools), std::mem::take(&mut self.client_names));
        let mut all = RequestTools { tools, client_names, echo: Vec::new(), hosted: std::mem::take(&mut self.hosted) };
        let at = At::Field(&At::Body, "input");
        all.read_items(earlier, &at)?;
        all.read_items(&self.input, &at)?;
        (self.tools, self.client_names, self.hosted) = (all.tools, all.client_names, all.hosted);
        Ok(())
    }
}

/// Whether a body has Codex's turn metadata. The field is not part of the contract, so its type is not checked.
fn has_codex_metadata(body: &Object<'_, '_>) -> bool {
    let metadata = body.given("client_metadata").and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    metadata.is_some_and(|metadata| metadata.get(TURN_METADATA).is_some())
}

/// The ids of the response or the conversation that the request continues. Never both.
fn history_of(body: &Object<'_, '_>) -> Result<(Option<String>, Option<String>), WireError> {
    let previous = body.name("previous_response_id", NAME_CHARS_MAX)?;
    let Some(value) = body.given("conversation") else { return Ok((previous, None)) };
    let at = body.at("conversation");
    let conversation = match Shape::of(value) {
        Shape::Text => object::name_of(value, &at, NAME_CHARS_MAX)?,
        Shape::Object => Object::of(value, &at)?.required_name("id", NAME_CHARS_MAX)?,
        Shape::Null | Shape::Flag | Shape::Number | Shape::List => return Err(at.wrong_type("a string or an object", value)),
    };
    match previous {
        None => Ok((None, Some(conversation))),
        Some(_) => Err(body.at("previous_response_id").invalid("left out if there is a 'conversation'")),
    }
}

/// The input items. With `is_needed` there must be at least one besides a compaction trigger, because there is no history to answer.
fn input_of(body: &Object<'_, '_>, is_needed: bool) -> Result<Vec<Box<RawValue>>, WireError> {
    let at = body.at("input");
    let items = body.given("input").map(|value| items::items_of(value, &at)).transpose()?.unwrap_or_default();
    let is_empty = items.iter().all(|item| items::is_trigger(item));
    match is_empty && is_needed {
        true => Err(WireError::missing(at.to_string())),
        false => Ok(items),
    }
}

/// The limits of the run, and its server-side tools.
struct RequestLimits {
    max_turns: Option<u32>,
    budget_tokens: Option<u64>,
    budget_wall_ms: Option<u64>,
    tools: Vec<String>,
}

impl RequestLimits {
    /// Reads them from the `windlass` object, which other servers ignore. If `max_turns` is given there and at the top level, the lower one
    /// applies.
    fn read(body: &Object<'_, '_>) -> Result<Self, WireError> {
        let mut limits = RequestLimits {
            max_turns: whole_u32(body, "max_turns", TURNS_MAX)?,
            budget_tokens: None,
            budget_wall_ms: None,
            tools: Vec::new(),
        };
        let Some(value) = body.given("windlass") else { return Ok(limits) };
        let at = body.at("windlass");
        let own = Object::of(value, &at)?;
        limits.max_turns = [limits.max_turns, whole_u32(&own, "max_turns", TURNS_MAX)?].into_iter().flatten().min();
        if let Some(value) = own.given("budgets") {
            let at = own.at("budgets");
            let budgets = Object::of(value, &at)?;
            limits.budget_tokens = budgets.whole("tokens", 1..=NUMBER_MAX)?;
            // The engine's clock counts milliseconds.
            limits.budget_wall_ms = budgets.decimal("wall_time_s", 0.001..=WALL_S_MAX)?.map(|seconds| (seconds * 1000.0).round() as u64);
        }
        limits.tools = own.names("tools", ALLOWED_MAX)?.unwrap_or_default();
        Ok(limits)
    }
}

fn whole_u32(object: &Object<'_, '_>, name: &str, max: u64) -> Result<Option<u32>, WireError> {
    Ok(object.whole(name, 1..=max)?.and_then(|number| u32::try_from(number).ok()))
}
