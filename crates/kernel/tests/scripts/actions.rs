//! A person's action: one tool is called without a model, and its result is the deliverable.

use expect_test::expect;

use crate::support::check;

const PAY: &str = "
origin: action
tools: pay external write 5000ms, look
";

#[test]
fn f_011_an_action_delivers_its_result() {
    check(
        PAY,
        r#"
entered: pay({"sum":5})
iteration?
report 1 success
"#,
        expect![[r#"
    entered: pay({"sum":5}) -> leased, action_started(1 pay) +call 1({"sum":5}) = suspended, waits for 1 until 5000
    iteration? 1
    report 1 success -> reported(1 success), ended(success terminated) +result 1 +deliverable {"fields":[{"name":"pay","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn an_action_in_process_is_started_here() {
    check(
        PAY,
        "
entered: look
report 1 success
",
        expect![[r#"
    entered: look -> leased, action_started(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), ended(success terminated) +result 1 +deliverable {"fields":[{"name":"look","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn an_action_is_as_good_as_its_result() {
    check(
        PAY,
        "
entered: look
report 1 failed suspend
",
        expect![[r#"
    entered: look -> leased, action_started(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 failed suspend -> reported(1 failed), ended(failed terminated) +result 1 +deliverable {"fields":[{"name":"look","item_id":"result 1"}]} = idle
"#]],
    );
    check(
        PAY,
        "
at 10
entered: pay
at 5010
expired?
timeout 1
",
        expect![[r#"
    at 10
    entered: pay -> leased, action_started(1 pay) +call 1 = suspended, waits for 1 until 5010
    at 5010
    expired? 1
    timeout 1 -> reported(1 timeout), ended(timeout terminated) +result 1 +deliverable {"fields":[{"name":"pay","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn an_action_whose_tool_is_gone_fails_and_delivers() {
    check(
        PAY,
        "
entered: gone
",
        expect![[r#"
    entered: gone -> leased, ended(failed model_failed unknown_tool) +deliverable {"text":"the tool is gone"} = idle
"#]],
    );
}

#[test]
fn an_action_can_be_stopped_and_parked_like_any_run() {
    check(
        PAY,
        "
entered: pay
lease_ended 1
answer release 1
stop enough
",
        expect![[r#"
            entered: pay -> leased, action_started(1 pay) +call 1 = suspended, waits for 1 until 5000
            lease_ended 1 -> interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer release 1 -> resolved(released until 5000) = suspended, waits for 1 until 5000
            stop enough -> ended(canceled stopped) +deliverable {"text":"stopped: enough"} = idle
        "#]],
    );
    check(
        PAY,
        "
entered: pay
lease_ended 1
answer tell 1
",
        expect![[r#"
            entered: pay -> leased, action_started(1 pay) +call 1 = suspended, waits for 1 until 5000
            lease_ended 1 -> interrupted(unknown_outcome 1) = suspended, waits for 1 without deadline
            answer tell 1 -> resolved(reported_to_model), reported(1 failed), ended(failed terminated) +result 1 outcome_unknown: nobody knows whether this call took effect; check before you call it again +deliverable {"fields":[{"name":"pay","item_id":"result 1"}]} = idle
        "#]],
    );
}

#[test]
fn an_action_does_not_wait_longer_than_the_run_may_last() {
    check(
        "
origin: action
tools: look 9000ms
budgets: 2000 wall_ms
",
        "
at 1000
entered: look
",
        expect![[r#"
    at 1000
    entered: look -> leased, action_started(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 3000
"#]],
    );
}
