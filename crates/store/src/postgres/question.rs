//! The reads of the database as data, so that the questions of many verbs can be sent together.

use std::sync::Arc;

use bytes::Bytes;
use windlass_kernel::{AgentKey, BoxId, CallNumber, ConversationId, ItemId, Manifest, RunId, Tenant, Timestamp, ToolName};
use windlass_ports::{
    AgentSummary, InterruptId, InterruptScan, InterruptView, Lineage, MessageId, MessageKind, NodeId, OpenRequest, OutboxRow, Part,
    RequestHash, RunScan, StoreError,
};

use crate::rows::{
    AnswerRow, BoxRow, CallRow, ConversationRow, DeltaRow, HeadRow, ItemRow, JournalRow, MessageRow, Result, RunBrief, RunRow, Segment,
};

/// One question of [`Reads`](crate::rows::Reads), with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question {
    Head(AgentKey),
    Run(RunId),
    RunBrief(RunId),
    RunByDedupe(Tenant, String),
    RunTaking(Tenant, RunId),
    RunFrom(AgentKey, u64),
    NextQueued(AgentKey, u64),
    Lineage(RunId),
    Manifest(Tenant, [u8; 32]),
    OpenRuns(Tenant),
    Journal { run: RunId, from: u64, limit: usize },
    Deltas(RunId),
    Message(AgentKey, MessageId),
    Report(RunId, CallNumber, MessageKind, u32),
    LastMessage { agent: AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber> },
    Pending(AgentKey),
    Inbox { agent: AgentKey, after: u64, limit: usize },
    Call(RunId, CallNumber),
    Calls { run: RunId, from: CallNumber, limit: usize },
    OpenCalls(RunId),
    Claims(RunId),
    WaitingCalls { tenant: Tenant, tool: ToolName, now: Timestamp, limit: usize },
    CallsByKey(Tenant, String),
    Item(Tenant, ItemId),
    Box(BoxId),
    BoxLength(BoxId),
    BoxItemIds(BoxId, u32),
    ContentBytes(Vec<Segment>),
    BoxItems { id: BoxId, from: i64, below: i64, limit: usize },
    Due(Timestamp, usize),
    Lives(NodeId),
    Orphans { node: NodeId, after: Option<AgentKey>, limit: usize },
    Outbox(usize),
    Conversation(ConversationId),
    ConversationParts(ConversationId),
    RecordedAnswer(Tenant, String),
    OpenRequests(Tenant, RequestHash),
    Interrupts(Tenant, InterruptScan),
    Interrupt(Tenant, InterruptId),
    Runs(Tenant, RunScan),
    AgentNames { tenant: Tenant, after: String, limit: usize },
    Instruction(Tenant, BoxId),
}

/// The answer of the database. Sets of calls and messages are complete, so that a verb's own writes can be laid over them.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Head(Option<HeadRow>),
    Run(Option<Box<RunRow>>),
    Brief(Option<RunBrief>),
    Lineage(Option<Lineage>),
    Manifest(Option<Arc<Manifest>>),
    Count(u32),
    Journal(Vec<JournalRow>),
    Deltas(Vec<DeltaRow>),
    Message(Option<MessageRow>),
    Number(Option<MessageId>),
    Messages(Vec<(MessageId, MessageRow)>),
    Calls(Vec<CallRow>),
    Item(Option<ItemRow>),
    Box(Option<BoxRow>),
    ItemIds(Vec<ItemId>),
    Bytes(u64),
    Items(Vec<(i64, ItemRow)>),
    Agents(Vec<AgentKey>),
    Yes(bool),
    Outbox(Vec<OutboxRow>),
    Conversation(Option<Box<ConversationRow>>),
    Parts(Vec<Part>),
    Recorded(Option<Box<AnswerRow>>),
    Requests(Vec<OpenRequest>),
    Interrupts(Vec<InterruptView>),
    Interrupt(Option<Box<InterruptView>>),
    Runs(Vec<RunRow>),
    AgentNames(Vec<AgentSummary>),
    Instruction(Option<Bytes>),
}

/// Reads an answer as the kind that its question has. Any other kind is a bug.
macro_rules! taking {
    ($($name:ident: $variant:ident => $type:ty;)+) => {
        impl Answer {
            $(pub(super) fn $name(self) -> Result<$type> {
                if let Answer::$variant(value) = self { Ok(value) } else { Err(mixed_up()) }
            })+
        }
    };
}

taking! {
    head: Head => Option<HeadRow>;
    run: Run => Option<Box<RunRow>>;
    brief: Brief => Option<RunBrief>;
    lineage: Lineage => Option<Lineage>;
    manifest: Manifest => Option<Arc<Manifest>>;
    count: Count => u32;
    journal: Journal => Vec<JournalRow>;
    deltas: Deltas => Vec<DeltaRow>;
    message: Message => Option<MessageRow>;
    number: Number => Option<MessageId>;
    messages: Messages => Vec<(MessageId, MessageRow)>;
    calls: Calls => Vec<CallRow>;
    item: Item => Option<ItemRow>;
    found_box: Box => Option<BoxRow>;
    item_ids: ItemIds => Vec<ItemId>;
    bytes: Bytes => u64;
    items: Items => Vec<(i64, ItemRow)>;
    agents: Agents => Vec<AgentKey>;
    yes: Yes => bool;
    outbox: Outbox => Vec<OutboxRow>;
    conversation: Conversation => Option<Box<ConversationRow>>;
    parts: Parts => Vec<Part>;
    recorded_answer: Recorded => Option<Box<AnswerRow>>;
    requests: Requests => Vec<OpenRequest>;
    interrupts: Interrupts => Vec<InterruptView>;
    interrupt: Interrupt => Option<Box<InterruptView>>;
    runs: Runs => Vec<RunRow>;
    agent_names: AgentNames => Vec<AgentSummary>;
    instruction: Instruction => Option<Bytes>;
}

fn mixed_up() -> StoreError {
    StoreError::Corrupt("an answer is not of its question's kind".into())
}
