//! The suite that every store must pass, as functions, and the builders of its test data.
//!
//! [`conformance!`](crate::conformance!) makes a test of each case. Each case gets an empty store of its own.
#![expect(clippy::unwrap_used, reason = "these are tests that other crates run: a panic is how they fail")]

pub mod aging;
pub mod children;
pub mod claims;
pub mod content;
pub mod conversations;
pub mod deltas;
pub mod erasing;
pub mod erasing_tenants;
pub mod fencing;
pub mod fixtures;
pub mod interrupts;
pub mod keys;
pub mod lists;
pub mod manifests;
pub mod own_heads;
pub mod publishing;
pub mod races;
pub mod reports;
pub mod requests;
pub mod sweep;
pub mod turns;
pub mod usage;

use std::{any::Any, sync::Arc};

use windlass_ports::{Store, Views};

/// A store with its reads and its writes.
pub trait Full: Store + Views {}

impl<T: Store + Views> Full for T {}

/// A store to be tested, with whatever must live as long as the store.
pub struct Subject {
    /// The store.
    pub store: Arc<dyn Full>,
    // Dropped after the store: a folder must outlive the files in it.
    _keep: Box<dyn Any + Send + Sync>,
}

impl Subject {
    /// A store, and what it needs to keep alive, such as its folder.
    pub fn new(store: impl Full + 'static, keep: impl Any + Send + Sync) -> Self {
        Subject { store: Arc::new(store), _keep: Box::new(keep) }
    }
}

/// Makes a test of each case, for the stores that an `async fn(StoreOptions) -> Subject` makes.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        $crate::conformance! { @each $make, $crate::StoreOptions { publish: false, usage: true };
            usage::tm_13_each_ended_run_is_counted_once;
            usage::tm_13_every_way_to_end_is_counted;
            usage::tm_13_of_two_that_count_the_same_runs_one_adds_them;
            usage::sums_are_grouped_as_they_are_asked_for;
            usage::tm_13_stored_bytes_are_those_of_each_tenant;
            manifests::a_run_that_was_erased_is_counted_under_its_model;
        }
        $crate::conformance! { @each $make, $crate::StoreOptions { publish: false, usage: false };
            usage::without_counting_an_end_leaves_nothing_to_count;
            turns::an_idle_agent_is_entered_at_once;
            turns::without_room_the_run_is_dispatched;
            turns::a_whole_run_folds_to_its_state;
            turns::queued_runs_start_in_their_order;
            turns::an_action_needs_an_idle_agent;
            turns::a_repeated_key_finds_the_first_run;
            turns::a_repeated_run_is_recorded_once;
            turns::too_many_runs_are_refused;
            turns::a_repeated_run_is_found_where_no_other_may_enter;
            turns::a_queued_run_can_be_withdrawn;
            turns::an_unknown_or_foreign_context_is_refused;
            turns::a_run_may_end_as_it_is_entered;
            turns::a_stopped_run_leaves_no_turn_behind;
            turns::a_note_comes_back_with_the_run;
            turns::calls_are_inherited_by_one_run;
            own_heads::a_head_goes_with_the_run_it_was_made_for;
            own_heads::a_run_may_end_before_its_head_is_made;
            own_heads::a_lost_answer_of_the_last_commit_is_success;
            own_heads::a_late_report_needs_no_head;
            own_heads::a_head_with_other_runs_stays;
            own_heads::a_name_that_is_used_again_continues_its_numbers;
            own_heads::an_ended_run_is_in_no_list;
            deltas::deltas_are_read_as_they_were_stored;
            deltas::deltas_are_stored_once;
            deltas::deltas_of_another_owner_are_fenced;
            deltas::deltas_that_do_not_fit_are_refused;
            deltas::a_commit_settles_deltas;
            deltas::a_fenced_commit_settles_nothing;
            deltas::a_failing_commit_settles_nothing;
            deltas::a_fenced_stream_does_not_affect_the_others;
            fencing::a_stale_guard_changes_nothing;
            fencing::a_lost_answer_is_success_once;
            fencing::a_lost_answer_of_the_last_commit_is_success_too;
            fencing::another_owner_raises_the_epoch;
            fencing::of_racing_commits_one_wins;
            fencing::a_failing_member_leaves_no_trace;
            reports::a_report_wakes_a_suspended_agent;
            reports::a_second_report_changes_nothing;
            reports::an_early_report_waits_for_its_call;
            reports::a_late_report_is_recorded;
            reports::an_unknown_or_foreign_run_takes_no_report;
            reports::reports_are_taken_in_the_order_they_came;
            reports::a_report_for_a_queued_run_waits_with_it;
            reports::a_refused_message_no_longer_waits;
            reports::an_instruction_waits_for_the_owner_of_an_active_run;
            reports::every_repetition_of_a_call_has_a_report_of_its_own;
            reports::a_report_of_the_owner_meets_one_from_outside;
            children::the_end_of_a_child_is_the_result_of_a_call;
            children::a_child_is_recorded_once;
            children::a_child_of_a_run_that_does_not_wait_is_refused;
            children::the_end_of_a_parent_stops_its_children;
            children::a_child_whose_parent_has_ended_reports_too_late;
            children::a_child_may_end_as_it_is_entered;
            children::a_call_that_is_given_up_stops_its_child;
            children::children_are_listed_for_their_parent;
            children::a_tree_goes_on_when_one_of_its_runs_is_given_up;
            claims::calls_are_given_oldest_first;
            claims::a_repeated_key_gives_the_same_calls;
            claims::the_end_of_a_lease_is_due;
            claims::a_lease_is_prolonged_or_given_back;
            claims::only_the_holder_keeps_a_call;
            claims::a_call_past_its_deadline_is_not_given;
            claims::calls_of_an_ended_run_are_dropped;
            keys::a_commit_and_its_answer_are_one;
            keys::a_fenced_commit_answers_nothing;
            keys::a_withdrawal_whose_request_was_answered_changes_nothing;
            keys::a_repeated_report_with_a_key_gets_the_same_answer;
            keys::calls_are_given_back_once_under_a_key;
            keys::answers_are_erased_with_their_run;
            keys::a_key_is_found_by_itself_alone;
            requests::a_request_is_open_with_its_run;
            requests::a_record_of_a_reader_is_written_with_the_next_commit;
            requests::an_adopted_request_is_another_servers;
            content::bytes_come_back_as_they_came;
            content::odd_bytes_share_a_group_with_others;
            content::megabytes_share_a_group_with_others;
            content::a_conversation_is_read_through_all_its_boxes;
            content::a_range_is_a_prefix;
            content::boxes_are_packed_into_one;
            content::content_beyond_a_limit_is_not_packed;
            content::a_packs_key_is_not_taken_for_another_request;
            claims::a_claims_key_is_not_taken_for_another_request;
            content::a_tenant_sees_nothing_of_another;
            content::pages_follow_each_other;
            content::edges_follow_the_inbox;
            conversations::added_items_keep_their_order;
            conversations::a_run_continues_a_conversation_and_is_added_when_it_ends;
            conversations::a_run_that_failed_or_was_stopped_is_not_added;
            conversations::a_run_that_waits_begins_after_the_one_before_it;
            conversations::a_run_for_an_outdated_conversation_is_refused;
            conversations::during_a_run_no_item_is_added_or_removed;
            conversations::removed_items_are_not_read_by_later_runs;
            conversations::a_repeated_change_changes_nothing;
            conversations::a_conversation_has_a_limit_of_items;
            conversations::a_deleted_conversation_is_unknown_and_its_runs_are_not;
            conversations::tm_05_items_that_only_a_conversation_held_go_with_it;
            conversations::a_long_conversation_is_read_whole;
            aging::tm_13_old_runs_of_each_api_are_found_in_their_order;
            aging::tm_13_what_an_open_run_goes_on_from_is_left;
            aging::tm_13_runs_of_a_conversation_are_left_until_it_is_deleted;
            erasing_tenants::tm_05_a_tenant_is_erased_whole_and_no_other;
            erasing_tenants::tm_05_a_tenant_with_an_open_run_is_left_as_it_is;
            conversations::an_erased_run_stays_in_its_conversation;
            erasing::a_run_is_erased_its_time_after_its_end;
            erasing::every_way_to_end_counts;
            erasing::a_follow_up_has_an_hour;
            erasing::the_end_of_the_follow_up_ends_the_wait;
            erasing::a_wait_is_never_made_longer;
            erasing::the_content_of_an_erased_run_is_gone;
            erasing::only_an_ended_run_of_the_tenant_is_erased;
            erasing::what_a_follow_up_reads_stays;
            erasing::a_context_stays_without_its_output;
            erasing::copies_of_parents_are_not_erased;
            erasing::what_was_packed_stays;
            erasing::erased_content_can_not_be_read;
            erasing::a_report_after_the_erasure_leaves_no_content;
            manifests::tm_05_a_manifest_is_erased_with_the_last_run_that_has_it;
            manifests::tm_05_a_manifest_belongs_to_one_tenant;
            lists::runs_are_listed_newest_first;
            lists::both_kinds_of_runs_of_an_agent_are_one_list;
            lists::runs_of_a_head_are_listed_by_their_ids;
            lists::queued_runs_are_listed_as_open;
            lists::runs_that_are_not_stored_are_in_no_list;
            lists::agents_are_listed_by_name;
            lists::an_instruction_is_read_in_part;
            lists::a_run_has_the_name_of_its_agent;
            lists::a_call_counts_how_often_it_was_started;
            interrupts::an_open_interrupt_is_listed_for_its_tenant;
            interrupts::approvals_are_recorded_until_there_are_enough;
            interrupts::an_edit_replaces_the_call_and_the_approvals;
            interrupts::every_verdict_is_recorded;
            interrupts::a_held_run_hands_out_no_calls;
            interrupts::the_run_after_a_held_one_is_free;
            interrupts::a_run_may_be_entered_with_an_interrupt;
            interrupts::a_repeated_commit_writes_its_interrupts_once;
            interrupts::interrupts_are_listed_page_by_page_and_filtered;
            interrupts::interrupts_are_erased_with_their_run;
            interrupts::tm_05_interrupts_are_erased_with_their_tenant;
            interrupts::a_run_that_is_given_up_has_no_open_interrupts;
            interrupts::open_interrupts_are_counted_by_cause;
            interrupts::a_run_without_interrupts_has_no_rows;
            sweep::agents_are_due_in_order;
            sweep::a_postponed_model_call_is_due;
            sweep::a_lost_owners_agents_are_orphans;
            sweep::a_quarantined_agent_is_not_due;
            sweep::a_quarantined_agent_continues_when_its_run_is_given_up;
            sweep::pending_messages_of_a_lost_owner_are_due;
            publishing::a_store_that_does_not_publish_has_no_outbox;
        }
        $crate::conformance! { @race $make;
            races::a_stale_guard_stops_nothing;
            races::a_journal_number_is_given_once;
            races::of_racing_requests_one_leases;
            races::of_racing_owners_one_wins;
            races::a_commit_that_races_itself_is_applied_once;
            races::a_stop_and_a_reply_are_one_or_the_other;
            races::of_racing_requests_with_one_key_one_is_recorded;
            races::of_racing_heirs_one_is_recorded;
            races::deltas_that_race_a_takeover_are_stored_or_fenced;
            races::deltas_are_complete_whenever_they_are_read;
            races::of_racing_reports_one_is_recorded;
            races::a_report_that_races_a_suspend_is_counted;
            races::of_racing_services_one_is_given_the_call;
            children::a_child_that_races_the_end_of_its_parent_is_refused_or_stopped;
            children::a_result_that_races_the_parents_commit_is_counted;
            children::children_that_end_at_once_are_all_counted;
            requests::of_racing_adopters_one_has_the_request;
            conversations::of_racing_runs_one_begins_and_no_added_item_is_lost;
            erasing::a_follow_up_that_races_an_erasure_reads_all_or_is_refused;
            erasing::a_pack_that_races_an_erasure_has_all_or_is_refused;
            erasing::a_reader_that_races_an_erasure_has_all_or_nothing;
            manifests::a_run_that_races_the_erasure_of_its_manifest_has_it;
        }
        $crate::conformance! { @each $make, $crate::StoreOptions { publish: true, usage: true };
            publishing::every_event_is_in_the_outbox_once;
        }
    };
    // On several threads, so that the requests are really made at the same time.
    (@race $make:path; $($module:ident::$case:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() {
                let subject = $make($crate::StoreOptions { publish: false, usage: true }).await;
                $crate::conformance::$module::$case(subject.store.clone()).await;
            }
        )+
    };
    (@each $make:path, $options:expr; $($module:ident::$case:ident;)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                let subject = $make($options).await;
                $crate::conformance::$module::$case(subject.store.clone()).await;
            }
        )+
    };
}
