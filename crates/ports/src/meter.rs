//! Facts about the work of a server, for metrics.

use windlass_kernel::{AgentKey, AgentName, EffectClass, EndReason, RunId, TaskStatus, Usage};

/// Counts facts. The engine and the stores know this trait only, not the library that exports what was counted.
pub trait Meter: Send + Sync {
    /// Counts one fact. It is called on hot paths: an implementation must not wait, and should not allocate.
    fn record(&self, fact: Fact<'_>);
}

/// A meter that counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMeter;

impl Meter for NoMeter {
    fn record(&self, _: Fact<'_>) {}
}

/// One fact. Names are as the run has them: a meter must map them to a bounded set of label values.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// After its start the engine looked for runs that lost servers left in the middle of something, and took over this many.
    RunsResumed(usize),
    /// A worker entered a run for the first time.
    RunStarted {
        /// Its agent.
        agent: &'a AgentKey,
        /// The run.
        run: RunId,
        /// How long it waited for that, if its id says when it was made.
        waited_ms: Option<u64>,
    },
    /// A run ended.
    RunEnded(EndedRun<'a>),
    /// An iteration of a run began.
    IterationStarted(&'a AgentName),
    /// This server took a run over from a lost one.
    TakenOver(&'a AgentName),
    /// A commit was refused because another server had moved the run on.
    Fenced,
    /// A call was parked: its outcome is unknown, and it must not run twice.
    CallParked(&'a str),
    /// A call of a tool got its result.
    CallEnded {
        /// The tool.
        tool: &'a str,
        /// What a second start would do.
        effect: EffectClass,
        /// How it ended.
        status: TaskStatus,
        /// Milliseconds since the call was made, if that is known.
        ms: Option<u64>,
    },
    /// A model call waits for a permit of its provider.
    ModelQueued(&'a str),
    /// It waits no longer.
    ModelDequeued(&'a str),
    /// A model call ended.
    ModelCalled(ModelCalled<'a>),
    /// A store committed a group of requests.
    GroupCommitted {
        /// How many requests the group had.
        requests: usize,
        /// How long it took, the flush included.
        micros: u64,
    },
    /// A store did not do what it was asked for.
    StoreFailed(StoreFailure),
    /// A pass of the sweep is over.
    Swept,
    /// A request was refused because its tenant would use more than its quota.
    OverQuota(QuotaKind),
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Requests in a time.
    Requests,
    /// Runs that have not ended.
    Runs,
    /// Tokens of a day.
    Tokens,
    /// Bytes of stored content.
    Bytes,
}

impl QuotaKind {
    /// The name of the setting.
    pub fn name(self) -> &'static str {
        match self {
            QuotaKind::Requests => "requests_per_second",
            QuotaKind::Runs => "runs_queued",
            QuotaKind::Tokens => "tokens_per_day",
            QuotaKind::Bytes => "bytes_stored",
        }
    }
}

/// A run at its end.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun<'a> {
    /// Its agent.
    pub agent: &'a AgentKey,
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub status: TaskStatus,
    /// Why it ended.
    pub reason: &'a EndReason,
    /// Its iterations.
    pub iterations: u32,
    /// Its calls.
    pub calls: u32,
    /// Its tokens.
    pub usage: Usage,
    /// Milliseconds since its first iteration began; 0 if none did.
    pub ms: u64,
}

/// A model call at its end.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalled<'a> {
    /// The model, as the run asked for it.
    pub model: &'a str,
    /// The agent of the run.
    pub agent: &'a AgentName,
    /// The code of its failure; `None` if it gave a reply.
    pub code: Option<&'a str>,
    /// Milliseconds since it was sent; `None` if it never was.
    pub ms: Option<u64>,
    /// Milliseconds until its first token.
    pub first_token_ms: Option<u64>,
    /// Its tokens, as far as the provider reported them.
    pub usage: Usage,
}

/// Why a store did not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreFailure {
    /// It does not answer, or takes no writes.
    Unavailable,
    /// What is stored makes no sense.
    Corrupt,
}
