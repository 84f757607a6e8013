//! Models: a call gives a stream of events, whatever the provider.

use std::{pin::Pin, sync::Arc};

use futures_core::Stream;
use serde_json::Value;
use windlass_kernel::{
    FailureCause, FailureCode, Finish, RequestedCall, RunId, Tenant, ToolChoice, Usage,
    content::Reasoning,
    header::{Content, Role},
    parameters::Parameters,
};

/// A model behind a provider.
pub trait Model: Send + Sync {
    /// Starts a call. The stream ends after the whole reply or after one error. Dropping the stream cancels the call.
    fn call(&self, request: ModelRequest) -> ModelStream;

    /// The provider's name in messages and in the journal.
    fn provider(&self) -> &str;

    /// The key of the queue in which the model's calls wait for a permit. Models with the same key share their permits, whatever their
    /// names. It is never shown to a client.
    fn line(&self) -> &str {
        self.provider()
    }

    /// The number of calls that may run at once. If models with the same key differ, the lowest number holds.
    fn concurrency(&self) -> usize;

    /// Whether the model continues this text if a request has it as the beginning of the reply.
    fn takes_prefill(&self, _words: &str) -> bool {
        false
    }
}

/// The configured models. A model that a tenant may not use does not exist for that tenant.
pub trait Models: Send + Sync {
    /// The model with this name, as the tenant's configuration resolves it.
    fn resolve(&self, tenant: &Tenant, name: &str) -> Option<Arc<dyn Model>>;

    /// Other models with that name, in the order in which they replace it when it is unavailable.
    fn fallbacks(&self, _tenant: &Tenant, _name: &str) -> Vec<Arc<dyn Model>> {
        Vec::new()
    }

    /// The number of tokens that a model with that name can read at once, if the configuration says. If several models have the name, the
    /// lowest number.
    fn context(&self, _tenant: &Tenant, _name: &str) -> Option<u64> {
        None
    }

    /// The names of the tenant's models. `*` is among them if every name is accepted.
    fn names(&self, tenant: &Tenant) -> Vec<String>;

    /// The model of a request that names none. `None` if the tenant's first model passes names on and has no name of its own.
    fn default_name(&self, tenant: &Tenant) -> Option<&str>;
}

/// The events of one model call.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;

/// One model call.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model as the run asked for it. A pass-through provider sends this name on.
    pub model: String,
    /// The run that makes the call.
    pub run: RunId,
    /// The iteration that makes the call.
    pub iteration: u32,
    /// The attempt within the iteration, from 1.
    pub attempt: u32,
    /// The instructions that the model reads before everything else.
    pub instructions: Option<String>,
    /// The conversation so far, in order.
    pub messages: Vec<ModelMessage>,
    /// The tools that the model may call.
    pub tools: Arc<[ModelTool]>,
    /// Whether the model may, must or must not call tools.
    pub choice: ToolChoice,
    /// Whether the model should request at most one call.
    pub one_call: bool,
    /// Sampling and format parameters.
    pub parameters: Option<Arc<Parameters>>,
    /// The beginning of the reply, for a model that continues such a text. Its stream has only what follows.
    pub prefill: Option<String>,
}

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelMessage {
    /// Text from the user.
    User(String),
    /// A message from outside: of the user, of the operator, or one of the model's that has more than text.
    Message {
        /// Who wrote it.
        role: Role,
        /// What it contains.
        content: Content<String, Value>,
    },
    /// The output of a call that the conversation does not have.
    StrayOutput {
        /// The client's id of the call.
        call: String,
        /// The output as text.
        output: String,
        /// The whole item.
        item: Value,
    },
    /// An item from outside of an unknown kind. A model gets its JSON as text.
    Other(Value),
    /// A reply of the model: text and the calls that it requested with it.
    Assistant {
        /// The reasoning before the text. A provider takes back its own reasoning and leaves out that of others.
        reasoning: Vec<Reasoning>,
        /// The text; may be empty.
        text: String,
        /// The calls, in order.
        calls: Vec<RequestedCall>,
    },
    /// The result of a call.
    ToolResult {
        /// The provider's id of the call.
        provider_id: String,
        /// The name of the tool.
        tool: String,
        /// The result as text.
        output: String,
    },
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTool {
    /// The name of the tool.
    pub name: String,
    /// The description that the model reads.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// Whether the provider should hold the model to the schema. `None` if the request does not say.
    pub strict: Option<bool>,
}

/// An event of a model call's stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The provider accepted the request and has begun to answer: from here on the tokens of the prompt count as used. Sent at most once,
    /// before everything else. Any other event implies it.
    Taken,
    /// The name that the provider has for the model that answers. Sent at most once.
    Model(String),
    /// A whole piece of reasoning.
    Reasoning(Reasoning),
    /// A delta of the text.
    Text(String),
    /// A whole call.
    Call(RequestedCall),
    /// The tokens used so far, sent as soon as they are known. The last event of this kind counts.
    Usage(Usage),
    /// Why the model stopped. Not sent if the reply is complete.
    Finish(Finish),
}

/// Why a call gave no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// A code for programs.
    pub code: FailureCode,
    /// The cause, as far as APIs distinguish causes.
    pub cause: FailureCause,
    /// A sentence for people. It has no secrets.
    pub message: String,
    /// Whether another attempt may help.
    pub retry: Retry,
}

/// Whether a failed call may be attempted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// No: it would fail in the same way.
    Never,
    /// Yes, after a growing pause.
    Backoff,
    /// Yes, after the pause that the provider asked for.
    AfterMs(u64),
}
