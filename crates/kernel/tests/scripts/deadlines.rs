//! Deadlines of calls.

use expect_test::expect;

use crate::support::check;

#[test]
fn the_deadline_is_the_earliest_of_the_open_calls() {
    check(
        "tools: slow 9000ms, quick 1000ms, middle 4000ms",
        "
at 100
entered
reply: slow, quick, middle
report 2 success
report 3 success
",
        expect![[r#"
    at 100
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: slow, quick, middle -> replied(1 slow, 2 quick, 3 middle) [start_tool 1, start_tool 2, start_tool 3] +call 1 +call 2 +call 3 = suspended, waits for 3 until 1100
    report 2 success -> reported(2 success) = suspended, waits for 2 until 4100
    report 3 success -> reported(3 success) = suspended, waits for 1 until 9100
"#]],
    );
}

#[test]
fn every_call_past_its_deadline_has_expired_and_no_other() {
    check(
        "tools: slow 9000ms, quick 1000ms, middle 4000ms",
        "
entered
expired?
reply: slow, quick, middle
at 999
expired?
at 1000
expired?
report 2 success
expired?
at 9000
expired?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    expired? nothing
    reply: slow, quick, middle -> replied(1 slow, 2 quick, 3 middle) [start_tool 1, start_tool 2, start_tool 3] +call 1 +call 2 +call 3 = suspended, waits for 3 until 1000
    at 999
    expired? nothing
    at 1000
    expired? 2
    report 2 success -> reported(2 success) = suspended, waits for 2 until 4000
    expired? nothing
    at 9000
    expired? 1, 3
"#]],
    );
}

#[test]
fn timeouts_finish_by_the_normal_flow() {
    check(
        "tools: a 1000ms, b 1000ms",
        "
entered
reply: a, b
at 1000
timeout 2
timeout 1
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 1000
    at 1000
    timeout 2 -> reported(2 timeout) = suspended, waits for 1 until 1000
    timeout 1 -> reported(1 timeout), lap_started(2) [call_model 2] +result 1 +result 2 = running
"#]],
    );
}

#[test]
fn a_parked_call_has_no_deadline() {
    check(
        "tools: pay write 1000ms, look 5000ms",
        "
entered
reply: pay, look
taken over
at 3000
expired?
report 2 success
at 99000
expired?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 1000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 2 until 5000
            at 3000
            expired? nothing
            report 2 success -> reported(2 success) = suspended, waits for 1 without deadline
            at 99000
            expired? nothing
        "#]],
    );
}

#[test]
fn a_parked_run_has_no_deadline() {
    check(
        "tools: look 1000ms",
        "
entered
reply: look
panicked
at 5000
expired?
answer resume
expired?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 1000
            panicked -> interrupted(panicked) = suspended, waits for 1 without deadline, held by panicked
            at 5000
            expired? nothing
            answer resume -> resolved(resumed) [start_tool 1] = suspended, waits for 1 until 1000
            expired? 1
        "#]],
    );
}

#[test]
fn a_call_does_not_wait_longer_than_the_run_may_last() {
    check(
        "
tools: slow 9000ms, quick 100ms
budgets: 2000 wall_ms
",
        "
at 1000
entered
at 1500
reply: slow, quick
report 2 success
",
        expect![[r#"
    at 1000
    entered -> leased, lap_started(1) [call_model 1] = running
    at 1500
    reply: slow, quick -> replied(1 slow, 2 quick) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 1600
    report 2 success -> reported(2 success) = suspended, waits for 1 until 3000
"#]],
    );
}

#[test]
fn a_deadline_at_the_end_of_time_is_still_one() {
    check(
        "tools: ever 18446744073709551615ms",
        "
entered
reply: ever
expired?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: ever -> replied(1 ever) [start_tool 1] +call 1 = suspended, waits for 1 without deadline
            expired? nothing
        "#]],
    );
}
