//! S6: a lost owner may have been in the middle of any effect. A write is parked for a person, everything else starts again.

use expect_test::expect;

use crate::support::check;

const ALL: &str = "tools: look, put idempotent, pay write, far external write";

#[test]
fn a_run_taken_over_before_it_was_entered_is_as_it_was() {
    check(
        "",
        "
taken over
owed?
entered
",
        expect![[r#"
    taken over -> taken_over = dispatched
    owed? nothing
    entered -> leased, lap_started(1) [call_model 1] = running
"#]],
    );
}

#[test]
fn a_run_taken_over_during_a_model_call_is_owed_the_same_call() {
    check(
        "",
        "
entered
failed busy retry 500
taken over
owed?
iteration?
reply \"done\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed busy retry 500 -> attempt_failed(busy) [call_model 1 try 2 at 500] = running
    taken over -> taken_over = running
    owed? call_model 1 try 2 at 500
    iteration? 1
    reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
"#]],
    );
}

#[test]
fn s_06_a_write_cut_by_a_crash_parks_and_the_rest_is_owed_again() {
    check(
        ALL,
        "
entered
reply: look, put, pay, far
taken over
owed?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, put, pay, far -> replied(1 look, 2 put, 3 pay, 4 far) [start_tool 1, start_tool 2, start_tool 3] +call 1 +call 2 +call 3 +call 4 = suspended, waits for 4 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 3) = suspended, waits for 4 until 60000
            owed? start_tool 1, start_tool 2
        "#]],
    );
}

#[test]
fn a_call_that_has_its_result_is_not_touched_by_a_takeover() {
    check(
        ALL,
        "
entered
reply: pay, look
report 1 success
taken over
owed?
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    taken over -> taken_over = suspended, waits for 1 until 60000
    owed? start_tool 2
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
"#]],
    );
}

#[test]
fn a_second_takeover_does_not_park_what_is_parked() {
    check(
        ALL,
        "
entered
reply: pay
taken over
taken over
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            taken over -> taken_over = suspended, waits for 1 without deadline
        "#]],
    );
}

#[test]
fn the_result_of_a_parked_call_is_applied_if_it_arrives_after_all() {
    check(
        ALL,
        "
entered
reply: pay
taken over
report 1 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
        "#]],
    );
}

#[test]
fn s_06_a_claimed_write_whose_lease_ended_parks() {
    check(
        "tools: far external write, near write",
        "
entered
reply: far, near
lease_ended 1
lease_ended 1
lease_ended 2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: far, near -> replied(1 far, 2 near) [start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
            lease_ended 1 -> interrupted(unknown_outcome 1) = suspended, waits for 2 until 60000
            lease_ended 1 -> ignored(lease_ended 1: already_reported) = suspended, waits for 2 until 60000
            lease_ended 2 -> interrupted(unknown_outcome 2) = suspended, waits for 2 without deadline
        "#]],
    );
}

#[test]
fn a_claimed_read_whose_lease_ended_waits_for_another_claim() {
    check(
        "tools: look external, put external idempotent",
        "
entered
reply: look, put
lease_ended 1
lease_ended 2
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: look, put -> replied(1 look, 2 put) +call 1 +call 2 = suspended, waits for 2 until 60000
    lease_ended 1 -> lease_ended(1) = suspended, waits for 2 until 60000
    lease_ended 2 -> lease_ended(2) = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
"#]],
    );
}

#[test]
fn five_owners_lost_without_progress_park_the_run() {
    check(
        "tools: a",
        "
entered
taken over
taken over
taken over
taken over
owed?
taken over
owed?
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            owed? call_model 1
            taken over -> taken_over, interrupted(owners_lost) = suspended, held by owners_lost
            owed? nothing
            answer resume -> resolved(resumed) [call_model 1] = running
        "#]],
    );
}

#[test]
fn a_failed_attempt_is_no_progress() {
    check(
        "",
        "
entered
taken over
taken over
failed busy retry 1
taken over
taken over
taken over
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            failed busy retry 1 -> attempt_failed(busy) [call_model 1 try 2 at 1] = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over, interrupted(owners_lost) = suspended, held by owners_lost
        "#]],
    );
}

#[test]
fn a_reply_and_a_result_are_progress() {
    check(
        "tools: a, b",
        "
entered
taken over
taken over
taken over
taken over
reply: a, b
taken over
taken over
taken over
taken over
report 1 success
taken over
taken over
taken over
taken over
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    taken over -> taken_over = running
    taken over -> taken_over = running
    taken over -> taken_over = running
    taken over -> taken_over = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    taken over -> taken_over = suspended, waits for 2 until 60000
    taken over -> taken_over = suspended, waits for 2 until 60000
    taken over -> taken_over = suspended, waits for 2 until 60000
    taken over -> taken_over = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    taken over -> taken_over = suspended, waits for 1 until 60000
    taken over -> taken_over = suspended, waits for 1 until 60000
    taken over -> taken_over = suspended, waits for 1 until 60000
    taken over -> taken_over = suspended, waits for 1 until 60000
"#]],
    );
}

#[test]
fn an_unparked_run_may_lose_five_owners_again() {
    check(
        "",
        "
entered
taken over
taken over
taken over
taken over
taken over
answer resume
taken over
taken over
taken over
taken over
taken over
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over, interrupted(owners_lost) = suspended, held by owners_lost
            answer resume -> resolved(resumed) [call_model 1] = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over = running
            taken over -> taken_over, interrupted(owners_lost) = suspended, held by owners_lost
        "#]],
    );
}
