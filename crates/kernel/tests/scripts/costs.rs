//! Cost budgets: what tokens cost by the prices that the run started with.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_run_ends_when_its_tokens_have_cost_as_much_as_they_may() {
    check(
        "tools: look\nbudgets: 100 cost",
        "
entered
reply: look using 10+2
report 1 success
failed busy retry 5 losing 19
reply: look using 1+2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look using 10+2 -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            failed busy retry 5 losing 19 -> attempt_failed(busy) [call_model 2 try 2 at 5] = running
            reply: look using 1+2 -> replied, budget_breached(cost_micro_usd 100 of 100), ended(partial budget cost_micro_usd) +call 2 +deliverable {"text":"stopped by the budget: cost_micro_usd would be 100, 100 allowed"} = idle
        "#]],
    );
}

#[test]
fn a_run_that_waits_for_a_higher_cost_goes_on_where_it_stood() {
    check(
        "tools: look\nbudgets: 100 cost\nbudgets_park: yes",
        "
entered
reply: look using 0+12
answer raise 120
answer raise 121
report 1 success
reply \"done\" using 0+1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look using 0+12 -> replied(1 look), budget_breached(cost_micro_usd 120 of 100), interrupted(budget) +call 1 = suspended, waits for 1 without deadline, held by budget
            answer raise 120 -> ignored(answer: raised_too_little) = suspended, waits for 1 without deadline, held by budget
            answer raise 121 -> resolved(raised cost_micro_usd to 121), call_released(1 until 60000) [start_tool 1] = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            reply "done" using 0+1 -> replied, ended(success answered) +deliverable {"text":"done"} = idle
        "#]],
    );
}
