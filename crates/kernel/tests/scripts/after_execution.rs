//! What follows a result: the model is asked again, or the run ends.

use expect_test::expect;

use crate::support::check;

#[test]
fn c_046_c_052_a_terminating_tool_ends_the_run_with_its_result() {
    check(
        "tools: last terminate",
        "
entered
reply: last
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: last -> replied(1 last) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success terminate), ended(success terminated) +result 1 +deliverable {"fields":[{"name":"last","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn c_047_a_report_may_terminate_though_the_tool_suspends() {
    check(
        "tools: a",
        "
entered
reply: a
report 1 success terminate
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success terminate -> reported(1 success terminate), ended(success terminated) +result 1 +deliverable {"fields":[{"name":"a","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn c_047_a_report_may_suspend_though_the_tool_terminates() {
    check(
        "tools: last terminate",
        "
entered
reply: last
report 1 success suspend
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: last -> replied(1 last) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success suspend -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
"#]],
    );
}

#[test]
fn c_052_a_terminating_result_waits_for_the_others_of_its_iteration() {
    check(
        "tools: a, last terminate, b",
        "
entered
reply: a, last, b
report 2 success
report 3 success
report 1 failed
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, last, b -> replied(1 a, 2 last, 3 b) [start_tool 1, start_tool 2, start_tool 3] +call 1 +call 2 +call 3 = suspended, waits for 3 until 60000
    report 2 success -> reported(2 success terminate) = suspended, waits for 2 until 60000
    report 3 success -> reported(3 success) = suspended, waits for 1 until 60000
    report 1 failed -> reported(1 failed), ended(success terminated) +result 1 +result 2 +result 3 +deliverable {"fields":[{"name":"last","item_id":"result 2"}]} = idle
"#]],
    );
}

#[test]
fn the_run_is_as_good_as_its_first_bad_terminating_result() {
    check(
        "tools: last terminate, a",
        "
entered
reply: last, a, last, last
report 4 failed
report 3 partial
report 2 canceled
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: last, a, last, last -> replied(1 last, 2 a, 3 last, 4 last) [start_tool 1, start_tool 2, start_tool 3, start_tool 4] +call 1 +call 2 +call 3 +call 4 = suspended, waits for 4 until 60000
    report 4 failed -> reported(4 failed terminate) = suspended, waits for 3 until 60000
    report 3 partial -> reported(3 partial terminate) = suspended, waits for 2 until 60000
    report 2 canceled -> reported(2 canceled) = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success terminate), ended(partial terminated) +result 1 +result 2 +result 3 +result 4 +deliverable {"fields":[{"name":"last","item_id":"result 1"},{"name":"last","item_id":"result 3"},{"name":"last","item_id":"result 4"}]} = idle
"#]],
    );
}

#[test]
fn a_terminating_tool_that_times_out_ends_the_run_with_that_status() {
    check(
        "tools: last terminate 1000ms",
        "
entered
reply: last
at 1000
timeout 1
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: last -> replied(1 last) [start_tool 1] +call 1 = suspended, waits for 1 until 1000
    at 1000
    timeout 1 -> reported(1 timeout terminate), ended(timeout terminated) +result 1 +deliverable {"fields":[{"name":"last","item_id":"result 1"}]} = idle
"#]],
    );
}

#[test]
fn c_047_the_first_report_of_a_call_decides_what_follows() {
    check(
        "tools: a, b",
        "
entered
reply: a, b
report 1 success terminate
report 1 success suspend
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success terminate -> reported(1 success terminate) = suspended, waits for 1 until 60000
    report 1 success suspend -> ignored(tool_result 1: already_reported) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), ended(success terminated) +result 1 +result 2 +deliverable {"fields":[{"name":"a","item_id":"result 1"}]} = idle
"#]],
    );
}
