//! Runs that would exceed a budget wait for a person, and continue exactly where they stood.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_raised_budget_of_iterations_continues_with_the_results() {
    check(
        "tools: look\nbudgets: 1 iterations\nbudgets_park: yes",
        "
entered
reply: look
report 1 success
owed?
answer raise 1
answer raise 2
reply \"done\"
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), budget_breached(iterations 2 of 1), interrupted(budget) = suspended, waits for 0 without deadline, held by budget
            owed? nothing
            answer raise 1 -> ignored(answer: raised_too_little) = suspended, waits for 0 without deadline, held by budget
            answer raise 2 -> resolved(raised iterations to 2), lap_started(2) [call_model 2] +result 1 = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn calls_beyond_the_budget_start_once_it_is_raised_under_later_deadlines() {
    check(
        "tools: look 5000ms, pay write 5000ms, far external 5000ms\nbudgets: 2 calls\nbudgets_park: yes",
        "
entered
reply: look, pay, far
owed?
taken over
at 90000
expired?
answer resume
answer raise 3
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, pay, far -> replied(1 look, 2 pay, 3 far), budget_breached(calls 3 of 2), interrupted(budget) +call 1 +call 2 +call 3 = suspended, waits for 3 without deadline, held by budget
            owed? nothing
            taken over -> taken_over = suspended, waits for 3 without deadline, held by budget
            at 90000
            expired? nothing
            answer resume -> ignored(answer: unfit_decision) = suspended, waits for 3 without deadline, held by budget
            answer raise 3 -> resolved(raised calls to 3), call_released(1 until 95000), call_released(2 until 95000), call_released(3 until 95000) [start_tool 1, start_tool 2] = suspended, waits for 3 until 95000
            report 2 success -> reported(2 success) = suspended, waits for 2 until 95000
        "#]],
    );
}

#[test]
fn used_up_tokens_hold_the_next_attempt() {
    check(
        "tools: look\nbudgets: 100 tokens\nbudgets_park: yes",
        "
entered
failed busy retry 5 using 60+60
owed?
answer raise 100
answer raise 500
reply \"done\"
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed busy retry 5 using 60+60 -> attempt_failed(busy), budget_breached(tokens 120 of 100), interrupted(budget) = suspended, held by budget
            owed? nothing
            answer raise 100 -> ignored(answer: raised_too_little) = suspended, held by budget
            answer raise 500 -> resolved(raised tokens to 500) [call_model 1 try 2 at 5] = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn waiting_for_a_person_is_no_wall_time() {
    check(
        "tools: look 90000ms\nbudgets: 1000 wall_ms\nbudgets_park: yes",
        "
entered
at 2000
reply: look
at 900000
answer raise 3000
at 900500
report 1 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            at 2000
            reply: look -> replied(1 look), budget_breached(wall_ms 2000 of 1000), interrupted(budget) +call 1 = suspended, waits for 1 without deadline, held by budget
            at 900000
            answer raise 3000 -> resolved(raised wall_ms to 3000), call_released(1 until 901000) [start_tool 1] = suspended, waits for 1 until 901000
            at 900500
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
        "#]],
    );
}

#[test]
fn a_run_without_iterations_starts_when_it_gets_some() {
    check(
        "budgets: 0 iterations\nbudgets_park: yes",
        "
entered
answer raise 1
reply \"done\"
",
        expect![[r#"
            entered -> leased, budget_breached(iterations 1 of 0), interrupted(budget) = suspended, held by budget
            answer raise 1 -> resolved(raised iterations to 1), lap_started(1) [call_model 1] = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn a_person_can_end_the_run_as_its_policy_ends_on_the_budget() {
    check(
        "tools: look\nbudgets: 1 iterations\nbudgets_park: yes",
        "
entered
reply: look
report 1 success
answer end
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), budget_breached(iterations 2 of 1), interrupted(budget) = suspended, waits for 0 without deadline, held by budget
            answer end -> resolved(ended), ended(partial budget iterations) +result 1 +deliverable {"text":"stopped by the budget: iterations would be 2, 1 allowed"} = idle
        "#]],
    );
}

#[test]
fn a_gate_holds_a_call_although_the_budget_was_raised() {
    check(
        "tools: look, pay write\nbudgets: 1 calls\nbudgets_park: yes\ngates: pay",
        "
entered
reply: look, pay
answer approve 2
answer raise 2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, pay -> replied(1 look, 2 pay), budget_breached(calls 2 of 1), interrupted(budget), interrupted(approval 2) +call 1 +call 2 = suspended, waits for 2 without deadline, held by budget
            answer approve 2 -> resolved(approved), reported(2 failed) = suspended, waits for 1 without deadline, held by budget
            answer raise 2 -> resolved(raised calls to 2), call_released(1 until 60000) [start_tool 1] = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn text_that_was_streamed_stays_open_while_the_next_attempt_waits_for_a_budget() {
    check(
        "budgets: 100 tokens\nbudgets_park: yes",
        "
entered
failed cut retry 5 using 60+60 saying half
answer raise 500
failed cut never saying half
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed cut retry 5 using 60+60 saying half -> attempt_failed(cut), budget_breached(tokens 120 of 100), interrupted(budget) = suspended, held by budget
            answer raise 500 -> resolved(raised tokens to 500) [call_model 1 try 2 at 5] = running
            failed cut never saying half -> cut(ends), attempt_failed(cut), ended(failed model_failed cut) +thought "half" +deliverable {"text":"the model could not be called: cut it was"} = idle
        "#]],
    );
}
