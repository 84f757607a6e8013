//! The shapes of item content. Content from outside is stored byte for byte: it is never decoded and encoded again.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    event::TaskStatus,
    ids::{CallNumber, ItemId, RunId},
    input::{InheritedCall, RequestedCall},
    manifest::{ResultField, ToolAddress},
    run::is_false,
};

/// The kind of an item. The names are those of the agents API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemKind {
    /// What the run is asked to do.
    #[serde(rename = "task.instruction")]
    Instruction,
    /// The fields that the deliverable should have.
    #[serde(rename = "task.result_fields")]
    ResultFields,
    /// Text or reasoning of the model that is not its deliverable.
    #[serde(rename = "agent.thought")]
    Thought,
    /// A call that the model requested.
    #[serde(rename = "tool.call")]
    Call,
    /// The result of a call.
    #[serde(rename = "tool.result")]
    Result,
    /// The one result of a run.
    #[serde(rename = "task.deliverable")]
    Deliverable,
}

impl ItemKind {
    /// All kinds. Stores check what they read against them.
    pub const ALL: [ItemKind; 6] =
        [ItemKind::Instruction, ItemKind::ResultFields, ItemKind::Thought, ItemKind::Call, ItemKind::Result, ItemKind::Deliverable];

    /// The kind as stores and doors spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemKind::Instruction => "task.instruction",
            ItemKind::ResultFields => "task.result_fields",
            ItemKind::Thought => "agent.thought",
            ItemKind::Call => "tool.call",
            ItemKind::Result => "tool.result",
            ItemKind::Deliverable => "task.deliverable",
        }
    }

    /// The kind that `as_str` spells this way.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What a run is asked to do: text, or an item in the caller's own shape.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruction<'a> {
    /// Plain text.
    Text(String),
    /// An item in the format of the client's API, byte for byte as it came. Its header says what it is.
    #[serde(borrow)]
    Item(&'a RawValue),
    /// An item that no model can read. It is kept byte for byte, and is part of no prompt.
    #[serde(borrow)]
    Aside(&'a RawValue),
    /// A summary of the conversation before it. The client was given it by an earlier run and sends it back.
    Compaction {
        /// The caller's item, byte for byte as it came.
        #[serde(borrow)]
        item: &'a RawValue,
        /// The text of the summary.
        summary: String,
    },
    /// A call that an earlier run made, as its client sends it back. Its header says which.
    Made {
        /// The caller's item, byte for byte as it came.
        #[serde(borrow)]
        item: &'a RawValue,
        /// The name under which models see the tool.
        tool: String,
        /// A text that the calls of one iteration share and that differs from that of every other iteration.
        #[serde(rename = "lap")]
        iteration_key: String,
        /// The output that the run's model read as the result, where the item has another one.
        #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
        model_output: Option<String>,
    },
    /// A summary that the run made itself. Models read it instead of everything before it.
    Summary(String),
}

/// Text or reasoning that the model gave beside its calls.
#[derive(Debug, Serialize, Deserialize)]
pub struct Thought {
    /// The text.
    pub text: String,
    /// Reasoning. The text is empty then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
}

/// A piece of the model's reasoning before its text or its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The kind of provider that can take the reasoning back. Empty if none can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The summary that people may read, in parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// The text of the reasoning, where the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The provider's encrypted form of the reasoning, which it expects back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

impl Reasoning {
    /// Whether it has no content at all.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// The bytes of its content.
    pub fn bytes(&self) -> usize {
        self.summary.iter().map(String::len).sum::<usize>() + self.text.len() + self.sealed.as_ref().map_or(0, String::len)
    }
}

/// A call as the model requested it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// The number of the call in its run.
    pub call: CallNumber,
    /// The tool's name.
    pub tool: String,
    /// The arguments as the model wrote them, which may be invalid JSON.
    pub arguments: String,
    /// The provider's own id of the call.
    pub provider_id: String,
    /// The number that the call had in the earlier run that did not make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<CallNumber>,
    /// Whether the run ended because the client has to approve the call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub asks_client: bool,
    /// The client's approval, if the earlier run asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ClientApproval>,
    /// Whether the earlier run was tainted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tainted: bool,
    /// Whether a person changed the arguments. The item then stands for an earlier one with the same number.
    #[serde(default, skip_serializing_if = "is_false")]
    pub edited: bool,
}

impl Call {
    fn new(call: CallNumber, requested: &RequestedCall) -> Self {
        let RequestedCall { provider_id, tool, arguments } = requested.clone();
        Call { call, tool, arguments, provider_id, takes: None, asks_client: false, approval: None, tainted: false, edited: false }
    }

    /// The call as the model requested it.
    pub fn requested(self) -> RequestedCall {
        RequestedCall { provider_id: self.provider_id, tool: self.tool, arguments: self.arguments }
    }

    /// The call as it was inherited; `None` if it is the run's own.
    pub fn inherited(mut self) -> Option<InheritedCall> {
        let (number, approval, tainted) = (self.takes?, self.approval.take(), self.tainted);
        Some(InheritedCall { number, approval, tainted, requested: self.requested() })
    }
}

/// What a client answered to a run that asked it to approve a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientApproval {
    /// The run that asked.
    pub run: RunId,
    /// Where the call would have gone, as the client was shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ToolAddress>,
    /// The answer.
    pub answer: ClientAnswer,
}

/// Whether a client approved a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAnswer {
    /// The call is made with the arguments that the client was shown.
    Approved,
    /// The call is not made.
    Rejected {
        /// What the model reads about it. May be empty.
        reason: String,
    },
    /// The client continued without an answer. The call is not made.
    Missing,
}

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub struct CallResult<'a> {
    /// The call that the result belongs to.
    pub call: CallNumber,
    /// How the call ended.
    pub status: TaskStatus,
    /// The result, byte for byte as it came.
    #[serde(borrow)]
    pub result: &'a RawValue,
}

impl CallResult<'_> {
    /// The output that models read as the result. An error is spelled out in it, because models can't see the status.
    pub fn model_output(&self) -> String {
        // JSON that is no valid text, such as half a surrogate pair, is given to the model as it is written.
        let text = serde_json::from_str(self.result.get()).unwrap_or_else(|_| self.result.get().to_owned());
        let says_so = || serde_json::from_str::<Value>(self.result.get()).is_ok_and(|value| value.get("error").is_some());
        match self.status {
            TaskStatus::Success | TaskStatus::Partial => text,
            TaskStatus::Failed | TaskStatus::Canceled | TaskStatus::Timeout if says_so() => text,
            TaskStatus::Failed | TaskStatus::Canceled | TaskStatus::Timeout => format!("error: {text}"),
        }
    }
}

/// The fields that a deliverable should have, in the shape of the agents API.
#[derive(Debug, Serialize, Deserialize)]
pub struct FieldsSchema {
    /// The fields, in order.
    pub fields: Vec<ResultField>,
}

/// The one result of a run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliverable<'a> {
    /// Plain text.
    Text(String),
    /// Named values.
    #[serde(borrow)]
    Fields(Vec<DeliveredField<'a>>),
    /// A summary of the conversation.
    Summary(String),
}

/// One field of a deliverable.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeliveredField<'a> {
    /// The name of the field.
    pub name: String,
    /// The value as the model wrote it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub value: Option<&'a RawValue>,
    /// The item that holds the value, if the value is stored already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<ItemId>,
}

/// Encodes a call that the model requested.
pub fn call(number: CallNumber, requested: &RequestedCall) -> Bytes {
    encode(&Call::new(number, requested))
}

/// Encodes a call that the client has to approve before the next run makes it.
pub fn asking_call(number: CallNumber, requested: &RequestedCall) -> Bytes {
    encode(&Call { asks_client: true, ..Call::new(number, requested) })
}

/// Encodes a call with the arguments that a person wrote instead of the model's.
pub fn edited_call(number: CallNumber, requested: &RequestedCall) -> Bytes {
    encode(&Call { edited: true, ..Call::new(number, requested) })
}

/// Encodes a call that an earlier run of the conversation did not make, under its number in this run.
pub fn inherited_call(number: CallNumber, call: &InheritedCall) -> Bytes {
    let InheritedCall { number: takes, requested, approval, tainted } = call;
    encode(&Call { takes: Some(*takes), approval: approval.clone(), tainted: *tainted, ..Call::new(number, requested) })
}

/// Encodes a result that came from outside. Its bytes are kept.
pub fn result(call: CallNumber, status: TaskStatus, result: &RawValue) -> Bytes {
    encode(&CallResult { call, status, result })
}

/// Encodes the result of a child run from its encoded deliverable: its text, or its fields as they are.
pub fn child_result(call: CallNumber, status: TaskStatus, deliverable: &[u8]) -> Bytes {
    let text = match serde_json::from_slice(deliverable) {
        Ok(Deliverable::Text(text) | Deliverable::Summary(text)) => text,
        Ok(Deliverable::Fields(_)) | Err(_) => {
            let fields: Option<&RawValue> = serde_json::from_slice(deliverable).ok();
            return match fields {
                Some(fields) => result(call, status, fields),
                None => refusal(call, TaskStatus::Failed, "unreadable_result", "the result of the agent cannot be read"),
            };
        }
    };
    #[derive(Serialize)]
    struct TextResult {
        call: CallNumber,
        status: TaskStatus,
        result: String,
    }
    encode(&TextResult { call, status, result: text })
}

/// Encodes an error result that the engine itself gives, for the model to read.
pub fn refusal(number: CallNumber, status: TaskStatus, code: &str, message: &str) -> Bytes {
    #[derive(Serialize)]
    struct Refusal<'a> {
        error: ErrorBody<'a>,
    }
    #[derive(Serialize)]
    struct ErrorBody<'a> {
        code: &'a str,
        message: &'a str,
    }
    #[derive(Serialize)]
    struct Refused<'a> {
        call: CallNumber,
        status: TaskStatus,
        result: Refusal<'a>,
    }
    encode(&Refused { call: number, status, result: Refusal { error: ErrorBody { code, message } } })
}

/// Encodes a deliverable that is plain text.
pub fn deliverable_text(text: String) -> Bytes {
    encode(&Deliverable::Text(text))
}

/// Encodes a deliverable that is a summary of the conversation.
pub fn deliverable_summary(text: String) -> Bytes {
    encode(&Deliverable::Summary(text))
}

/// Encodes a summary that models read instead of everything before it.
pub fn summary(text: String) -> Bytes {
    encode(&Instruction::Summary(text))
}

/// Encodes text of the model.
pub fn thought(text: String) -> Bytes {
    encode(&Thought { text, reasoning: Vec::new() })
}

/// Encodes reasoning.
pub fn reasoning(reasoning: Vec<Reasoning>) -> Bytes {
    encode(&Thought { text: String::new(), reasoning })
}

/// Serialises content of the engine's own shapes.
pub fn encode(content: &impl Serialize) -> Bytes {
    serde_json::to_vec(content).expect("content has string keys and no failing serialiser").into()
}
