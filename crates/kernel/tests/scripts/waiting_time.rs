//! Waiting for people does not count as wall time.

use expect_test::expect;

use crate::support::check;

#[test]
fn the_wall_time_stands_still_while_a_call_waits_for_approval() {
    check(
        "tools: pay write\ngates: pay\nbudgets: 1000 wall_ms",
        "
entered
at 400
reply: pay
at 90000
answer approve 1
at 90100
report 1 success
at 90599
reply: pay
at 95000
answer approve 2
at 95001
report 2 success
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            at 400
            reply: pay -> replied(1 pay), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            at 90000
            answer approve 1 -> resolved(approved until 90600) [start_tool 1] = suspended, waits for 1 until 90600
            at 90100
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            at 90599
            reply: pay -> replied(2 pay), interrupted(approval 2) +call 2 = suspended, waits for 1 without deadline
            at 95000
            answer approve 2 -> resolved(approved until 95001) [start_tool 2] = suspended, waits for 1 until 95001
            at 95001
            report 2 success -> reported(2 success), budget_breached(wall_ms 1000 of 1000), ended(partial budget wall_ms) +result 2 +deliverable {"text":"stopped by the budget: wall_ms would be 1000, 1000 allowed"} = idle
        "#]],
    );
}

#[test]
fn interrupts_that_are_open_at_the_same_time_are_one_wait() {
    check(
        "tools: pay write\ngates: pay\nbudgets: 1000 wall_ms",
        "
entered
at 100
reply: pay, pay
at 1100
answer approve 1
at 1200
report 1 success
at 2100
answer approve 2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            at 100
            reply: pay, pay -> replied(1 pay, 2 pay), interrupted(approval 1), interrupted(approval 2) +call 1 +call 2 = suspended, waits for 2 without deadline
            at 1100
            answer approve 1 -> resolved(approved until 2000) [start_tool 1] = suspended, waits for 2 until 2000
            at 1200
            report 1 success -> reported(1 success) = suspended, waits for 1 without deadline
            at 2100
            answer approve 2 -> resolved(approved until 3000) [start_tool 2] = suspended, waits for 1 until 3000
        "#]],
    );
}

#[test]
fn the_deadline_of_an_approval_is_not_cut_by_the_wall_time() {
    check(
        "tools: pay write\ngates: pay 5000ms\nbudgets: 1000 wall_ms",
        "
entered
reply: pay
at 4999
answer approve 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: pay -> replied(1 pay), interrupted(approval 1 until 5000) +call 1 = suspended, waits for 1 until 5000
            at 4999
            answer approve 1 -> resolved(approved until 5999) [start_tool 1] = suspended, waits for 1 until 5999
        "#]],
    );
}

#[test]
fn waiting_for_a_higher_limit_is_counted_once() {
    check(
        "tools: look\nbudgets: 1000 wall_ms\nbudgets_park: yes",
        "
entered
at 1000
reply: look
at 5000
answer raise 1500
at 5499
report 1 success
at 5500
reply: look
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            at 1000
            reply: look -> replied(1 look), budget_breached(wall_ms 1000 of 1000), interrupted(budget) +call 1 = suspended, waits for 1 without deadline, held by budget
            at 5000
            answer raise 1500 -> resolved(raised wall_ms to 1500), call_released(1 until 5500) [start_tool 1] = suspended, waits for 1 until 5500
            at 5499
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            at 5500
            reply: look -> replied(2 look), budget_breached(wall_ms 1500 of 1500), interrupted(budget) +call 2 = suspended, waits for 1 without deadline, held by budget
        "#]],
    );
}
