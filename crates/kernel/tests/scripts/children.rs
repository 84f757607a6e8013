//! Calls that start child runs, and what a child run tells its parent (S15).

use expect_test::expect;

use crate::support::check;

#[test]
fn s_15_a_child_is_owed_until_it_is_on_record_and_has_no_deadline() {
    check(
        "tools: helper child, look",
        "
entered
reply: helper, look
begun 2
begun 1
begun 1
owed?
report 2 success
at 9000000
expired?
report 1 success below 50
usage?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper, look -> replied(1 helper, 2 look) [start_child 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
            begun 2 -> ignored(child_begun 2: not_waiting) = suspended, waits for 2 until 60000
            begun 1 -> child_begun(1) = suspended, waits for 2 until 60000
            begun 1 -> ignored(child_begun 1: already_reported) = suspended, waits for 2 until 60000
            owed? start_tool 2
            report 2 success -> reported(2 success) = suspended, waits for 1 without deadline
            at 9000000
            expired? nothing
            report 1 success below 50 -> reported(1 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
            usage? 0+0
        "#]],
    );
}

#[test]
fn s_15_a_new_owner_starts_what_is_not_on_record() {
    check(
        "tools: helper child",
        "
entered
reply: helper, helper
begun 1
taken over
owed?
panicked
answer resume
owed?
report 1 success
report 2 failed
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper, helper -> replied(1 helper, 2 helper) [start_child 1, start_child 2] +call 1 +call 2 = suspended, waits for 2 without deadline
            begun 1 -> child_begun(1) = suspended, waits for 2 without deadline
            taken over -> taken_over = suspended, waits for 2 without deadline
            owed? start_child 2
            panicked -> interrupted(panicked) = suspended, waits for 2 without deadline, held by panicked
            answer resume -> resolved(resumed) [start_child 2] = suspended, waits for 2 without deadline
            owed? start_child 2
            report 1 success -> reported(1 success) = suspended, waits for 1 without deadline
            report 2 failed -> reported(2 failed), lap_started(2) [call_model 2] +result 1 +result 2 = running
        "#]],
    );
}

#[test]
fn s_15_the_end_of_a_run_stops_the_children_that_it_waits_for() {
    check(
        "tools: helper child, look",
        "
entered
reply: helper, helper, look, helper(broken)
begun 1
report 2 success
stop enough
begun 2
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper, helper, look, helper(broken) -> replied(1 helper, 2 helper, 3 look, 4 helper), reported(4 failed) [start_child 1, start_child 2, start_tool 3] +call 1 +call 2 +call 3 +call 4(broken) = suspended, waits for 3 until 60000
            begun 1 -> child_begun(1) = suspended, waits for 3 until 60000
            report 2 success -> reported(2 success) = suspended, waits for 2 until 60000
            stop enough -> ended(canceled stopped) +result 2 +result 4 bad_arguments: the arguments are not a JSON object; call again with one +deliverable {"text":"stopped: enough"} stops 1 = idle
            begun 2 -> ignored(child_begun 2: already_ended) = idle
        "#]],
    );
    check(
        "tools: helper child\nbudgets: 1000 wall_ms",
        "
entered
reply: helper
begun 1
at 1000
expired?
timeout 1
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper -> replied(1 helper) [start_child 1] +call 1 = suspended, waits for 1 until 1000
            begun 1 -> child_begun(1) = suspended, waits for 1 until 1000
            at 1000
            expired? 1
            timeout 1 -> reported(1 timeout), budget_breached(wall_ms 1000 of 1000), ended(partial budget wall_ms) +result 1 +deliverable {"text":"stopped by the budget: wall_ms would be 1000, 1000 allowed"} stops 1 = idle
        "#]],
    );
}

#[test]
fn s_15_a_child_run_reports_its_end_and_what_it_used() {
    check(
        "parent: call 3",
        "\nentered\nreply \"done\" using 7+3\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply "done" using 7+3 -> replied, ended(success answered) +deliverable {"text":"done"} reports {"call":3,"status":"success","result":"done"} of 10 tokens = idle
    "#]],
    );
    check(
        "parent: call 3",
        "\nentered\nfailed refused never using 7+0\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed refused never using 7+0 -> attempt_failed(refused), ended(failed model_failed refused) +deliverable {"text":"the model could not be called: refused it was"} reports {"call":3,"status":"failed","result":"the model could not be called: refused it was"} of 7 tokens = idle
    "#]],
    );
    check(
        "parent: call 3\nbudgets: 0 iterations",
        "\nentered\n",
        expect![[r#"
        entered -> leased, budget_breached(iterations 1 of 0), ended(partial budget iterations) +deliverable {"text":"stopped by the budget: iterations would be 1, 0 allowed"} reports {"call":3,"status":"partial","result":"stopped by the budget: iterations would be 1, 0 allowed"} of 0 tokens = idle
    "#]],
    );
    check(
        "parent: call 1\ntools: helper child",
        "\nentered\nreply: helper using 5+5\nreport 1 success below 20\nstop now\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper using 5+5 -> replied(1 helper) [start_child 1] +call 1 = suspended, waits for 1 without deadline
            report 1 success below 20 -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            stop now -> ended(canceled stopped) +deliverable {"text":"stopped: now"} reports {"call":1,"status":"canceled","result":"stopped: now"} of 30 tokens = idle
        "#]],
    );
}

#[test]
fn the_tokens_of_children_count_against_the_budget_of_their_parent() {
    check(
        "tools: helper child\nbudgets: 100 tokens",
        "
entered
reply: helper using 30+10
report 1 success below 60
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper using 30+10 -> replied(1 helper) [start_child 1] +call 1 = suspended, waits for 1 without deadline
            report 1 success below 60 -> reported(1 success), budget_breached(tokens 100 of 100), ended(partial budget tokens) +result 1 +deliverable {"text":"stopped by the budget: tokens would be 100, 100 allowed"} = idle
        "#]],
    );
}

#[test]
fn children_past_the_budget_are_not_started() {
    check(
        "tools: helper child, look\nbudgets: 1 children",
        "\nentered\nreply: helper, look, helper\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: helper, look, helper -> replied, budget_breached(children 2 of 1), ended(partial budget children) +call 1 +call 2 +call 3 +deliverable {"text":"stopped by the budget: children would be 2, 1 allowed"} = idle
    "#]],
    );
    check(
        "tools: helper child\nbudgets: 1 children\nbudgets_park: yes",
        "
entered
reply: helper, helper
owed?
answer raise 2
owed?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper, helper -> replied(1 helper, 2 helper), budget_breached(children 2 of 1), interrupted(budget) +call 1 +call 2 = suspended, waits for 2 without deadline, held by budget
            owed? nothing
            answer raise 2 -> resolved(raised children to 2), call_released(1 until 9223372036854775807), call_released(2 until 9223372036854775807) [start_child 1, start_child 2] = suspended, waits for 2 without deadline
            owed? start_child 1, start_child 2
        "#]],
    );
}

#[test]
fn a_held_child_is_not_started_before_it_is_approved() {
    check(
        "tools: helper child\ngates: helper",
        "
entered
reply: helper
owed?
begun 1
answer approve 1
stop now
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: helper -> replied(1 helper), interrupted(approval 1) +call 1 = suspended, waits for 1 without deadline
            owed? nothing
            begun 1 -> ignored(child_begun 1: held) = suspended, waits for 1 without deadline
            answer approve 1 -> resolved(approved until 9223372036854775807) [start_child 1] = suspended, waits for 1 without deadline
            stop now -> ended(canceled stopped) +deliverable {"text":"stopped: now"} stops 1 = idle
        "#]],
    );
}

/// What a parent has read may have come from a third party, and its child acts on it.
#[test]
fn taint_goes_down_to_children() {
    check(
        "parent: call 1 tainted\ntools: pay write, look\ngates: tainted write",
        "\nentered\nreply: look, pay\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look, pay -> replied(1 look, 2 pay), interrupted(approval 2) [start_tool 1] +call 1 +call 2 = suspended, waits for 2 until 60000
        "#]],
    );
}
