//! Facts about the work of a server, for metrics.

use windlass_kernel::{AgentKey, AgentName, EffectClass, EndReason, FailureCode, RunId, TaskStatus, Usage};

/// Counts facts. The engine and the stores only know this trait, not the library that exports the numbers.
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

/// One fact. Names are those of the run: a meter must map them to a bounded set of label values.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// After its start the engine took over this many runs that lost servers had not finished.
    RunsResumed(usize),
    /// A worker entered a run for the first time.
    RunStarted {
        /// The agent of the run.
        agent: &'a AgentKey,
        /// The run.
        run: RunId,
        /// How long the run waited for a worker, if its id says when it was made.
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
    /// A call of a tool has a result.
    CallEnded {
        /// The tool.
        tool: &'a str,
        /// What repeating the call would do.
        effect: EffectClass,
        /// How the call ended.
        status: TaskStatus,
        /// Milliseconds since the call was made, if known.
        ms: Option<u64>,
    },
    /// A model call waits for a permit of its provider.
    ModelQueued(&'a str),
    /// A model call that waited got its permit, or was cancelled.
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
    /// A store failed a request.
    StoreFailed(StoreFailure),
    /// A pass of the sweep is over.
    Swept,
    /// A request was refused because its tenant would use more than its quota.
    OverQuota(QuotaKind),
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Requests in a period.
    Requests,
    /// Runs that have not ended.
    Runs,
    /// Tokens per day.
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

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun<'a> {
    /// The agent of the run.
    pub agent: &'a AgentKey,
    /// The run.
    pub run: RunId,
    /// How the run ended.
    pub status: TaskStatus,
    /// Why the run ended.
    pub reason: &'a EndReason,
    /// The number of its iterations.
    pub iterations: u32,
    /// The number of its calls.
    pub calls: u32,
    /// The tokens that it used.
    pub usage: Usage,
    /// Milliseconds since its first iteration began; 0 if none began.
    pub ms: u64,
}

/// A model call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct ModelCalled<'a> {
    /// The model as the run asked for it.
    pub model: &'a str,
    /// The agent of the run.
    pub agent: &'a AgentName,
    /// The code of its failure; `None` if it gave a reply.
    pub code: Option<&'a FailureCode>,
    /// Milliseconds since it was sent; `None` if it never was.
    pub ms: Option<u64>,
    /// Milliseconds until the first token.
    pub first_token_ms: Option<u64>,
    /// The tokens that the provider reported.
    pub usage: Usage,
}

/// Why a store failed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreFailure {
    /// The database does not answer, or takes no writes.
    Unavailable,
    /// Stored rows can't be read.
    Corrupt,
}
