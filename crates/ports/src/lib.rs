//! The traits through which the engine uses the outside, and the plain data that they exchange.
//!
//! The documentation of a port states what is true once a method returns. Nothing here does I/O, and nothing here knows which database,
//! provider or protocol is behind a trait.

mod access;
mod boxes;
pub mod codec;
mod conversations;
mod doorbell;
mod executor;
mod interrupts;
mod lists;
mod meter;
mod model;
mod names;
mod notifier;
mod open_requests;
mod publisher;
mod reading;
mod reports;
mod request;
mod retention;
mod sealing;
mod servers;
mod store;
mod store_error;
mod tenant;
mod usage;
mod verbs;
mod views;
mod world;

pub use access::Tenants;
pub use boxes::{ContextSize, NewPack, Packed};
pub use conversations::{ConversationChange, ConversationView, Conversed, InConversation, Part, conversation_agent};
pub use doorbell::{Doorbell, Ring};
pub use executor::{Executor, ToolCall, ToolReport};
pub use interrupts::{ClosedInterrupt, InterruptId, InterruptScan, InterruptView};
pub use lists::{AgentSummary, INSTRUCTION_BYTES_MAX, INSTRUCTION_ITEMS_MAX, ListedRun, RUNS_COUNTED_MAX, RunPage, RunScan, RunSet};
pub use meter::{EndedRun, Fact, Meter, ModelCalled, NoMeter, QuotaKind, StoreFailure};
pub use model::{Model, ModelError, ModelEvent, ModelMessage, ModelRequest, ModelStream, ModelTool, Models, Retry};
pub use names::{CallStatus, CommitKind, MessageKind, MessageStatus};
pub use notifier::{Notice, Notifier};
pub use open_requests::{LostRequest, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};
pub use publisher::{Published, Publisher, Subject};
pub use reading::{ContentReader, NoReader};
pub use reports::{NewReport, Taken};
pub use request::{Admission, Enqueued, Lineage, NewBox, NewRun, PinnedManifest};
pub use retention::{AGENTS_NOTE_BYTES_MAX, AgedPage, AgedScan, Cutoffs};
pub use sealing::{CanaryKey, SealKeys, Sealing};
pub use servers::{DeclaredServer, OfferedTool, ServerError, ToolServers};
pub use store::{
    Abandoned, CallChange, CallClaim, ClaimedCall, Commit, Committed, DeltaBatch, GivenUp, Guard, Head, KeptAnswer, Loaded, LoadedRun,
    Message, MessageId, NewCall, NewMessage, NodeId, OutboxRow, RequestKey, StateWrite, Withdrawn, child_head, parent_head,
};
pub use store_error::{ErrorDetail, StoreError};
pub use tenant::{TenantCursor, TenantErasure};
pub use usage::{Day, ItemBytes, ItemScan, RunUsage, UsageGroup, UsageKey, UsageQuery, UsageRow, UsageSums};
pub use verbs::{Answering, Found, Query, Store, Verb, Written};
pub use views::{
    BoxView, CallView, Edge, HeadView, InboxView, Item, JournalEntry, JournalRecord, Page, RunStatus, RunView, StoreTotals, Views,
};
pub use world::{Clock, Ids};
