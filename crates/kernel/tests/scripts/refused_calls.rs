//! A call that can't be made gets an error result at once, which the model can read, and the run continues.

use expect_test::expect;

use crate::support::check;

#[test]
fn an_unknown_tool_gets_an_error_and_the_model_continues() {
    check(
        "tools: a",
        "
entered
reply: b
reply \"then not\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: b -> replied(1 b), reported(1 failed), lap_started(2) [call_model 2] +call 1 +result 1 unknown_tool: there is no tool "b"; there are: a = running
    reply "then not" -> replied, ended(success answered) +deliverable {"text":"then not"} = idle
"#]],
    );
}

#[test]
fn broken_arguments_get_an_error_and_the_model_continues() {
    check(
        "tools: a",
        r#"
entered
reply: a({"x":)
reply: a({"x":1} extra)
reply: a([1])
reply: a()
"#,
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: a({"x":) -> replied(1 a), reported(1 failed), lap_started(2) [call_model 2] +call 1({"x":) +result 1 bad_arguments: the arguments are not a JSON object; call again with one = running
            reply: a({"x":1} extra) -> replied(2 a), reported(2 failed), lap_started(3) [call_model 3] +call 2({"x":1} extra) +result 2 bad_arguments: the arguments are not a JSON object; call again with one = running
            reply: a([1]) -> replied(3 a), reported(3 failed), lap_started(4) [call_model 4] +call 3([1]) +result 3 bad_arguments: the arguments are not a JSON object; call again with one = running
            reply: a() -> replied(4 a) [start_tool 4] +call 4 = suspended, waits for 1 until 60000
        "#]],
    );
}

#[test]
fn arguments_that_are_json_pass_as_the_model_wrote_them() {
    check(
        "tools: a",
        r#"
entered
reply: a( {"x" : "\ud800"} ), a({"x":1,"x":2}), a({"x":1e999})
"#,
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: a( {"x" : "\ud800"} ), a({"x":1,"x":2}), a({"x":1e999}) -> replied(1 a, 2 a, 3 a) [start_tool 1, start_tool 2, start_tool 3] +call 1( {"x" : "\ud800"} ) +call 2({"x":1,"x":2}) +call 3({"x":1e999}) = suspended, waits for 3 until 60000
        "#]],
    );
}

#[test]
fn a_refused_call_does_not_delay_the_others_of_its_iteration() {
    check(
        "tools: a",
        r#"
entered
reply: b, a, a(oops)
report 1 success
report 2 success
"#,
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: b, a, a(oops) -> replied(1 b, 2 a, 3 a), reported(1 failed), reported(3 failed) [start_tool 2] +call 1 +call 2 +call 3(oops) = suspended, waits for 1 until 60000
            report 1 success -> ignored(tool_result 1: already_reported) = suspended, waits for 1 until 60000
            report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 unknown_tool: there is no tool "b"; there are: a +result 2 +result 3 bad_arguments: the arguments are not a JSON object; call again with one = running
        "#]],
    );
}

#[test]
fn a_refused_call_of_a_terminating_tool_does_not_end_the_run() {
    check(
        "tools: last terminate",
        "
entered
reply: last(oops)
reply: last
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: last(oops) -> replied(1 last), reported(1 failed), lap_started(2) [call_model 2] +call 1(oops) +result 1 bad_arguments: the arguments are not a JSON object; call again with one = running
            reply: last -> replied(2 last) [start_tool 2] +call 2 = suspended, waits for 1 until 60000
            report 2 success -> reported(2 success terminate), ended(success terminated) +result 2 +deliverable {"fields":[{"name":"last","item_id":"result 2"}]} = idle
        "#]],
    );
}
