//! A call that only the client can make ends the run, and no other call of the iteration is started.

use expect_test::expect;

use crate::support::check;

const MIXED: &str = "tools: look, pay external write, ask client";

#[test]
fn a_client_call_ends_the_run_and_nothing_runs() {
    check(
        MIXED,
        "
entered
reply: ask
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: ask -> replied, ended(success requires_action) +call 1 +deliverable {"text":""} = idle
    report 1 success -> ignored(tool_result 1: already_ended) = idle
"#]],
    );
}

#[test]
fn an_iteration_that_mixes_client_and_server_calls_is_handed_back_whole() {
    check(
        MIXED,
        "
entered
reply \"one moment\": look, ask({\"q\":\"which?\"}), pay
owed?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "one moment": look, ask({"q":"which?"}), pay -> replied, ended(success requires_action) +thought "one moment" +call 1 +call 2({"q":"which?"}) +call 3 +deliverable {"text":"one moment"} = idle
    owed? nothing
"#]],
    );
}

#[test]
fn an_iteration_handed_back_keeps_even_calls_that_would_have_been_refused() {
    check(
        MIXED,
        "
entered
reply: nothing_like_it, ask, look({broken)
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: nothing_like_it, ask, look({broken) -> replied, ended(success requires_action) +call 1 +call 2 +call 3({broken) +deliverable {"text":""} = idle
"#]],
    );
}

#[test]
fn an_iteration_may_be_handed_back_after_iterations_that_ran_here() {
    check(
        MIXED,
        "
entered
reply: look
report 1 success
reply: ask using 10+5
usage?
iteration?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply: ask using 10+5 -> replied, ended(success requires_action) +call 2 +deliverable {"text":""} = idle
    usage? 10+5
    iteration? 2
"#]],
    );
}
