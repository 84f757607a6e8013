//! Every ending writes exactly one deliverable, as the last item. (Every script checks that it is the only one and the last.)

use expect_test::expect;

use crate::support::check;

#[test]
fn c_054_c_061_an_answer_is_the_deliverable() {
    check(
        "",
        "
entered
reply \"forty-two\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "forty-two" -> replied, ended(success answered) +deliverable {"text":"forty-two"} = idle
"#]],
    );
}

#[test]
fn an_empty_answer_is_a_deliverable_too() {
    check(
        "",
        "
entered
reply \"\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "" -> replied, ended(success answered) +deliverable {"text":""} = idle
"#]],
    );
}

#[test]
fn c_059_a_stop_before_the_run_is_entered_delivers() {
    check(
        "",
        "
stop no longer needed
entered
",
        expect![[r#"
    stop no longer needed -> ended(canceled stopped) +deliverable {"text":"stopped: no longer needed"} = idle
    entered -> ignored(entered: already_ended) = idle
"#]],
    );
}

#[test]
fn c_059_f_019_a_stop_while_the_model_thinks_delivers() {
    check(
        "",
        "
entered
stop
reply \"too late\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    stop -> ended(canceled stopped) +deliverable {"text":"stopped"} = idle
    reply "too late" -> ignored(replied: already_ended) = idle
"#]],
    );
}

#[test]
fn c_059_a_stop_between_two_attempts_delivers() {
    check(
        "",
        "
entered
failed busy retry 60000
stop enough
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed busy retry 60000 -> attempt_failed(busy) [call_model 1 try 2 at 60000] = running
    stop enough -> ended(canceled stopped) +deliverable {"text":"stopped: enough"} = idle
"#]],
    );
}

#[test]
fn c_059_a_stop_while_waiting_keeps_the_results_that_are_in() {
    check(
        "tools: a, b, c external",
        "
entered
reply: a, b, c
report 2 success
stop enough
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b, c -> replied(1 a, 2 b, 3 c) [start_tool 1, start_tool 2] +call 1 +call 2 +call 3 = suspended, waits for 3 until 60000
    report 2 success -> reported(2 success) = suspended, waits for 2 until 60000
    stop enough -> ended(canceled stopped) +result 2 +deliverable {"text":"stopped: enough"} = idle
    report 1 success -> ignored(tool_result 1: already_ended) = idle
"#]],
    );
}

#[test]
fn c_059_a_stop_ends_a_parked_run() {
    check(
        "",
        "
entered
panicked
stop enough
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            panicked -> interrupted(panicked) = suspended, held by panicked
            stop enough -> ended(canceled stopped) +deliverable {"text":"stopped: enough"} = idle
            answer resume -> ignored(answer: already_ended) = idle
        "#]],
    );
}

#[test]
fn c_059_a_stop_ends_a_run_with_a_parked_call() {
    check(
        "tools: pay write, look",
        "
entered
reply: pay, look
report 2 success
taken over
stop enough
answer record 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
            report 2 success -> reported(2 success) = suspended, waits for 1 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            stop enough -> ended(canceled stopped) +result 2 +deliverable {"text":"stopped: enough"} = idle
            answer record 1 -> ignored(answer: already_ended) = idle
        "#]],
    );
}

#[test]
fn c_059_a_failed_model_delivers_text() {
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
