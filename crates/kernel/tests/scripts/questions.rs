//! Questions of the model to a person: a call whose result is the answer.

use expect_test::expect;

use crate::support::check;

const ASKS: &str = "tools: ask person, look";

#[test]
fn the_answer_of_a_person_is_the_result_of_the_call() {
    check(
        ASKS,
        "
entered
reply: ask({\"question\":\"which?\"}), look
owed?
report 1 success
report 2 success
taken over
at 9999999999
expired?
answer approve 1
answer say 1
answer say 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: ask({"question":"which?"}), look -> replied(1 ask, 2 look), interrupted(question 1) [start_tool 2] +call 1({"question":"which?"}) +call 2 = suspended, waits for 2 until 60000
            owed? start_tool 2
            report 1 success -> ignored(tool_result 1: held) = suspended, waits for 2 until 60000
            report 2 success -> reported(2 success) = suspended, waits for 1 without deadline
            taken over -> taken_over = suspended, waits for 1 without deadline
            at 9999999999
            expired? nothing
            answer approve 1 -> ignored(answer: unfit_decision) = suspended, waits for 1 without deadline
            answer say 1 -> resolved(answered), reported(1 success), lap_started(2) [call_model 2] +result 1' +result 2 = running
            answer say 1 -> ignored(answer: not_parked) = running
        "#]],
    );
}

#[test]
fn a_person_may_decline_to_answer_and_a_stop_closes_the_question() {
    let script = "entered\nreply: ask({\"question\":\"which?\"})\n";
    check(
        ASKS,
        &format!("{script}answer reject 1 ask ann"),
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: ask({"question":"which?"}) -> replied(1 ask), interrupted(question 1) +call 1({"question":"which?"}) = suspended, waits for 1 without deadline
        answer reject 1 ask ann -> resolved(rejected), reported(1 failed), lap_started(2) [call_model 2] +result 1 rejected: the person did not answer. They say: ask ann = running
    "#]],
    );
    check(
        ASKS,
        &format!("{script}stop enough"),
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: ask({"question":"which?"}) -> replied(1 ask), interrupted(question 1) +call 1({"question":"which?"}) = suspended, waits for 1 without deadline
        stop enough -> ended(canceled stopped) +deliverable {"text":"stopped: enough"} = idle
    "#]],
    );
}

#[test]
fn a_rule_that_applies_to_a_question_gives_it_its_deadline() {
    check(
        "tools: ask person\ngates: ask 500ms approve twice",
        "
entered
reply: ask({\"question\":\"which?\"})
answer timeout 1
at 500
answer timeout 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: ask({"question":"which?"}) -> replied(1 ask), interrupted(question 1 until 500) +call 1({"question":"which?"}) = suspended, waits for 1 until 500
            answer timeout 1 -> ignored(interrupt_timeout: not_parked) = suspended, waits for 1 until 500
            at 500
            answer timeout 1 -> resolved(timed_out), reported(1 timeout), lap_started(2) [call_model 2] +result 1 answer_timed_out: no person answered in time = running
        "#]],
    );
}

#[test]
fn a_call_that_is_no_question_is_refused() {
    check(
        ASKS,
        "
entered
reply: ask, ask({\"question\":\" \"}), ask({\"question\":\"x\",\"schema\":1}), ask(x)
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: ask, ask({"question":" "}), ask({"question":"x","schema":1}), ask(x) -> replied(1 ask, 2 ask, 3 ask, 4 ask), reported(1 failed), reported(2 failed), reported(3 failed), reported(4 failed), lap_started(2) [call_model 2] +call 1 +call 2({"question":" "}) +call 3({"question":"x","schema":1}) +call 4(x) +result 1 bad_arguments: the arguments are no question (missing field `question` at line 1 column 2); call again with `question` +result 2 bad_arguments: `question` is empty; ask something +result 3 bad_arguments: `schema` is not an object; leave it out, or send a JSON Schema +result 4 bad_arguments: the arguments are no question (expected value at line 1 column 1); call again with `question` = running
        "#]],
    );
}

#[test]
fn a_question_waits_with_the_run_for_a_higher_limit() {
    check(
        "tools: ask person\nbudgets: 1 calls\nbudgets_park: yes",
        "
entered
reply: ask({\"question\":\"one?\"}), ask({\"question\":\"two?\"})
answer say 1
answer raise 2
answer say 2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: ask({"question":"one?"}), ask({"question":"two?"}) -> replied(1 ask, 2 ask), budget_breached(calls 2 of 1), interrupted(budget), interrupted(question 1), interrupted(question 2) +call 1({"question":"one?"}) +call 2({"question":"two?"}) = suspended, waits for 2 without deadline, held by budget
            answer say 1 -> resolved(answered), reported(1 success) = suspended, waits for 1 without deadline, held by budget
            answer raise 2 -> resolved(raised calls to 2) = suspended, waits for 1 without deadline
            answer say 2 -> resolved(answered), reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
        "#]],
    );
}
