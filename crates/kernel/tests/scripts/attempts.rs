//! Attempts of the model call of one iteration.

use expect_test::expect;

use crate::support::check;

#[test]
fn s_03_a_failed_attempt_is_repeated_in_the_same_iteration() {
    check(
        "",
        "
at 1000
entered
failed rate_limited retry 500
iteration?
failed overloaded retry 2000
iteration?
reply \"at last\"
iteration?
",
        expect![[r#"
    at 1000
    entered -> leased, lap_started(1) [call_model 1] = running
    failed rate_limited retry 500 -> attempt_failed(rate_limited) [call_model 1 try 2 at 1500] = running
    iteration? 1
    failed overloaded retry 2000 -> attempt_failed(overloaded) [call_model 1 try 3 at 3000] = running
    iteration? 1
    reply "at last" -> replied, ended(success answered) +deliverable {"text":"at last"} = idle
    iteration? 1
"#]],
    );
}

#[test]
fn a_failure_that_can_not_be_retried_ends_the_run_as_failed() {
    check(
        "",
        "
entered
failed refused never
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed refused never -> attempt_failed(refused), ended(failed model_failed refused) +deliverable {"text":"the model could not be called: refused it was"} = idle
"#]],
    );
}

#[test]
fn attempts_are_counted_from_1_in_each_iteration() {
    check(
        "tools: a",
        "
entered
failed busy retry 10
reply: a
report 1 success
failed busy retry 10
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed busy retry 10 -> attempt_failed(busy) [call_model 1 try 2 at 10] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    failed busy retry 10 -> attempt_failed(busy) [call_model 2 try 2 at 10] = running
"#]],
    );
}

#[test]
fn tokens_of_every_attempt_are_counted() {
    check(
        "tools: a",
        "
entered
failed cut retry 10 using 7+1
failed cut retry 10 using 7+2
reply: a using 10+20
usage?
report 1 success
reply \"done\" using 100+200
usage?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed cut retry 10 using 7+1 -> attempt_failed(cut) [call_model 1 try 2 at 10] = running
    failed cut retry 10 using 7+2 -> attempt_failed(cut) [call_model 1 try 3 at 10] = running
    reply: a using 10+20 -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    usage? 24+23
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply "done" using 100+200 -> replied, ended(success answered) +deliverable {"text":"done"} = idle
    usage? 124+223
"#]],
    );
}
