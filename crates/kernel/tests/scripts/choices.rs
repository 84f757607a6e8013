//! What a request demands of tool calls: which may be made, how many, and whether the model must make any.

use expect_test::expect;

use crate::support::check;

#[test]
fn with_choice_none_nothing_is_run_and_the_calls_stay() {
    check(
        "tools: look, ask client\nchoice: none",
        "\nentered\nreply \"well\": look, ask\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply "well": look, ask -> replied, ended(success answered) +thought "well" +call 1 +call 2 +deliverable {"text":""} = idle
    "#]],
    );
}

#[test]
fn a_call_outside_the_allowed_ones_is_refused_and_the_loop_continues() {
    check(
        "tools: look, pay, ask client\nallowed: look",
        "\nentered\nreply: look, pay, ask\nowed?\nreport 1 success\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: look, pay, ask -> replied(1 look, 2 pay, 3 ask), reported(2 failed), reported(3 failed) [start_tool 1] +call 1 +call 2 +call 3 = suspended, waits for 1 until 60000
        owed? start_tool 1
        report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 +result 2 tool_not_allowed: the tool "pay" may not be called now; these may: look +result 3 tool_not_allowed: the tool "ask" may not be called now; these may: look = running
    "#]],
    );
}

#[test]
fn calls_beyond_the_limit_are_refused_and_the_loop_continues() {
    check(
        "tools: look\ncalls_max: 2",
        "\nentered\nreply: look\nreport 1 success\nreply: look, look\nreport 2 success\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
        report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
        reply: look, look -> replied(2 look, 3 look), reported(3 failed) [start_tool 2] +call 2 +call 3 = suspended, waits for 1 until 60000
        report 2 success -> reported(2 success), lap_started(3) [call_model 3] +result 2 +result 3 max_tool_calls: no more calls: 2 were allowed; answer with what you have = running
    "#]],
    );
}

#[test]
fn one_call_an_iteration_means_the_first() {
    check(
        "tools: look, pay\none_call: yes",
        "\nentered\nreply: look, pay\nowed?\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: look, pay -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
        owed? start_tool 1
    "#]],
    );
}
