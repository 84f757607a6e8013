//! The storage port: a small number of verbs, each of which is a whole transaction, and the reads that the engine needs besides them.
//!
//! A verb is a variant of [`Verb`] and a method of [`Store`] with the types of its contract. Both come from the list below, so that a
//! decorator of a store (crash points, tiers, faults) is one function over all verbs, and a caller still has typed methods.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use async_trait::async_trait;
use windlass_kernel::{AgentKey, CallNumber, ConversationId, RunId, Tenant, Timestamp};

use crate::{
    boxes::{NewPack, Packed},
    conversations::{ConversationChange, Conversed},
    names::CommitKind,
    open_requests::{LostRequest, OpenRequest, ReaderRecord},
    reports::{NewReport, Taken},
    request::{Enqueued, NewRun},
    retention::{AgedPage, AgedScan},
    store::{
        Abandoned, CallClaim, ClaimedCall, Commit, Committed, DeltaBatch, GivenUp, Guard, Loaded, MessageId, NodeId, OutboxRow, Withdrawn,
    },
    store_error::StoreError,
    tenant::{TenantCursor, TenantErasure},
    usage::{Day, RunUsage, UsageRow},
};

/// A verb or a read that was sent to a store. It resolves to the answer with its own type.
#[must_use = "a store does nothing until its answer is awaited"]
pub struct Answering<'a, A, T> {
    answer: Pin<Box<dyn Future<Output = Result<A, StoreError>> + Send + 'a>>,
    take: fn(A) -> Option<T>,
}

impl<A, T> Future for Answering<'_, A, T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let take = self.take;
        let typed = |answer| take(answer).ok_or_else(|| StoreError::Corrupt("the store gave the answer to another verb".into()));
        self.answer.as_mut().poll(context).map(|answer| answer.and_then(typed))
    }
}

/// Makes the enums, and the trait with a typed method for each of their variants. The types after a variant are its fields: a large
/// argument is boxed there.
macro_rules! store {
    (
        writes {
            $($(#[$write_doc:meta])* $verb:ident($($field:ty),*) = $write:ident($($arg:ident: $arg_type:ty),*) -> $written:ty;)+
        }
        reads<$life:lifetime> {
            $($(#[$read_doc:meta])* $query:ident($($key_field:ty),*) = $read:ident($($key:ident: $key_type:ty),*) -> $found:ty;)+
        }
    ) => {
        /// A write of the store: one transaction. The method of [`Store`] that each variant names says what it does.
        #[derive(Clone, Debug)]
        pub enum Verb {
            $(
                #[doc = concat!("[`Store::", stringify!($write), "`].")]
                $verb($($field),*),
            )+
        }

        /// The answer to a verb.
        #[derive(Debug)]
        pub enum Written {
            $(
                #[doc = concat!("The answer to [`Verb::", stringify!($verb), "`].")]
                $verb($written),
            )+
        }

        impl Verb {
            /// The name of the verb's method.
            pub fn name(&self) -> &'static str {
                match self { $(Verb::$verb(..) => stringify!($write),)+ }
            }
        }

        /// A read of the store for the engine's work. Reads for the APIs are in [`Views`](crate::Views).
        #[derive(Clone, Debug)]
        pub enum Query<$life> {
            $(
                #[doc = concat!("[`Store::", stringify!($read), "`].")]
                $query($($key_field),*),
            )+
        }

        /// The answer to a query.
        #[derive(Debug)]
        #[expect(clippy::large_enum_variant, reason = "most answers are those of `load`, and none is kept")]
        pub enum Found {
            $(
                #[doc = concat!("The answer to [`Query::", stringify!($query), "`].")]
                $query($found),
            )+
        }

        /// The durable state of all runs. A store implements `write`, `read` and `record_reader`; the typed methods of the verbs and
        /// queries are provided, and an implementation does not replace them, because decorators only see `write` and `read`.
        #[async_trait]
        pub trait Store: Send + Sync {
            /// Applies a verb. After `Ok` it is on disk. After an error it may be, and the caller sends the same verb again. The answer is
            /// the variant of [`Written`] with the verb's name.
            async fn write(&self, verb: Verb) -> Result<Written, StoreError>;

            /// Answers a query, with the variant of [`Found`] that has the query's name.
            async fn read<$life>(&$life self, query: Query<$life>) -> Result<Found, StoreError>;

            /// Records what happened to the client of an open request. The record is written together with the next commit and causes no
            /// flush of its own, so that a crash may lose it; a lost record counts as absent. A request that another server has adopted is
            /// not changed.
            fn record_reader(&self, record: ReaderRecord);

            $(
                $(#[$write_doc])*
                fn $write(&self, $($arg: $arg_type),*) -> Answering<'_, Written, $written> {
                    let take = |answer| if let Written::$verb(answer) = answer { Some(answer) } else { None };
                    Answering { answer: self.write(Verb::$verb($($arg.into()),*)), take }
                }
            )+
            $(
                $(#[$read_doc])*
                fn $read<$life>(&$life self, $($key: $key_type),*) -> Answering<$life, Found, $found> {
                    let take = |answer| if let Found::$query(answer) = answer { Some(answer) } else { None };
                    Answering { answer: self.read(Query::$query($($key),*)), take }
                }
            )+
        }
    };
}

store! {
    writes {
        /// Records a run with its first inbox message, its boxes and its first event. If the agent is idle it is leased to the run, and if
        /// the request has a commit for that, the run is entered too. A repeated dedupe key returns the first run and changes nothing.
        Enqueue(Box<NewRun>) = enqueue(run: NewRun) -> Enqueued;

        /// Applies a transition whole, if the guard still holds. A commit that was applied before succeeds again and changes nothing. When
        /// the run ends and another is queued, the agent is leased to that one in the same transaction.
        Commit(Guard, Box<Commit>) = commit(guard: Guard, commit: Commit) -> Committed;

        /// Stores a batch of deltas before readers see them, if the run is still active under this epoch. The same batch again changes
        /// nothing. The commit that puts the text into an item deletes the deltas.
        AppendDeltas(DeltaBatch) = append_deltas(batch: DeltaBatch) -> ();

        /// Ends a run that is still queued. Any other run is left as it is.
        Withdraw(AgentKey, Box<Commit>) = withdraw(agent: AgentKey, commit: Commit) -> Withdrawn;

        /// Adds a report from outside the owner. It waits in the inbox until the owner takes it. A repeated report changes nothing.
        Report(Box<NewReport>) = report(report: NewReport) -> Taken;

        /// Renews the lease of a server process, by the store's own clock. Returns processes whose lease has ended: `orphans` finds their
        /// runs.
        Beat(NodeId, u64) = beat(node: NodeId, lease_ms: u64) -> Vec<NodeId>;

        /// Deletes processes whose lease has ended and that own no runs any more. A process that renews its lease later is recorded again.
        Bury(Vec<NodeId>) = bury(nodes: Vec<NodeId>) -> ();

        /// Leases waiting calls of a tool to a worker of a tool service, oldest first. A repeated key gives the same calls.
        ClaimCalls(CallClaim) = claim_calls(claim: CallClaim) -> Vec<ClaimedCall>;

        /// Prolongs a worker's leases on calls. Returns the calls that it no longer holds.
        RenewCalls(CallClaim, Vec<(RunId, CallNumber)>) =
            renew_calls(claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Vec<(RunId, CallNumber)>;

        /// Gives calls back unstarted. Returns the calls that the worker no longer held. A repeated request gets the same answer.
        ReleaseCalls(CallClaim, Vec<(RunId, CallNumber)>) =
            release_calls(claim: CallClaim, calls: Vec<(RunId, CallNumber)>) -> Vec<(RunId, CallNumber)>;

        /// Makes a box of ranges of other boxes and of new items. This is how agents share content. Nothing is stored unless the outcome is
        /// `Packed::Done`.
        Pack(NewPack) = pack(pack: NewPack) -> Packed;

        /// Quarantines an agent whose run can't be read: the head is suspended with no deadline, and the reason is stored. An agent that
        /// has another run by now is left as it is.
        Quarantine(AgentKey, RunId, String) = quarantine(agent: AgentKey, run: RunId, reason: String) -> ();

        /// Ends the run that an agent was quarantined for, as failed, and leases the agent to the next run. The stored rows of the run need
        /// not be readable.
        Abandon(AgentKey, Box<GivenUp>) = abandon(agent: AgentKey, given_up: GivenUp) -> Abandoned;

        /// Erases the input and output of an ended run for good: content, journal and note. A skeleton stays: id, times, status and usage.
        /// Content that another run reads stays with that run. A run that has not ended is left as it is.
        Erase(Tenant, RunId) = erase(tenant: Tenant, run: RunId) -> ();

        /// Erases a batch of everything that a tenant has, including its runs, conversations, manifests and sums of usage: at most about
        /// `limit` rows of a table are read or deleted. Nothing is changed while the tenant has a run that has not ended. The same batch
        /// again deletes what is left of it.
        EraseTenant(Tenant, TenantCursor, usize) =
            erase_tenant(tenant: Tenant, from: TenantCursor, limit: usize) -> TenantErasure;

        /// Empties a log file of the store that may still have erased content, if something was erased and the file was not emptied within
        /// the last minute. A store without such a file, or whose log belongs to the operator, does nothing.
        EmptyLog(Timestamp) = empty_log(now: Timestamp) -> ();

        /// Changes a conversation, unless one of its runs has not ended. The same change again changes nothing.
        Converse(Tenant, ConversationId, ConversationChange, Timestamp) =
            converse(tenant: Tenant, id: ConversationId, change: ConversationChange, now: Timestamp) -> Conversed;

        /// Refuses a message that breaks the protocol: its status becomes `error`, and nothing else changes.
        Refuse(AgentKey, MessageId, String) = refuse(agent: AgentKey, message: MessageId, reason: String) -> ();

        /// Deletes outbox rows by their numbers, after they were published.
        Published(Vec<u64>) = published(rows: Vec<u64>) -> ();

        /// Writes everything that `record_reader` was given. A server calls it when it stops.
        FlushReaders() = flush_readers() -> ();

        /// Makes an open request belong to `node` if it still belongs to `request.node`. False if it does not: the client has its answer by
        /// now, or another server adopted the request.
        AdoptRequest(OpenRequest, NodeId) = adopt_request(request: OpenRequest, node: NodeId) -> bool;

        /// Adds rows to the sums and removes the runs that they consist of from `uncounted_usage`, in one transaction. False if one of
        /// these runs was counted meanwhile; then nothing changes.
        AddUsage(Vec<RunId>, Vec<UsageRow>) = add_usage(runs: Vec<RunId>, rows: Vec<UsageRow>) -> bool;

        /// Deletes the sums of days before this one.
        ForgetUsage(Day) = forget_usage(before: Day) -> ();
    }

    reads<'a> {
        /// Reads an agent's head, its active run and its pending messages, oldest first. `None` if the agent never had a run. Reading does
        /// not make the caller the owner: the guard of its next commit does.
        Load(&'a AgentKey) = load(agent: &'a AgentKey) -> Option<Loaded>;

        /// Agents that need attention by `now`, oldest first.
        Due(Timestamp, usize) = due(now: Timestamp, limit: usize) -> Vec<AgentKey>;

        /// Agents with unfinished work whose owner is neither this process nor another live one. The list starts after `after`, in the
        /// order of the keys.
        Orphans(NodeId, Option<AgentKey>, usize) =
            orphans(node: NodeId, after: Option<AgentKey>, limit: usize) -> Vec<AgentKey>;

        /// Runs whose own time to be erased has passed, oldest first.
        Erasable(Timestamp, usize) = erasable(now: Timestamp, limit: usize) -> Vec<(Tenant, RunId)>;

        /// Ended runs of a tenant that are old enough to be erased, in the order in which they were accepted. Left out are runs that are
        /// not listed (erased already, or with a time of their own, which `erasable` finds), runs that an open run continues or whose calls
        /// it inherits, and runs of a conversation that exists.
        Aged(&'a AgedScan) = aged(scan: &'a AgedScan) -> AgedPage;

        /// Journal ranges that are to be published, oldest first.
        Outbox(usize) = outbox(limit: usize) -> Vec<OutboxRow>;

        /// At most `limit` open requests that belong neither to `node` nor to another live server.
        LostRequests(NodeId, usize) = lost_requests(node: NodeId, limit: usize) -> Vec<LostRequest>;

        /// At most `limit` ended runs whose usage is in no sum yet. Empty unless the store was opened to count usage.
        UncountedUsage(usize) = uncounted_usage(limit: usize) -> Vec<RunUsage>;
    }
}

impl Verb {
    /// The kind of the verb's commit, for crash points. `None` for a write that has no crash points: it belongs to no run, or is repeated
    /// until it is done.
    pub fn kind(&self) -> Option<CommitKind> {
        match self {
            Verb::Enqueue(_) => Some(CommitKind::Enqueue),
            Verb::Commit(_, commit) | Verb::Withdraw(_, commit) => Some(commit.kind),
            Verb::AppendDeltas(_) => Some(CommitKind::Announce),
            Verb::Report(_) => Some(CommitKind::Report),
            Verb::ClaimCalls(_) => Some(CommitKind::Claim),
            Verb::RenewCalls(..) => Some(CommitKind::Renew),
            Verb::ReleaseCalls(..) => Some(CommitKind::Release),
            Verb::Pack(_) => Some(CommitKind::Pack),
            Verb::Quarantine(..) => Some(CommitKind::Quarantine),
            Verb::Abandon(..) => Some(CommitKind::Abandon),
            Verb::Erase(..) => Some(CommitKind::Erase),
            Verb::Converse(..) => Some(CommitKind::Converse),
            Verb::Refuse(..) => Some(CommitKind::Refuse),
            Verb::Beat(..) | Verb::Bury(_) | Verb::EraseTenant(..) | Verb::EmptyLog(_) | Verb::Published(_) => None,
            Verb::FlushReaders() | Verb::AdoptRequest(..) | Verb::AddUsage(..) | Verb::ForgetUsage(_) => None,
        }
    }
}
