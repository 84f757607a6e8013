//! Runs and calls that only a person's decision can continue.

use expect_test::expect;

use crate::support::check;

const PAY: &str = "tools: pay write 5000ms, look";

#[test]
fn a_person_records_the_result_of_a_parked_call() {
    check(
        PAY,
        "
entered
reply: pay
taken over
answer record 1 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer record 1 success -> resolved(recorded), reported(1 success), lap_started(2) [call_model 2] +result 1 = running
        "#]],
    );
}

#[test]
fn a_recorded_result_leads_where_its_tool_says() {
    check(
        "tools: pay write terminate",
        "
entered
reply: pay
taken over
answer record 1 failed
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer record 1 failed -> resolved(recorded), reported(1 failed terminate), ended(failed terminated) +result 1 +deliverable {"fields":[{"name":"pay","item_id":"result 1"}]} = idle
        "#]],
    );
}

#[test]
fn a_released_call_runs_once_more_with_a_fresh_deadline() {
    check(
        PAY,
        "
entered
reply: pay
taken over
at 100000
answer release 1
expired?
at 105000
expired?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            at 100000
            answer release 1 -> resolved(released until 105000) [start_tool 1] = suspended, waits for 1 until 105000
            expired? nothing
            at 105000
            expired? 1
        "#]],
    );
}

#[test]
fn a_released_call_cut_again_parks_again() {
    check(
        PAY,
        "
entered
reply: pay
taken over
answer release 1
taken over
answer release 1
report 1 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer release 1 -> resolved(released until 5000) [start_tool 1] = suspended, waits for 1 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer release 1 -> resolved(released until 5000) [start_tool 1] = suspended, waits for 1 until 5000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
        "#]],
    );
}

#[test]
fn the_model_reads_that_the_outcome_is_unknown() {
    check(
        PAY,
        "
entered
reply: pay, look
taken over
answer tell 1
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 2 until 60000
            answer tell 1 -> resolved(reported_to_model), reported(1 failed) = suspended, waits for 1 until 60000
            report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 outcome_unknown: nobody knows whether this call took effect; check before you call it again +result 2 = running
        "#]],
    );
}

#[test]
fn an_unknown_outcome_does_not_end_a_run_whose_tool_terminates() {
    check(
        "tools: pay write terminate",
        "
entered
reply: pay
taken over
answer tell 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer tell 1 -> resolved(reported_to_model), reported(1 failed), lap_started(2) [call_model 2] +result 1 outcome_unknown: nobody knows whether this call took effect; check before you call it again = running
        "#]],
    );
}

#[test]
fn a_decision_about_what_is_not_parked_is_ignored() {
    check(
        PAY,
        "
answer resume
answer tell 1
entered
answer record 1
reply: pay, look
answer record 1
answer release 1
answer tell 2
answer resume
answer tell 9
",
        expect![[r#"
            answer resume -> ignored(answer: not_parked) = dispatched
            answer tell 1 -> ignored(answer: not_parked) = dispatched
            entered -> leased, lap_started(1) [call_model 1] = running
            answer record 1 -> ignored(answer: not_parked) = running
            reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 5000
            answer record 1 -> ignored(answer: not_parked) = suspended, waits for 2 until 5000
            answer release 1 -> ignored(answer: not_parked) = suspended, waits for 2 until 5000
            answer tell 2 -> ignored(answer: not_parked) = suspended, waits for 2 until 5000
            answer resume -> ignored(answer: not_parked) = suspended, waits for 2 until 5000
            answer tell 9 -> ignored(answer: not_parked) = suspended, waits for 2 until 5000
        "#]],
    );
}

#[test]
fn one_decision_wins() {
    check(
        PAY,
        "
entered
reply: pay, look
taken over
answer record 1
answer release 1
answer tell 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, look -> replied(1 pay, 2 look) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 2 until 60000
            answer record 1 -> resolved(recorded), reported(1 success) = suspended, waits for 1 until 60000
            answer release 1 -> ignored(answer: not_parked) = suspended, waits for 1 until 60000
            answer tell 1 -> ignored(answer: not_parked) = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn a_panic_parks_the_run_and_unpark_continues_it() {
    check(
        "",
        "
panicked
answer resume
entered
panicked
owed?
panicked
answer resume
reply \"done\"
",
        expect![[r#"
            panicked -> interrupted(panicked) = suspended, held by panicked
            answer resume -> resolved(resumed) = dispatched
            entered -> leased, lap_started(1) [call_model 1] = running
            panicked -> interrupted(panicked) = suspended, held by panicked
            owed? nothing
            panicked -> ignored(panicked: out_of_phase) = suspended, held by panicked
            answer resume -> resolved(resumed) [call_model 1] = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn s_06_a_panic_parks_the_writes_it_may_have_cut() {
    check(
        "tools: pay write, look, far external write",
        "
entered
reply: pay, look, far
panicked
answer resume
owed?
answer release 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay, look, far -> replied(1 pay, 2 look, 3 far) [start_tool 1, start_tool 2] +call 1 +call 2 +call 3 = suspended, waits for 3 until 60000
            panicked -> interrupted(unknown_outcome 1), interrupted(panicked) = suspended, waits for 3 without deadline, held by panicked
            answer resume -> resolved(resumed) [start_tool 2] = suspended, waits for 3 until 60000
            owed? start_tool 2
            answer release 1 -> resolved(released until 60000) [start_tool 1] = suspended, waits for 3 until 60000
        "#]],
    );
}

#[test]
fn results_that_arrive_while_the_run_is_parked_are_applied_when_it_continues() {
    check(
        "tools: look, find",
        "
entered
reply: look, find
panicked
report 2 success
report 1 success
owed?
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, find -> replied(1 look, 2 find) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
            panicked -> interrupted(panicked) = suspended, waits for 2 without deadline, held by panicked
            report 2 success -> reported(2 success) = suspended, waits for 1 without deadline, held by panicked
            report 1 success -> reported(1 success) = suspended, waits for 0 without deadline, held by panicked
            owed? nothing
            answer resume -> resolved(resumed), lap_started(2) [call_model 2] +result 1 +result 2 = running
        "#]],
    );
}

#[test]
fn a_parked_run_may_lose_its_owner() {
    check(
        "tools: look",
        "
entered
reply: look
panicked
taken over
owed?
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            panicked -> interrupted(panicked) = suspended, waits for 1 without deadline, held by panicked
            taken over -> taken_over = suspended, waits for 1 without deadline, held by panicked
            owed? nothing
            answer resume -> resolved(resumed) [start_tool 1] = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn a_parked_call_decided_while_the_run_is_parked_waits_for_the_run() {
    check(
        PAY,
        "
entered
reply: pay
taken over
panicked
answer record 1
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 5000
            taken over -> taken_over, interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            panicked -> interrupted(panicked) = suspended, waits for 1 without deadline, held by panicked
            answer record 1 -> resolved(recorded), reported(1 success) = suspended, waits for 0 without deadline, held by panicked
            answer resume -> resolved(resumed), lap_started(2) [call_model 2] +result 1 = running
        "#]],
    );
}
