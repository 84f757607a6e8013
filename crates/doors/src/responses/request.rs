//! The body of `POST /v1/responses`: bytes in, a request or a refusal out.
//!
//! What is known is checked to the last type and range, so that nothing a client sends can become our own fault later. What
//! is not known — fields, item types, types of tools — is left alone: clients are always a year ahead of the contract.

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
pub(crate) use tools::{CUSTOM_INPUT, Function, Hosted, Namespaced, Tool, brings_tools};

use crate::responses::{create::agent_of, error::WireError, join::TURN_METADATA};
use choice::Chosen;
use limits::{ALLOWED_MAX, INCLUDE_MAX, NAME_CHARS_MAX, NUMBER_MAX, OUTPUT_TOKENS_MIN, TURNS_MAX, WALL_S_MAX};
use object::{At, Object, Shape};
use tools::Tools;

/// A response to be made. It has no `Debug`: it carries secrets of tool servers.
pub(crate) struct Create {
    pub model: Option<String>,
    /// What is new, each item an object as the client sent it.
    pub input: Vec<Box<RawValue>>,
    /// Whether it is asked for nothing but a summary of all that.
    pub compacts: bool,
    pub instructions: Option<String>,
    /// The response it goes on from.
    pub previous: Option<String>,
    /// The conversation it belongs to. There is never a `previous` as well.
    pub conversation: Option<String>,
    pub store: bool,
    pub background: bool,
    pub stream: bool,
    /// Its tools, those of namespaces in their place.
    pub tools: Vec<Tool>,
    /// How calls are given back to the client, by the name the model uses; those that are given back as they are
    /// are not in it.
    pub namespaced: BTreeMap<String, Namespaced>,
    /// Tools that only OpenAI's own servers run.
    pub hosted: Vec<Hosted>,
    /// Whether its `client_metadata` has what Codex says about its turn: on a socket that is no header.
    pub has_codex_metadata: bool,
    pub choice: Choice,
    /// The only tools that may be called; empty is no limit.
    pub allowed: Vec<Allowed>,
    pub parallel_tool_calls: bool,
    pub max_tool_calls: Option<u32>,
    pub max_output_tokens: Option<u64>,
    pub max_turns: Option<u32>,
    pub budget_tokens: Option<u64>,
    pub budget_wall_ms: Option<u64>,
    /// Tools of the configuration, and servers of tools, that it may use.
    pub server_tools: Vec<String>,
    pub sampling: Sampling,
    pub metadata: BTreeMap<String, String>,
    /// Further things to be shown, unknown ones among them.
    pub include: Vec<String>,
    pub echo: Echo,
}

/// A frame that asks for a response.
pub(crate) struct Frame {
    pub create: Create,
    /// Whether the model is asked. If not, the client only says beforehand what it will go on from.
    pub generate: bool,
}

/// How a client wants to be answered.
struct Way {
    stream: bool,
    background: bool,
}

/// Parts of the request in the form in which the response repeats them.
pub(crate) struct Echo {
    pub tools: Vec<Value>,
    pub tool_choice: Value,
    pub text: Value,
    pub reasoning: Value,
}

impl Create {
    /// Reads a body. Every refusal is a 400 that says what to change.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        let body = Object::of(sound::sound(body)?, &At::Body)?;
        let way = Way { stream: body.flag("stream")?.unwrap_or(false), background: body.flag("background")?.unwrap_or(false) };
        Self::of(&body, way, true)
    }

    /// Reads the body of `POST /v1/responses/compact`. What else a request can say is checked, and holds as far as it can.
    pub fn read_compaction(body: &[u8]) -> Result<Self, WireError> {
        let body = Object::of(sound::sound(body)?, &At::Body)?;
        body.required("model")?;
        let create = Self::of(&body, Way { stream: false, background: false }, true)?;
        Ok(Create { store: false, compacts: true, ..create })
    }

    /// Reads a frame. On a socket there is one way to be answered, so that what is said about it is not looked at.
    pub fn read_frame(frame: &[u8]) -> Result<Frame, WireError> {
        let body = Object::of(sound::sound(frame)?, &At::Body)?;
        if body.required_name("type", NAME_CHARS_MAX)? != "response.create" {
            return Err(body.at("type").invalid("'response.create': nothing else can be asked for on a socket"));
        }
        let generate = body.flag("generate")?.unwrap_or(true);
        let create = Self::of(&body, Way { stream: true, background: false }, generate)?;
        Ok(Frame { create, generate })
    }

    fn of(body: &Object<'_, '_>, way: Way, needs_input: bool) -> Result<Self, WireError> {
        let (previous, conversation) = history_of(body)?;
        let store = body.flag("store")?.unwrap_or(true);
        let Way { stream, background } = way;
        if conversation.is_some() && !store {
            return Err(body.at("store").invalid("true or left out if there is a 'conversation', which keeps what is said in it"));
        }
        if background && !store {
            return Err(body.at("background").invalid("false or left out if 'store' is false"));
        }
        let input = input_of(body, needs_input && previous.is_none() && conversation.is_none())?;
        let mut tools = body.given("tools").map(|value| Tools::read(value, &body.at("tools"))).transpose()?.unwrap_or_default();
        tools.read_items(&input, &body.at("input"))?;
        let Limits { max_turns, budget_tokens, budget_wall_ms, tools: server_tools } = Limits::read(body)?;
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
            namespaced: tools.namespaced,
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
    /// Adds tools that were said before it, on the same connection. Its own hold where both have one.
    pub fn add_tools(&mut self, earlier: &[Box<RawValue>]) -> Result<(), WireError> {
        let (tools, namespaced) = (std::mem::take(&mut self.tools), std::mem::take(&mut self.namespaced));
        let mut all = Tools { tools, namespaced, echo: Vec::new(), hosted: std::mem::take(&mut self.hosted) };
        let at = At::Field(&At::Body, "input");
        all.read_items(earlier, &at)?;
        all.read_items(&self.input, &at)?;
        (self.tools, self.namespaced, self.hosted) = (all.tools, all.namespaced, all.hosted);
        Ok(())
    }
}

/// Whether a body has Codex's metadata. A field that is not known is not checked either.
fn has_codex_metadata(body: &Object<'_, '_>) -> bool {
    let metadata = body.given("client_metadata").and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    metadata.is_some_and(|metadata| metadata.get(TURN_METADATA).is_some())
}

/// What it goes on from: a response, a conversation, or nothing.
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

/// What is new. Without anything earlier there has to be something, or the model would be asked nothing at all.
fn input_of(body: &Object<'_, '_>, is_needed: bool) -> Result<Vec<Box<RawValue>>, WireError> {
    let at = body.at("input");
    let items = body.given("input").map(|value| items::items_of(value, &at)).transpose()?.unwrap_or_default();
    let is_empty = items.iter().all(|item| items::is_trigger(item));
    match is_empty && is_needed {
        true => Err(WireError::missing(at.to_string())),
        false => Ok(items),
    }
}

/// How far the loop may go, and with what.
struct Limits {
    max_turns: Option<u32>,
    budget_tokens: Option<u64>,
    budget_wall_ms: Option<u64>,
    tools: Vec<String>,
}

impl Limits {
    /// They stand in an object of our own, where no other host looks. Given in both places, the lower number of turns holds.
    fn read(body: &Object<'_, '_>) -> Result<Self, WireError> {
        let mut limits =
            Limits { max_turns: whole_u32(body, "max_turns", TURNS_MAX)?, budget_tokens: None, budget_wall_ms: None, tools: Vec::new() };
        let Some(value) = body.given("windlass") else { return Ok(limits) };
        let at = body.at("windlass");
        let own = Object::of(value, &at)?;
        limits.max_turns = [limits.max_turns, whole_u32(&own, "max_turns", TURNS_MAX)?].into_iter().flatten().min();
        if let Some(value) = own.given("budgets") {
            let at = own.at("budgets");
            let budgets = Object::of(value, &at)?;
            limits.budget_tokens = budgets.whole("tokens", 1..=NUMBER_MAX)?;
            // A clock of milliseconds knows no shorter time than one.
            limits.budget_wall_ms = budgets.decimal("wall_time_s", 0.001..=WALL_S_MAX)?.map(|seconds| (seconds * 1000.0).round() as u64);
        }
        limits.tools = own.names("tools", ALLOWED_MAX)?.unwrap_or_default();
        Ok(limits)
    }
}

fn whole_u32(object: &Object<'_, '_>, name: &str, max: u64) -> Result<Option<u32>, WireError> {
    Ok(object.whole(name, 1..=max)?.and_then(|number| u32::try_from(number).ok()))
}
