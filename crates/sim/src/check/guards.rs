//! The set of everything that keeps a promise. A check that passes without one of them proves nothing about it.

macro_rules! guards {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $shown:literal);+ $(;)?) => {
        /// One thing that keeps a promise. The comment of each names its place in the product.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Guard { $($(#[$doc])* $name),+ }

        impl Guard {
            /// All of them.
            pub const ALL: &'static [Guard] = &[$(Guard::$name),+];

            /// A description of the guard.
            pub fn as_str(self) -> &'static str {
                match self { $(Guard::$name => $text),+ }
            }

            /// The test that shows the product enforcing it: its folder below `crates`, and its name.
            pub fn shown_by(self) -> (&'static str, &'static str) {
                let shown = match self { $(Guard::$name => $shown),+ };
                shown.split_once("::").unwrap_or(("", shown))
            }
        }
    };
}

guards! {
    /// `commit::holds`, `update_head`, `update_head_fast`: the head's status.
    Status = "a commit names the head's status", "store/src/conformance::a_stale_guard_stops_nothing";
    /// The same places: the head's epoch.
    Epoch = "a commit names the head's epoch", "store/src/conformance::a_stale_guard_changes_nothing";
    /// The same places: the head's active run.
    Run = "a commit names the head's run", "store/src/conformance::a_stale_guard_changes_nothing";
    /// The same places: the head's sequence number.
    Seq = "a commit names the head's count", "store/src/conformance::a_commit_that_races_itself_is_applied_once";
    /// The primary key of `stretches`: a run and the number of the first event.
    JournalNumber = "a journal number is given once", "store/src/conformance::a_journal_number_is_given_once";
    /// `commit::applied_already`: a commit whose answer was lost succeeds when it is sent again.
    AppliedAlready = "applied already is success", "store/src/conformance::a_lost_answer_is_success_once";
    /// `commit::plan`: a change of the owner raises the epoch.
    OwnerRaisesEpoch = "another owner raises the epoch", "store/src/conformance::another_owner_raises_the_epoch";
    /// `commit::plan`: a stop raises the epoch although the owner stays.
    StopRaisesEpoch = "a stop raises the epoch", "store/src/conformance::a_stop_and_a_reply_are_one_or_the_other";
    /// `heads::lease`: a lease raises the epoch.
    LeaseRaisesEpoch = "a lease raises the epoch", "store/src/conformance::queued_runs_start_in_their_order";
    /// `enqueue::begin`: only an idle head is leased, a busy one queues.
    LeaseFromIdle = "only an idle agent is leased", "store/src/conformance::of_racing_requests_one_leases";
    /// `enqueue::recorded_already` and the index `runs_dedupe`.
    UniqueDedupe = "a dedupe key has one run", "store/src/conformance::of_racing_requests_with_one_key_one_is_recorded";
    /// `report::report`, `insert_message` and the index `inbox_run`.
    UniqueReport = "a call has one report", "store/src/conformance::of_racing_reports_one_is_recorded";
    /// `claims::claim_calls`: only a waiting call is leased to a service.
    ClaimWaiting = "only a waiting call is claimed", "store/src/conformance::of_racing_services_one_is_given_the_call";
    /// `heads::show`: a lease that no worker has entered is due.
    DispatchedIsDue = "a lease nobody entered is due", "store/src/conformance::without_room_the_run_is_dispatched";
    /// `report::count`: a report wakes a suspended head.
    ReportIsDue = "a report wakes a suspended agent", "store/src/conformance::a_report_wakes_a_suspended_agent";
    /// `heads::wake_suspended`: a head that suspends over pending messages is due at once.
    PendingIsDue = "a suspend over waiting messages is due", "store/src/conformance::a_report_that_races_a_suspend_is_counted";
    /// `heads::show`: a deadline is due.
    DeadlineIsDue = "a deadline is due", "store/src/conformance::agents_are_due_in_order";
    /// `heads::rearm`: the end of a service's lease is due.
    HoldEndIsDue = "the end of a hold is due", "store/src/conformance::the_end_of_a_lease_is_due";
    /// `heads::show`: the next attempt of a model call is due.
    RetryIsDue = "a postponed model call is due", "store/src/conformance::a_postponed_model_call_is_due";
    /// `Reads::orphans`: unfinished work of a lost owner is found.
    OrphansAreFound = "a lost owner's work is found", "store/src/conformance::a_lost_owners_agents_are_orphans";
    /// `worker::advance`: effects start after the commit that made them owed.
    EffectsAfterCommit = "effects start after their commit", "engine/tests/engine::c_084_a_zombie_drops_its_work_and_starts_nothing";
    /// `worker::commit`: a commit whose answer was lost is sent again unchanged.
    SameCommitAgain = "an unanswered commit is repeated as it was", "engine/tests/engine::a_write_whose_commit_was_not_answered_is_started_once";
    /// `catch_up::has_lost_work`: a new owner gives the kernel the takeover as an input, which parks the lost owner's writes.
    TakeoverIsAnInput = "a takeover is an input", "engine/tests/engine::a_read_cut_by_a_crash_starts_again_with_the_same_key_and_a_write_waits_for_a_person";
    /// `catch_up::belongs_elsewhere`: another process's run is taken over only after its lease has ended.
    TakeOnlyFromLost = "only a lost owner's work is taken", "engine/tests/engine::a_run_is_its_owners_as_long_as_that_one_lives";
    /// `Drafting::thought`: a reply counts only for the iteration and the attempt that asked for it.
    ReplyFitsIteration = "a reply fits its iteration", "engine/tests/engine::a_late_reply_does_not_count_for_another_iteration";
    /// `Worker::load`: a result in the worker's memory counts as in flight.
    ResultInMemory = "a result in memory is not lost", "engine/tests/engine::a_result_that_comes_with_a_look_is_taken";
}

/// The guards that are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guards(u64);

impl Guards {
    /// All guards, as in the product.
    pub fn all() -> Self {
        Guards(u64::MAX)
    }

    /// All guards except these.
    pub fn without(removed: &[Guard]) -> Self {
        Guards(removed.iter().fold(u64::MAX, |set, guard| set & !(1 << *guard as u64)))
    }

    /// Whether a guard is active.
    pub fn has(self, guard: Guard) -> bool {
        self.0 & (1 << guard as u64) != 0
    }
}
