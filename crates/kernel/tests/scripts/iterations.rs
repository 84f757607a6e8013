//! S3: the iteration counter rises by one with each iteration, and nothing else changes it.

use expect_test::expect;

use crate::support::check;

#[test]
fn c_036_a_worker_that_enters_makes_the_run_running() {
    check(
        "",
        "
head?
iteration?
entered
iteration?
",
        expect![[r#"
    head? dispatched
    iteration? 0
    entered -> leased, lap_started(1) [call_model 1] = running
    iteration? 1
"#]],
    );
}

#[test]
fn s_03_the_iteration_is_one_more_per_model_call_that_answered() {
    check(
        "tools: a, b external",
        "
entered
reply: a, b
iteration?
report 1 success
iteration?
report 2 success
iteration?
reply: a
report 3 success
iteration?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
    iteration? 1
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    iteration? 1
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
    iteration? 2
    reply: a -> replied(3 a) [start_tool 3] +call 3 = suspended, waits for 1 until 60000
    report 3 success -> reported(3 success), lap_started(3) [call_model 3] +result 3 = running
    iteration? 3
"#]],
    );
}

#[test]
fn s_03_crashes_parks_and_retries_leave_the_iteration_alone() {
    check(
        "tools: a",
        "
entered
taken over
failed busy retry 5
panicked
answer resume
iteration?
reply: a
taken over
panicked
answer resume
iteration?
report 1 success
iteration?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            taken over -> taken_over = running
            failed busy retry 5 -> attempt_failed(busy) [call_model 1 try 2 at 5] = running
            panicked -> interrupted(panicked) = suspended, held by panicked
            answer resume -> resolved(resumed) [call_model 1 try 2 at 5] = running
            iteration? 1
            reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over -> taken_over = suspended, waits for 1 until 60000
            panicked -> interrupted(panicked) = suspended, waits for 1 without deadline, held by panicked
            answer resume -> resolved(resumed) [start_tool 1] = suspended, waits for 1 until 60000
            iteration? 1
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            iteration? 2
        "#]],
    );
}

#[test]
fn an_iteration_of_refused_calls_only_is_followed_by_the_next_at_once() {
    check(
        "",
        "
entered
reply: nothing
iteration?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: nothing -> replied(1 nothing), reported(1 failed), lap_started(2) [call_model 2] +call 1 +result 1 unknown_tool: there is no tool "nothing"; there are:  = running
    iteration? 2
"#]],
    );
}
