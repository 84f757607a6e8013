//! Calls that the client of a request approves: the run ends, and the next run makes them if the client approved them.

use expect_test::expect;

use crate::support::check;

#[test]
fn s_11_a_call_that_the_client_must_approve_ends_the_run_and_nothing_of_the_iteration_runs() {
    check(
        "tools: look, pay write, send external write\nclient_approves: pay, send",
        "
entered
reply: look
report 1 success
reply \"one moment\": look, pay({\"sum\":5}), send
owed?
report 3 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            reply "one moment": look, pay({"sum":5}), send -> replied, ended(success requires_action) +thought "one moment" +call 2 +call 3({"sum":5}) asks the client +call 4 asks the client +deliverable {"text":"one moment"} = idle
            owed? nothing
            report 3 success -> ignored(tool_result 3: already_ended) = idle
        "#]],
    );
}

#[test]
fn s_11_an_inherited_call_starts_only_if_the_client_approved_it() {
    check(
        "tools: look, pay write\nclient_approves: pay",
        "
takes look, pay({\"sum\":5}) as approved, pay as rejected too much, pay as rejected, pay as unanswered
owed?
report 1 success
report 2 success
",
        expect![[r#"
            takes look, pay({"sum":5}) as approved, pay as rejected too much, pay as rejected, pay as unanswered -> leased, calls_taken(1 look, 2 pay, 3 pay, 4 pay, 5 pay), reported(3 failed), reported(4 failed), reported(5 failed) [start_tool 1, start_tool 2] +call 1 +call 2({"sum":5}) +call 3 +call 4 +call 5 = suspended, waits for 2 until 60000
            owed? start_tool 1, start_tool 2
            report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
            report 2 success -> reported(2 success), lap_started(1) [call_model 1] +result 1 +result 2 +result 3 rejected: the user rejected this call; it was not made. They say: too much +result 4 rejected: the user rejected this call; it was not made +result 5 no_approval: no approval given for this call; it was not made = running
        "#]],
    );
}

#[test]
fn s_11_a_call_that_was_not_asked_about_is_not_made_by_a_run_that_wants_approval() {
    check(
        "tools: look, pay write\nclient_approves: pay",
        "\ntakes pay, look\n",
        expect![[r#"
        takes pay, look -> leased, calls_taken(1 pay, 2 look), reported(1 failed) [start_tool 2] +call 1 +call 2 = suspended, waits for 1 until 60000
    "#]],
    );
}

#[test]
fn s_11_an_approval_is_for_one_tool_at_one_server() {
    check(
        "tools: pay write @bank\nclient_approves: pay",
        "\ntakes pay as approved at bank, pay as approved at thief, pay as approved\nowed?\n",
        expect![[r#"
            takes pay as approved at bank, pay as approved at thief, pay as approved -> leased, calls_taken(1 pay, 2 pay, 3 pay), reported(2 failed), reported(3 failed) [start_tool 1] +call 1 +call 2 +call 3 = suspended, waits for 1 until 60000
            owed? start_tool 1
        "#]],
    );
}

#[test]
fn a_call_of_a_tool_that_is_the_clients_now_is_not_made() {
    check(
        "tools: pay client, look",
        "\ntakes pay as approved, pay, look\n",
        expect![[r#"
        takes pay as approved, pay, look -> leased, calls_taken(1 pay, 2 pay, 3 look), reported(1 failed), reported(2 failed) [start_tool 3] +call 1 +call 2 +call 3 = suspended, waits for 1 until 60000
    "#]],
    );
}

#[test]
fn s_11_an_operators_rule_holds_what_the_client_approved() {
    check(
        "tools: pay write\ngates: pay\nclient_approves: pay",
        "
takes pay as approved, pay as rejected no
owed?
answer approve 1 by ann
owed?
",
        expect![[r#"
            takes pay as approved, pay as rejected no -> leased, calls_taken(1 pay, 2 pay), interrupted(approval 1), reported(2 failed) +call 1 +call 2 = suspended, waits for 1 without deadline
            owed? nothing
            answer approve 1 by ann -> resolved(approved by ann until 60000) [start_tool 1] = suspended, waits for 1 until 60000
            owed? start_tool 1
        "#]],
    );
}

#[test]
fn s_11_a_run_inherits_the_taint_with_the_calls() {
    check(
        "tools: pay write\ngates: tainted pay\nclient_approves: pay",
        "\ntakes pay as approved\n",
        expect![[r#"
        takes pay as approved -> leased, calls_taken(1 pay) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    "#]],
    );
    check(
        "tools: pay write, look\ngates: tainted pay",
        "\ntakes look as tainted, pay\n",
        expect![[r#"
        takes look as tainted, pay -> leased, calls_taken(1 look, 2 pay), interrupted(approval 2) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
    "#]],
    );
}

#[test]
fn no_client_is_asked_about_a_call_that_would_be_refused() {
    check(
        "tools: pay write\nclient_approves: pay",
        "
entered
reply: pay({broken)
reply: pay({broken), pay()
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay({broken) -> replied(1 pay), reported(1 failed), lap_started(2) [call_model 2] +call 1({broken) +result 1 bad_arguments: the arguments are not a JSON object; call again with one = running
            reply: pay({broken), pay() -> replied, ended(success requires_action) +call 2({broken) +call 3 asks the client +deliverable {"text":""} = idle
        "#]],
    );
}

#[test]
fn no_client_is_asked_by_a_run_that_may_make_no_calls() {
    check(
        "tools: pay write\nclient_approves: pay\nchoice: none",
        "\nentered\nreply: pay\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: pay -> replied, ended(success answered) +call 1 +deliverable {"text":""} = idle
    "#]],
    );
}
