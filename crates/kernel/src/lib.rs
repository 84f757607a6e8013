//! The state machine of a run, and nothing else.
//!
//! [`step`] says what an input does to a run; [`apply`] is the only way a run changes, so that folding the journal gives
//! the state; [`outstanding`] lists the effects a run is still owed, which is all that recovery needs. Everything here is a
//! pure function: time and fresh ids come in as arguments, and no input can make it fail.
//!
//! What is deliberately absent: I/O, clocks, randomness, async, hash maps, and any word of HTTP or SQL.

mod apply;
pub mod budget;
mod chunks;
pub mod content;
mod event;
mod facts;
mod failure;
pub mod header;
mod ids;
mod input;
mod interrupt;
mod ledger;
mod manifest;
mod outstanding;
pub mod parameters;
mod policy;
mod price;
mod question;
mod run;
mod step;
mod submit;

pub use apply::{apply, fold};
pub use budget::{Below, Breach, BudgetKind, Budgets, RaisedBudget, RaisedLimits, Spent, Usage, Wanted};
pub use chunks::ChunkLengths;
pub use content::ItemKind;
pub use event::{EndReason, Event, IgnoreReason, InputKind, TaskStatus};
pub use facts::{CallerSpan, ReplyFacts, SpanId};
pub use failure::{FailureCause, FailureCode};
pub use ids::{
    AgentIdentity, AgentKey, AgentName, BadId, BoxId, CallKey, CallNumber, ConversationId, Epoch, ItemId, RunId, Seq, Tenant, Timestamp,
    ToolName,
};
pub use input::{
    Answer, Decision, Failure, Finish, InheritedCall, Input, LostModelCall, NewItem, Opening, Reply, Report, ReportCause, RequestedCall,
    StreamedText,
};
pub use interrupt::{Cause, Gate, Interrupt, OnTimeout, PassedBudget, Verdict};
pub use ledger::{CallStatus, CallUpdate, InterruptUpdate, call_updates, interrupt_updates};
pub use manifest::{
    AfterExecution, CallRetries, Compaction, EffectClass, Manifest, PolicyName, Remote, ResultField, Route, ServerSource, ToolAddress,
    ToolChoice, ToolServer, ToolSpec,
};
pub use outstanding::{Effect, newly_outstanding, outstanding};
pub use price::{CostBudget, Prices};
pub use question::{ASK_PERSON, Question, ask_person_tool};
pub use run::{BoxRange, HeadStatus, ModelCallId, OpenCall, Origin, ParentCall, ParkReason, Phase, Progress, Purpose, Run};
pub use step::{ChildReport, Moment, TAKEOVERS_MAX, Transition, check_steering, step};
pub use submit::{SUBMIT_RESULT, tool_schema as submit_result_schema};
