//! A call whose tool reports a failure is repeated under its number after a pause.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_reported_failure_is_repeated_after_a_pause_that_doubles() {
    check(
        "tools: get retry=2/100ms 1000ms, look",
        "
entered
reply: get, look
at 10
report 1 failed
owed?
report 1 success
due 1
report 2 success
expired?
at 110
due 1
owed?
stale 1
at 200
report 1 failed
at 400
due 1
report 1 failed
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: get, look -> replied(1 get, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 1000
            at 10
            report 1 failed -> call_retried(1 for the 1. time at 110) = suspended, waits for 2 until 110
            owed? start_tool 2
            report 1 success -> ignored(tool_result 1: already_reported) = suspended, waits for 2 until 110
            due 1 -> ignored(retry_due 1: not_waiting) = suspended, waits for 2 until 110
            report 2 success -> reported(2 success) = suspended, waits for 1 until 110
            expired? nothing
            at 110
            due 1 -> call_released(1 until 1110) [start_tool 1] = suspended, waits for 1 until 1110
            owed? start_tool 1
            stale 1 -> ignored(tool_result 1: already_reported) = suspended, waits for 1 until 1110
            at 200
            report 1 failed -> call_retried(1 for the 2. time at 400) = suspended, waits for 1 until 400
            at 400
            due 1 -> call_released(1 until 1400) [start_tool 1] = suspended, waits for 1 until 1400
            report 1 failed -> reported(1 failed), lap_started(2) [call_model 2] +result 1'''' +result 2 = running
        "#]],
    );
}

#[test]
fn only_a_failure_that_the_tool_reports_is_repeated() {
    for report in ["report 1 canceled", "report 1 partial", "timeout 1", "report 1 failed terminate"] {
        let transcript = crate::support::play("tools: get external retry=2/100ms", &format!("entered\nreply: get\n{report}"));
        assert!(!transcript.contains("call_retried"), "{transcript}");
    }
}

#[test]
fn s_06_a_write_that_a_crash_cut_waits_for_a_person_also_in_a_repetition() {
    check(
        "tools: pay write retry=2/100ms",
        "
entered
reply: pay
report 1 failed
taken over
at 100
due 1
taken over
report 1 failed
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 failed -> call_retried(1 for the 1. time at 100) = suspended, waits for 1 until 100
            taken over -> taken_over = suspended, waits for 1 until 100
            at 100
            due 1 -> call_released(1 until 60100) [start_tool 1] = suspended, waits for 1 until 60100
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            report 1 failed -> reported(1 failed), lap_started(2) [call_model 2] +result 1' = running
        "#]],
    );
}

#[test]
fn an_external_call_can_be_claimed_again_after_the_pause() {
    check(
        "tools: get external retry=1/100ms",
        "
entered
reply: get
report 1 failed
lease_ended 1
at 100
due 1
timeout 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: get -> replied(1 get) +call 1 = suspended, waits for 1 until 60000
            report 1 failed -> call_retried(1 for the 1. time at 100) = suspended, waits for 1 until 100
            lease_ended 1 -> ignored(lease_ended 1: already_reported) = suspended, waits for 1 until 100
            at 100
            due 1 -> call_released(1 until 60100) = suspended, waits for 1 until 60100
            timeout 1 -> reported(1 timeout), lap_started(2) [call_model 2] +result 1' = running
        "#]],
    );
}

#[test]
fn a_failure_is_the_result_if_the_wall_time_is_over_before_the_repetition() {
    check(
        "tools: get retry=1/100ms\nbudgets: 150 wall_ms",
        "
entered
reply: get, get
report 1 failed
at 60
report 2 failed
at 200
due 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: get, get -> replied(1 get, 2 get) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 150
            report 1 failed -> call_retried(1 for the 1. time at 100) = suspended, waits for 2 until 100
            at 60
            report 2 failed -> reported(2 failed) = suspended, waits for 1 until 100
            at 200
            due 1 -> reported(1 failed), budget_breached(wall_ms 200 of 150), ended(partial budget wall_ms) +result 1 budget_used_up: the call failed, and the budget of 150 wall_ms was used up before it could be repeated +result 2 +deliverable {"text":"stopped by the budget: wall_ms would be 200, 150 allowed"} = idle
        "#]],
    );
}

#[test]
fn a_held_run_repeats_nothing_until_it_goes_on() {
    check(
        "tools: get retry=1/100ms",
        "
entered
reply: get
report 1 failed
panicked
at 100
due 1
head?
answer resume
due 1
report 1 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: get -> replied(1 get) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 failed -> call_retried(1 for the 1. time at 100) = suspended, waits for 1 until 100
            panicked -> interrupted(panicked) = suspended, waits for 1 without deadline, held by panicked
            at 100
            due 1 -> ignored(retry_due 1: not_waiting) = suspended, waits for 1 without deadline, held by panicked
            head? suspended
            answer resume -> resolved(resumed) = suspended, waits for 1 until 100
            due 1 -> call_released(1 until 60100) [start_tool 1] = suspended, waits for 1 until 60100
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1' = running
        "#]],
    );
}
