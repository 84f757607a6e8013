//! `submit_result`: the built-in tool with which a model hands in named fields.

use expect_test::expect;

use crate::support::check;

const FIELDS: &str = "
tools: a
fields: title!, note, body!
";

#[test]
fn c_066_submit_result_needs_no_registration_and_starts_nothing() {
    check(
        "",
        r#"
entered
reply "here": submit_result({"x":1})
owed?
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "here": submit_result({"x":1}) -> replied, ended(success answered) +thought "here" +call 1({"x":1}) +deliverable {"fields":[{"name":"x","value":1}]} = idle
    owed? nothing
"#]],
    );
}

#[test]
fn c_062_a_result_with_every_required_field_is_the_deliverable() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"title":"T","body":"B"})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"title":"T","body":"B"}) -> replied, ended(success answered) +call 1({"title":"T","body":"B"}) +deliverable {"fields":[{"name":"title","value":"T"},{"name":"body","value":"B"}]} = idle
"#]],
    );
}

#[test]
fn c_068_a_result_without_a_required_field_is_sent_back_to_the_model() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"note":"N","body":"B"})
reply: submit_result({"title":null,"body":"B"})
reply: submit_result({"title":"","body":0})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"note":"N","body":"B"}) -> replied(1 submit_result), reported(1 failed), lap_started(2) [call_model 2] +call 1({"note":"N","body":"B"}) +result 1 bad_result: required fields are missing: title = running
    reply: submit_result({"title":null,"body":"B"}) -> replied(2 submit_result), reported(2 failed), lap_started(3) [call_model 3] +call 2({"title":null,"body":"B"}) +result 2 bad_result: required fields are missing: title = running
    reply: submit_result({"title":"","body":0}) -> replied, ended(success answered) +call 3({"title":"","body":0}) +deliverable {"fields":[{"name":"title","value":""},{"name":"body","value":0}]} = idle
"#]],
    );
}

#[test]
fn c_067_a_result_is_accepted_once() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"title":"T","body":"B"})
reply: submit_result({"title":"U","body":"C"})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"title":"T","body":"B"}) -> replied, ended(success answered) +call 1({"title":"T","body":"B"}) +deliverable {"fields":[{"name":"title","value":"T"},{"name":"body","value":"B"}]} = idle
    reply: submit_result({"title":"U","body":"C"}) -> ignored(replied: already_ended) = idle
"#]],
    );
}

#[test]
fn c_067_two_results_in_one_iteration_are_both_sent_back() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"title":"T","body":"B"}), submit_result({"title":"U","body":"C"})
reply: submit_result({"title":"T","body":"B"})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"title":"T","body":"B"}), submit_result({"title":"U","body":"C"}) -> replied(1 submit_result, 2 submit_result), reported(1 failed), reported(2 failed), lap_started(2) [call_model 2] +call 1({"title":"T","body":"B"}) +call 2({"title":"U","body":"C"}) +result 1 submit_alone: submit_result must be the only call; nothing was run +result 2 submit_alone: submit_result must be the only call; nothing was run = running
    reply: submit_result({"title":"T","body":"B"}) -> replied, ended(success answered) +call 3({"title":"T","body":"B"}) +deliverable {"fields":[{"name":"title","value":"T"},{"name":"body","value":"B"}]} = idle
"#]],
    );
}

#[test]
fn a_result_beside_other_calls_is_sent_back_and_nothing_is_run() {
    check(
        "tools: a, ask client",
        r#"
entered
reply: a, submit_result({"x":1}), ask
owed?
reply: submit_result({"x":1})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, submit_result({"x":1}), ask -> replied(1 a, 2 submit_result, 3 ask), reported(1 failed), reported(2 failed), reported(3 failed), lap_started(2) [call_model 2] +call 1 +call 2({"x":1}) +call 3 +result 1 submit_alone: submit_result must be the only call; nothing was run +result 2 submit_alone: submit_result must be the only call; nothing was run +result 3 submit_alone: submit_result must be the only call; nothing was run = running
    owed? call_model 2
    reply: submit_result({"x":1}) -> replied, ended(success answered) +call 4({"x":1}) +deliverable {"fields":[{"name":"x","value":1}]} = idle
"#]],
    );
}

#[test]
fn fields_come_in_the_wanted_order_then_the_others_by_name() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"zeta":1,"body":"B","alpha":2,"note":"N","title":"T"})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"zeta":1,"body":"B","alpha":2,"note":"N","title":"T"}) -> replied, ended(success answered) +call 1({"zeta":1,"body":"B","alpha":2,"note":"N","title":"T"}) +deliverable {"fields":[{"name":"title","value":"T"},{"name":"note","value":"N"},{"name":"body","value":"B"},{"name":"alpha","value":2},{"name":"zeta","value":1}]} = idle
"#]],
    );
}

#[test]
fn values_are_kept_as_the_model_wrote_them() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"title":"\ud800\u0000", "body": {"b":1.0,"a":1e400,"a":2} })
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"title":"\ud800\u0000", "body": {"b":1.0,"a":1e400,"a":2} }) -> replied, ended(success answered) +call 1({"title":"\ud800\u0000", "body": {"b":1.0,"a":1e400,"a":2} }) +deliverable {"fields":[{"name":"title","value":"\ud800\u0000"},{"name":"body","value":{"b":1.0,"a":1e400,"a":2}}]} = idle
"#]],
    );
}

#[test]
fn a_result_that_is_not_a_json_object_is_sent_back() {
    check(
        FIELDS,
        r#"
entered
reply: submit_result({"title":)
reply: submit_result(["T","N","B"])
reply: submit_result("T")
reply: submit_result()
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: submit_result({"title":) -> replied(1 submit_result), reported(1 failed), lap_started(2) [call_model 2] +call 1({"title":) +result 1 bad_result: the arguments are not a JSON object of fields = running
    reply: submit_result(["T","N","B"]) -> replied(2 submit_result), reported(2 failed), lap_started(3) [call_model 3] +call 2(["T","N","B"]) +result 2 bad_result: the arguments are not a JSON object of fields = running
    reply: submit_result("T") -> replied(3 submit_result), reported(3 failed), lap_started(4) [call_model 4] +call 3("T") +result 3 bad_result: the arguments are not a JSON object of fields = running
    reply: submit_result() -> replied(4 submit_result), reported(4 failed), lap_started(5) [call_model 5] +call 4() +result 4 bad_result: the arguments are not a JSON object of fields = running
"#]],
    );
}

#[test]
fn a_result_handed_in_is_accepted_though_the_call_budget_is_used_up() {
    check(
        "
tools: a
budgets: 1 calls
",
        r#"
entered
reply: a
report 1 success
reply: submit_result({"x":1})
"#,
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply: submit_result({"x":1}) -> replied, ended(success answered) +call 2({"x":1}) +deliverable {"fields":[{"name":"x","value":1}]} = idle
"#]],
    );
}

#[test]
fn c_062_a_plain_answer_does_not_do_where_fields_are_required() {
    check(
        "fields: name!, note\nbudgets: 2 iterations",
        "
entered
reply \"here you are\"
reply \"here you are again\"
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply "here you are" -> replied, lap_started(2) [call_model 2] +thought "here you are" +reminder "hand in the result by calling submit_result; required fields: name" = running
            reply "here you are again" -> replied, budget_breached(iterations 3 of 2), ended(partial budget iterations) +thought "here you are again" +reminder "hand in the result by calling submit_result; required fields: name" +deliverable {"text":"stopped by the budget: iterations would be 3, 2 allowed"} = idle
        "#]],
    );
}
