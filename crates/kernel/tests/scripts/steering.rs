//! Instructions that a client gives the active run: the next iteration reads them.

use expect_test::expect;

use crate::support::check;

#[test]
fn an_instruction_is_read_at_the_next_iteration() {
    check(
        "tools: look",
        "
entered
steer
reply: look
steer
report 1 success
reply \"done\"
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            steer -> steered = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            steer -> steered = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 +instruction +instruction' = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn an_answer_is_followed_by_an_iteration_that_reads_the_instruction() {
    check(
        "",
        "
entered
steer
reply \"first\"
reply \"second\"
steer
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            steer -> steered = running
            reply "first" -> replied, lap_started(2) [call_model 2] +thought "first" +instruction = running
            reply "second" -> replied, ended(success answered) +deliverable {"text":"second"} = idle
            steer -> ignored(steer: already_ended) = idle
        "#]],
    );
}

#[test]
fn an_answer_stays_the_result_if_a_budget_forbids_another_iteration() {
    check(
        "budgets: 1 iterations",
        "
entered
steer
reply \"first\"
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            steer -> steered = running
            reply "first" -> replied, ended(success answered) +instruction +deliverable {"text":"first"} = idle
        "#]],
    );
}

#[test]
fn a_result_is_handed_in_again_after_an_instruction() {
    check(
        "fields: x!",
        "
entered
steer
reply: submit_result({\"x\":1})
reply: submit_result({\"x\":2})
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            steer -> steered = running
            reply: submit_result({"x":1}) -> replied(1 submit_result), reported(1 failed), lap_started(2) [call_model 2] +call 1({"x":1}) +result 1 new_instructions: new instructions came while you worked; take them into account, and hand in the result again +instruction = running
            reply: submit_result({"x":2}) -> replied, ended(success answered) +call 2({"x":2}) +deliverable {"fields":[{"name":"x","value":2}]} = idle
        "#]],
    );
}

#[test]
fn an_instruction_that_no_iteration_read_is_kept_before_the_deliverable() {
    check(
        "tools: look",
        "
entered
reply: look
steer
stop enough
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            steer -> steered = suspended, waits for 1 until 60000
            stop enough -> ended(canceled stopped) +instruction +deliverable {"text":"stopped: enough"} = idle
        "#]],
    );
    check(
        "tools: show client",
        "
entered
steer
reply: show
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            steer -> steered = running
            reply: show -> replied, ended(success requires_action) +call 1 +instruction +deliverable {"text":""} = idle
        "#]],
    );
}

#[test]
fn a_held_run_takes_an_instruction_and_reads_it_after_the_decision() {
    check(
        "tools: pay write\ngates: pay",
        "
entered
reply: pay
steer
answer reject 1 no
taken over
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            steer -> steered = suspended, waits for 1 without deadline
            answer reject 1 no -> resolved(rejected), reported(1 failed), lap_started(2) [call_model 2] +result 1 rejected: a person rejected this call; it was not made. They say: no +instruction = running
            taken over -> taken_over = running
        "#]],
    );
}

#[test]
fn an_action_takes_no_instruction() {
    check(
        "origin: action\ntools: look",
        "
entered: look
steer
",
        expect![[r#"
            entered: look -> leased, action_started(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            steer -> ignored(steer: not_steerable) = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn the_instructions_that_wait_are_limited() {
    let script = format!("entered\n{}", "steer\n".repeat(33));
    let transcript = crate::support::play("", &script);
    assert_eq!(transcript.matches("-> steered").count(), 32, "{transcript}");
    assert!(transcript.ends_with("steer -> ignored(steer: too_many_instructions) = running\n"), "{transcript}");
}
