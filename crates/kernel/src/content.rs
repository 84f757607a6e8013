//! The shapes of item content. Bytes from outside are carried as they came, never decoded and written anew.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{event::TaskStatus, ids::CallNumber, ids::ItemId, input::RequestedCall, manifest::AfterExecution, manifest::ResultField};

/// What an item is, in the turn machine's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemKind {
    /// What the run is asked to do.
    #[serde(rename = "task.instruction")]
    Instruction,
    /// The fields its deliverable should have.
    #[serde(rename = "task.result_fields")]
    ResultFields,
    /// What the model streamed.
    #[serde(rename = "agent.thought")]
    Thought,
    /// A call the model made.
    #[serde(rename = "tool.call")]
    Call,
    /// A call's result.
    #[serde(rename = "tool.result")]
    Result,
    /// The one result of a run.
    #[serde(rename = "task.deliverable")]
    Deliverable,
}

impl ItemKind {
    /// All of them, for stores that check what they read.
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

    /// Reads what `as_str` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What a run is asked: a text, or an item of the caller's own shape.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruction<'a> {
    /// Plain words.
    Text(String),
    /// Anything else, as it came.
    #[serde(borrow)]
    Item(&'a RawValue),
    /// What came along and is nothing that a model could read: kept, as it came.
    #[serde(borrow)]
    Aside(&'a RawValue),
    /// What was said before, in short, as the caller was given it and gives it back.
    Compaction {
        /// The caller's item, as it came.
        #[serde(borrow)]
        item: &'a RawValue,
        /// What it says.
        summary: String,
    },
    /// A call that an earlier run made, as the caller was shown it.
    Made {
        /// The caller's item.
        #[serde(borrow)]
        item: &'a RawValue,
        /// The tool's name for models.
        tool: String,
        /// What the calls of one iteration have in common, and others have not.
        lap: String,
        /// What the run's model was told of the result, where that is not what the item says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        told: Option<String>,
    },
    /// What was said before, in short, made by the run itself: it stands for all of that.
    Summary(String),
}

/// What the model said beside its calls.
#[derive(Debug, Serialize, Deserialize)]
pub struct Thought {
    /// The words.
    pub text: String,
    /// What it thought and did not say; there are no words then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
}

/// What the model thought before it said something, or called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// Whose thought it is: only a provider of that kind can take it back. Empty if none does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// What people may read of it, part by part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
    /// The thought itself, where the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What the provider wants to have back, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
}

impl Reasoning {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// How much it amounts to.
    pub fn bytes(&self) -> usize {
        self.summary.iter().map(String::len).sum::<usize>() + self.text.len() + self.sealed.as_ref().map_or(0, String::len)
    }
}

/// A call as the model made it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Its number in the run.
    pub call: CallNumber,
    /// The tool's name.
    pub tool: String,
    /// The arguments as the model wrote them, which need not be JSON.
    pub arguments: String,
    /// The provider's own id for it.
    pub provider_id: String,
    /// The number it had in the earlier run that left it behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<CallNumber>,
}

/// A call's result.
#[derive(Debug, Serialize, Deserialize)]
pub struct CallResult<'a> {
    /// Whose result.
    pub call: CallNumber,
    /// How it ended.
    pub status: TaskStatus,
    /// What came back, byte for byte.
    #[serde(borrow)]
    pub result: &'a RawValue,
}

impl CallResult<'_> {
    /// What models are told of it. They have no other way to know an error from a result than to read it.
    pub fn told(&self) -> String {
        // What is no valid text, such as half a surrogate pair, stays as it is spelled.
        let text = serde_json::from_str(self.result.get()).unwrap_or_else(|_| self.result.get().to_owned());
        let says_so = || serde_json::from_str::<Value>(self.result.get()).is_ok_and(|value| value.get("error").is_some());
        match self.status {
            TaskStatus::Success | TaskStatus::Partial => text,
            TaskStatus::Failed | TaskStatus::Canceled | TaskStatus::Timeout if says_so() => text,
            TaskStatus::Failed | TaskStatus::Canceled | TaskStatus::Timeout => format!("error: {text}"),
        }
    }
}

/// The fields a deliverable should have, wrapped as the turn machine wraps them.
#[derive(Debug, Serialize, Deserialize)]
pub struct FieldsSchema {
    /// The fields, in order.
    pub fields: Vec<ResultField>,
}

/// The one result of a run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliverable<'a> {
    /// Words.
    Text(String),
    /// Named values.
    #[serde(borrow)]
    Fields(Vec<DeliveredField<'a>>),
    /// What was said before, in short.
    Summary(String),
}

/// One named value of a deliverable.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeliveredField<'a> {
    /// Its name.
    pub name: String,
    /// The value as the model wrote it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub value: Option<&'a RawValue>,
    /// The item that holds the value, where it stands already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<ItemId>,
}

/// Content that says what the model called.
pub fn call(number: CallNumber, requested: &RequestedCall) -> Bytes {
    taken_call(number, requested, None)
}

/// Content that says what the model called, in an earlier run if it has a number there.
pub fn taken_call(number: CallNumber, requested: &RequestedCall, takes: Option<CallNumber>) -> Bytes {
    encode(&Call {
        takes,
        call: number,
        tool: requested.tool.clone(),
        arguments: requested.arguments.clone(),
        provider_id: requested.provider_id.clone(),
    })
}

/// Content of a result that came from outside: its bytes are kept as they are.
pub fn result(call: CallNumber, status: TaskStatus, result: &RawValue) -> Bytes {
    encode(&CallResult { call, status, result })
}

/// Content of a result the engine itself gives, as an error the model can read.
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

/// Content of a deliverable in words.
pub fn deliverable_text(text: String) -> Bytes {
    encode(&Deliverable::Text(text))
}

/// Content of a deliverable that sums up what was said before.
pub fn deliverable_summary(text: String) -> Bytes {
    encode(&Deliverable::Summary(text))
}

/// Content of a summary that stands for all that was said before.
pub fn summary(text: String) -> Bytes {
    encode(&Instruction::Summary(text))
}

/// Content of a thought.
pub fn thought(text: String) -> Bytes {
    encode(&Thought { text, reasoning: Vec::new() })
}

/// Content of thoughts that were not streamed.
pub fn reasoning(reasoning: Vec<Reasoning>) -> Bytes {
    encode(&Thought { text: String::new(), reasoning })
}

/// What a result itself wants to follow: `result.__cg_control.after_execution`, if it is there and valid.
pub fn wished_after(result: &RawValue) -> Option<AfterExecution> {
    #[derive(Deserialize)]
    struct Wish<'a> {
        #[serde(rename = "__cg_control", borrow, default)]
        control: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Control {
        after_execution: String,
    }
    let wish: Wish<'_> = object(result)?;
    let control: Control = object(wish.control?)?;
    match control.after_execution.as_str() {
        "suspend" => Some(AfterExecution::Suspend),
        "terminate" => Some(AfterExecution::Terminate),
        _ => None,
    }
}

/// Reads an object. An array is none, though serde would read its elements as fields.
fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    let text = value.get().trim_start();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

/// Serialises content of ours.
pub fn encode(content: &impl Serialize) -> Bytes {
    serde_json::to_vec(content).expect("content has string keys and no failing serialiser").into()
}
