//! Calls that an earlier run did not make are made first. Then the model is asked.

use expect_test::expect;

use crate::support::check;

#[test]
fn the_model_waits_for_the_inherited_calls() {
    check(
        "tools: look, pay external write",
        "\ntakes look, pay\nowed?\nreport 1 success\nreport 2 failed\niteration?\nreply \"done\"\n",
        expect![[r#"
            takes look, pay -> leased, calls_taken(1 look, 2 pay) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
            owed? start_tool 1
            report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
            report 2 failed -> reported(2 failed), lap_started(1) [call_model 1] +result 1 +result 2 = running
            iteration? 1
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn a_call_that_may_not_be_made_any_more_is_answered_at_once() {
    check(
        "tools: look",
        "\ntakes pay\n",
        expect![[r#"
        takes pay -> leased, calls_taken(1 pay), reported(1 failed), lap_started(1) [call_model 1] +call 1 +result 1 unknown_tool: there is no tool "pay"; there are: look = running
    "#]],
    );
}

#[test]
fn s_10_inherited_calls_count_against_the_budgets() {
    check(
        "tools: look\nbudgets: 3 iterations, 1 calls",
        "\ntakes look, look\n",
        expect![[r#"
        takes look, look -> leased, budget_breached(calls 2 of 1), ended(partial budget calls) +deliverable {"text":"stopped by the budget: calls would be 2, 1 allowed"} = idle
    "#]],
    );
    check(
        "tools: look\nbudgets: 3 iterations, 1 calls\nbudgets_park: yes",
        "\ntakes look, look\nowed?\nanswer raise 2\n",
        expect![[r#"
            takes look, look -> leased, calls_taken(1 look, 2 look), budget_breached(calls 2 of 1), interrupted(budget) +call 1 +call 2 = suspended, waits for 2 without deadline, held by budget
            owed? nothing
            answer raise 2 -> resolved(raised calls to 2), call_released(1 until 60000), call_released(2 until 60000) [start_tool 1, start_tool 2] = suspended, waits for 2 until 60000
        "#]],
    );
}
