//! Calls of one iteration run at the same time. The next iteration starts once, when the last result is in.

use expect_test::expect;

use crate::support::check;

const TWO: &str = "tools: a, b";

#[test]
fn c_042_c_045_calls_suspend_the_run_with_a_waiting_set_and_a_deadline() {
    check(
        "tools: a 5000ms, b external 3000ms",
        "
at 100
entered
reply: a, b
",
        expect![[r#"
    at 100
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 3100
"#]],
    );
}

#[test]
fn c_051_c_052_parallel_calls_resume_only_after_the_last_report() {
    check(
        TWO,
        "
entered
reply: a, b
report 1 success
report 2 success
reply \"done\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
    reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
"#]],
    );
}

#[test]
fn c_020_resuming_waits_until_the_count_is_zero() {
    check(
        "tools: a, b, c",
        "
entered
reply: a, b, c
report 3 success
report 2 failed
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b, c -> replied(1 a, 2 b, 3 c) [start_tool 1, start_tool 2, start_tool 3] +call 1 +call 2 +call 3 = suspended, waits for 3 until 60000
    report 3 success -> reported(3 success) = suspended, waits for 2 until 60000
    report 2 failed -> reported(2 failed) = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 +result 2 +result 3 = running
"#]],
    );
}

#[test]
fn c_086_results_are_appended_in_the_order_of_the_calls_whatever_order_they_come_in() {
    check(
        "tools: a, b external, c",
        "
entered
reply \"let me look\": a, b, c
report 3 success
report 1 failed
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "let me look": a, b, c -> replied(1 a, 2 b, 3 c) [start_tool 1, start_tool 3] +thought "let me look" +call 1 +call 2 +call 3 = suspended, waits for 3 until 60000
    report 3 success -> reported(3 success) = suspended, waits for 2 until 60000
    report 1 failed -> reported(1 failed) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 +result 3 = running
"#]],
    );
}

#[test]
fn c_051_the_remaining_deadline_is_that_of_the_remaining_calls() {
    check(
        "tools: quick 1000ms, slow 9000ms",
        "
entered
reply: quick, slow
report 1 success
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: quick, slow -> replied(1 quick, 2 slow) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 1000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 9000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
"#]],
    );
}

#[test]
fn f_014_a_model_that_reuses_its_call_ids_gets_numbers_of_its_own() {
    // Every call of a script has the same provider's id.
    check(
        TWO,
        "
entered
reply: a, a
report 1 success
report 2 success
reply: a
report 3 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, a -> replied(1 a, 2 a) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
    reply: a -> replied(3 a) [start_tool 3] +call 3 = suspended, waits for 1 until 60000
    report 3 success -> reported(3 success), lap_started(3) [call_model 3] +result 3 = running
"#]],
    );
}

#[test]
fn a_failed_result_goes_back_to_the_model_and_does_not_fail_the_run() {
    check(
        TWO,
        "
entered
reply: a
report 1 failed
reply \"it does not work\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 failed -> reported(1 failed), lap_started(2) [call_model 2] +result 1 = running
    reply "it does not work" -> replied, ended(success answered) +deliverable {"text":"it does not work"} = idle
"#]],
    );
}

#[test]
fn an_external_call_is_not_started_by_this_process() {
    check(
        "tools: a external, b",
        "
entered
reply: a, b
owed?
report 2 success
owed?
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    owed? start_tool 2
    report 2 success -> reported(2 success) = suspended, waits for 1 until 60000
    owed? nothing
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
"#]],
    );
}
