//! Models: whatever the provider, one stream of events.

use std::{pin::Pin, sync::Arc};

use futures_core::Stream;
use serde_json::Value;
use windlass_kernel::{FailureCause, Finish, RequestedCall, RunId, Tenant, ToolChoice, Usage, content::Reasoning};

/// A model behind a provider.
pub trait Model: Send + Sync {
    /// Starts one call. The stream ends after the whole answer, or with one error; dropping it calls the request off.
    fn call(&self, request: ModelRequest) -> ModelStream;

    /// What messages and the journal call it by.
    fn provider(&self) -> &str;

    /// Where its calls wait for a place: models of the same line share their places, whatever they are called. Never shown to anybody.
    fn line(&self) -> &str {
        self.provider()
    }

    /// How many calls there may be at once. Where models of one line differ, the least holds.
    fn concurrency(&self) -> usize;

    /// Whether it goes on from these words, if a request gives them to it as the beginning of its answer.
    fn takes_prefill(&self, _words: &str) -> bool {
        false
    }
}

/// The configured models. A model that a tenant may not use does not exist for that tenant.
pub trait Models: Send + Sync {
    /// The model of that name, as the configuration resolves it for the tenant.
    fn resolve(&self, tenant: &Tenant, name: &str) -> Option<Arc<dyn Model>>;

    /// Others of that name, in the order in which they stand in for it when it cannot be had.
    fn fallbacks(&self, _tenant: &Tenant, _name: &str) -> Vec<Arc<dyn Model>> {
        Vec::new()
    }

    /// How many tokens a model of that name can read at once, if the configuration says: the least that any of them can.
    fn context(&self, _tenant: &Tenant, _name: &str) -> Option<u64> {
        None
    }

    /// The names of the tenant's models, `*` among them if every name is taken.
    fn names(&self, tenant: &Tenant) -> Vec<String>;

    /// The model of a request that names none. `None` if the tenant's first model passes names on and has no name of its own.
    fn default_name(&self, tenant: &Tenant) -> Option<&str>;
}

/// What a provider sends back.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// One model call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The name the run asked for; a pass-through provider sends it on.
    pub model: String,
    /// Which run asks.
    pub run: RunId,
    /// Which lap.
    pub iteration: u32,
    /// Which try of the lap, from 1.
    pub attempt: u32,
    /// What the model is told before everything else.
    pub instructions: Option<String>,
    /// The conversation so far, complete and in order.
    pub messages: Vec<ModelMessage>,
    /// What it may call.
    pub tools: Arc<[ModelTool]>,
    /// Whether it may, must or must not.
    pub choice: ToolChoice,
    /// Whether it should make one call at the most.
    pub one_call: bool,
    /// How it should answer: an object in the words of the Responses protocol.
    pub parameters: Option<Arc<Value>>,
    /// Words that the answer begins with, for a model that takes such: it says only what comes after them.
    pub prefill: Option<String>,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelMessage {
    /// Somebody's words.
    User(String),
    /// An item of the caller's own shape: a provider that knows the shape passes it on.
    UserItem(Value),
    /// What the model said, with the calls it made in the same breath.
    Assistant {
        /// What it thought before. A provider takes its own thoughts back and leaves out the others'.
        reasoning: Vec<Reasoning>,
        /// Its words, possibly none.
        text: String,
        /// Its calls, in order.
        calls: Vec<RequestedCall>,
    },
    /// What a call brought back.
    ToolResult {
        /// The provider's id of the call.
        provider_id: String,
        /// The tool.
        tool: String,
        /// The result as text.
        output: String,
    },
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Whether the provider should hold the model to the schema, if anybody says.
    pub strict: Option<bool>,
}

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The provider took the request, and has begun to answer it: what it reads counts from here on. Said once at the most, before
    /// everything else; whatever else comes says so too.
    Taken,
    /// The model that answers, by the provider's name for it. Sent once at the most.
    Model(String),
    /// A thought, whole.
    Reasoning(Reasoning),
    /// More words.
    Text(String),
    /// A call, whole.
    Call(RequestedCall),
    /// Tokens used so far, told as soon as they are known; the last one counts.
    Usage(Usage),
    /// Why it stopped, unless it was done.
    Finish(Finish),
}

/// Why a call gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// A code for machines: `rate_limited`, `overloaded`, `stream_cut`, `refused` …
    pub code: String,
    /// What went wrong, as far as APIs tell causes apart.
    pub cause: FailureCause,
    /// A sentence for people, without secrets.
    pub message: String,
    /// Whether trying again may help.
    pub retry: Retry,
}

/// Whether a failed call may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: it would fail the same way.
    Never,
    /// Yes, after a growing pause.
    Backoff,
    /// Yes, after the pause the provider asked for.
    AfterMs(u64),
}
