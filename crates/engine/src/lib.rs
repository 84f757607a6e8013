//! Drives the kernel through the ports: workers, leases, effects, sweep, outbox.
//!
//! The kernel decides what a run does; the engine never does. The engine commits what the kernel decided, starts effects only from
//! committed rows, and finds every committed effect that is still owed.

mod abandon;
mod adopted;
mod api;
mod bells;
mod children;
mod compaction;
mod converse;
mod count;
mod crash;
mod draft;
mod edit;
mod effects;
mod engine;
mod failover;
mod fair_semaphore;
mod follow;
mod gather;
mod journal_cache;
mod keys;
mod lease;
mod list;
mod mailbox;
pub mod messages;
mod notify;
mod offers;
mod prices;
mod prompt;
mod prompt_size;
mod publish;
mod quota;
mod readers;
mod repeats;
mod respond;
mod retention;
mod roster;
mod settings;
mod steering;
mod stored;
mod stream_buffer;
mod submit;
mod sweep;
mod tasks;
mod title;
mod token_meter;
mod tools;
mod usage;
mod watch;
mod watched;
mod worker;
mod worker_message;
mod workers;

pub use api::{
    Abandon, Action, AnswerAction, AnswerInterrupt, AnswerTarget, Answered, EngineError, Enqueue, Enqueued, Reported, Steer, Stop, Stopped,
    ToolResult,
};
pub use compaction::KEPT_BYTES_MAX;
pub use crash::{CrashPoints, UnknownPoint};
pub use engine::{Engine, Parts};
pub use follow::StreamedChunks;
pub use journal_cache::JournalCache;
pub use list::{RunEntry, RunFilter, RunList, RunState, Wait, WaitKind};
pub use notify::Notifications;
pub use prices::PriceTable;
pub use prompt_size::{PROMPT_TOO_LARGE, PromptTooLarge};
pub use quota::{OverQuota, Quota, Quotas, Rate};
pub use readers::{JoinGuard, ReaderGuard, Unread};
pub use repeats::RetryMark;
pub use respond::{Begun, DeferredCalls, Respond, Responded};
pub use retention::{AgedErasure, Retention, erase_aged};
pub use roster::{AgentCatalog, AgentSpec, Excess, agent_tool_name, levels};
pub use settings::Settings;
pub use tools::ClaimRequest;
pub use watch::Watch;
