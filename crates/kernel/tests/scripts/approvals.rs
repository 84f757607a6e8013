//! Calls that a rule holds until people approve them (S11).

use expect_test::expect;

use crate::support::check;

#[test]
fn s_11_a_held_call_is_not_owed_until_a_person_approves_it() {
    check(
        "tools: pay write 5000ms, look\ngates: write",
        "
entered
reply: look, pay
report 1 success
report 2 success
at 9000
expired?
answer approve 2 by ann
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, pay -> replied(1 look, 2 pay), interrupted(approval 2) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
            report 1 success -> reported(1 success) = suspended, waits for 1 without deadline
            report 2 success -> ignored(tool_result 2: held) = suspended, waits for 1 without deadline
            at 9000
            expired? nothing
            answer approve 2 by ann -> resolved(approved by ann until 14000) [start_tool 2] = suspended, waits for 1 until 14000
            report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2' = running
        "#]],
    );
}

#[test]
fn s_11_only_what_was_shown_can_be_approved() {
    check(
        "tools: pay write\ngates: pay",
        "
entered
reply: pay
answer approve 1 unseen
answer record 1 success
answer release 1
lease_ended 1
answer approve 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            answer approve 1 unseen -> ignored(answer: not_shown) = suspended, waits for 1 without deadline
            answer record 1 success -> ignored(answer: unfit_decision) = suspended, waits for 1 without deadline
            answer release 1 -> ignored(answer: unfit_decision) = suspended, waits for 1 without deadline
            lease_ended 1 -> ignored(lease_ended 1: already_reported) = suspended, waits for 1 without deadline
            answer approve 1 -> resolved(approved until 60000) [start_tool 1] = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn s_11_the_first_answer_wins() {
    check(
        "tools: pay write\ngates: pay",
        "
entered
reply: pay
answer reject 1 too much
answer approve 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            answer reject 1 too much -> resolved(rejected), reported(1 failed), lap_started(2) [call_model 2] +result 1 rejected: a person rejected this call; it was not made. They say: too much = running
            answer approve 1 -> ignored(answer: not_parked) = running
        "#]],
    );
}

#[test]
fn two_people_approve_and_one_person_counts_once() {
    check(
        "tools: pay write\ngates: pay twice",
        "
entered
reply: pay
answer approve 1 by ann
answer approve 1 by ann
answer approve 1 by bob
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1 needs 2) +call 1 = suspended, waits for 1 without deadline
            answer approve 1 by ann -> approved(by ann) = suspended, waits for 1 without deadline
            answer approve 1 by ann -> ignored(answer: already_approved) = suspended, waits for 1 without deadline
            answer approve 1 by bob -> resolved(approved by bob until 60000) [start_tool 1] = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn s_11_an_edit_is_its_authors_approval_of_the_new_arguments() {
    check(
        "tools: pay write 5000ms, look\ngates: pay",
        "
entered
reply: look, pay
answer edit 1 by ann
answer edit 2 unseen
at 1000
answer edit 2 by ann
answer approve 2 by bob
report 1 success
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, pay -> replied(1 look, 2 pay), interrupted(approval 2) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
            answer edit 1 by ann -> ignored(answer: not_parked) = suspended, waits for 2 until 60000
            answer edit 2 unseen -> ignored(answer: not_shown) = suspended, waits for 2 until 60000
            at 1000
            answer edit 2 by ann -> edited(2 by ann), resolved(approved by ann until 6000) [start_tool 2] +edited call 2' = suspended, waits for 2 until 6000
            answer approve 2 by bob -> ignored(answer: not_parked) = suspended, waits for 2 until 6000
            report 1 success -> reported(1 success) = suspended, waits for 1 until 6000
            report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
        "#]],
    );
}

#[test]
fn s_11_an_edit_empties_the_approvals_of_the_earlier_arguments() {
    check(
        "tools: pay write\ngates: pay twice",
        "
entered
reply: pay
answer approve 1 by bob
answer edit 1 by ann
answer approve 1 by ann
owed?
answer approve 1 by bob
owed?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1 needs 2) +call 1 = suspended, waits for 1 without deadline
            answer approve 1 by bob -> approved(by bob) = suspended, waits for 1 without deadline
            answer edit 1 by ann -> edited(1 by ann) +edited call 1 = suspended, waits for 1 without deadline
            answer approve 1 by ann -> ignored(answer: already_approved) = suspended, waits for 1 without deadline
            owed? nothing
            answer approve 1 by bob -> resolved(approved by bob until 60000) [start_tool 1] = suspended, waits for 1 until 60000
            owed? start_tool 1
        "#]],
    );
}

#[test]
fn a_rejection_by_one_is_enough() {
    check(
        "tools: pay write\ngates: pay twice",
        "
entered
reply: pay
answer approve 1 by ann
answer reject 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1 needs 2) +call 1 = suspended, waits for 1 without deadline
            answer approve 1 by ann -> approved(by ann) = suspended, waits for 1 without deadline
            answer reject 1 -> resolved(rejected), reported(1 failed), lap_started(2) [call_model 2] +result 1 rejected: a person rejected this call; it was not made = running
        "#]],
    );
}

#[test]
fn without_a_decision_the_rule_decides() {
    for (rule, what) in [
        (
            "pay 2000ms",
            expect![[r#"
                entered -> leased, lap_started(1) [call_model 1] = running
                reply: pay -> replied(1 pay), interrupted(approval 1 until 2000) +call 1 = suspended, waits for 1 until 2000
                timeout 1 -> ignored(timeout 1: held) = suspended, waits for 1 until 2000
                at 2000
                answer timeout 1 -> resolved(timed_out), reported(1 failed), lap_started(2) [call_model 2] +result 1 approval_timed_out: no person approved this call in time; it was not made = running
            "#]],
        ),
        (
            "pay 2000ms approve",
            expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: pay -> replied(1 pay), interrupted(approval 1 until 2000) +call 1 = suspended, waits for 1 until 2000
        timeout 1 -> ignored(timeout 1: held) = suspended, waits for 1 until 2000
        at 2000
        answer timeout 1 -> resolved(timed_out until 62000) [start_tool 1] = suspended, waits for 1 until 62000
    "#]],
        ),
        (
            "pay 2000ms end",
            expect![[r#"
                entered -> leased, lap_started(1) [call_model 1] = running
                reply: pay -> replied(1 pay), interrupted(approval 1 until 2000) +call 1 = suspended, waits for 1 until 2000
                timeout 1 -> ignored(timeout 1: held) = suspended, waits for 1 until 2000
                at 2000
                answer timeout 1 -> resolved(timed_out), ended(canceled stopped) +deliverable {"text":"ended because no person decided in time"} = idle
            "#]],
        ),
    ] {
        check(
            &format!("tools: pay write\ngates: {rule}"),
            "
entered
reply: pay
timeout 1
at 2000
answer timeout 1
",
            what,
        );
    }
}

#[test]
fn a_run_that_read_untrusted_results_asks_before_it_writes() {
    check(
        "tools: search untrusted, pay write, note\ngates: tainted write",
        "
entered
reply: pay
report 1 success
reply: search
report 2 success
reply: pay, note
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            reply: search -> replied(2 search) [start_tool 2] +call 2 = suspended, waits for 1 until 60000
            report 2 success -> reported(2 success), lap_started(3) [call_model 3] +result 2 = running
            reply: pay, note -> replied(3 pay, 4 note), interrupted(approval 3) [start_tool 4] +call 3 +call 4 = suspended, waits for 2 until 60000
        "#]],
    );
}

#[test]
fn the_first_rule_that_matches_counts() {
    check(
        "tools: pay_bill write, pay_fine write\ngates: pay_b* 1000ms, pay_* 7000ms",
        "
entered
reply: pay_bill, pay_fine
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay_bill, pay_fine -> replied(1 pay_bill, 2 pay_fine), interrupted(approval 1 until 1000), interrupted(approval 2 until 7000) +call 1 +call 2 = suspended, waits for 2 until 1000
        "#]],
    );
}

#[test]
fn a_takeover_leaves_a_held_call_as_it_is() {
    check(
        "tools: pay write, file write\ngates: pay",
        "
entered
reply: pay, file
taken over
answer approve 1
taken over
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, file -> replied(1 pay, 2 file), interrupted(approval 1) [start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 2) = suspended, waits for 2 without deadline
            answer approve 1 -> resolved(approved until 60000) [start_tool 1] = suspended, waits for 2 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 2 without deadline
        "#]],
    );
}

#[test]
fn an_action_is_held_too() {
    check(
        "origin: action\ntools: pay write\ngates: pay",
        "
entered pay
answer approve 1
report 1 success
",
        expect![[r#"
            entered pay -> leased, action_started(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            answer approve 1 -> resolved(approved until 60000) [start_tool 1] = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), ended(success terminated) +result 1 +deliverable {"fields":[{"name":"pay","item_id":"result 1"}]} = idle
        "#]],
    );
}

#[test]
fn a_person_ends_a_held_run() {
    check(
        "tools: pay write",
        "
entered
panicked
answer end
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            panicked -> interrupted(panicked) = suspended, held by panicked
            answer end -> resolved(ended), ended(canceled stopped) +deliverable {"text":"ended by a person"} = idle
        "#]],
    );
}

#[test]
fn an_approval_starts_nothing_once_the_time_is_up() {
    for (parks, what) in [
        (
            "",
            expect![[r#"
                entered -> leased, lap_started(1) [call_model 1] = running
                reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
                at 5000
                answer approve 1 -> resolved(approved until 5500) [start_tool 1] = suspended, waits for 1 until 5500
                answer raise 9000 -> ignored(answer: not_parked) = suspended, waits for 1 until 5500
            "#]],
        ),
        (
            "budgets_park: yes",
            expect![[r#"
                entered -> leased, lap_started(1) [call_model 1] = running
                reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
                at 5000
                answer approve 1 -> resolved(approved until 5500) [start_tool 1] = suspended, waits for 1 until 5500
                answer raise 9000 -> ignored(answer: not_parked) = suspended, waits for 1 until 5500
            "#]],
        ),
    ] {
        check(
            &format!("tools: pay write 500ms\ngates: pay\nbudgets: 1000 wall_ms\n{parks}"),
            "
entered
reply: pay
at 5000
answer approve 1
answer raise 9000
",
            what,
        );
    }
}
