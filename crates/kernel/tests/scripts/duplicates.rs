//! Inputs that come twice, too late, or for a call that does not exist change nothing, and the journal records that.

use expect_test::expect;

use crate::support::check;

#[test]
fn c_086_a_duplicate_is_only_acknowledged() {
    check(
        "tools: a, b",
        "
entered
reply: a, b
report 1 success
report 1 failed terminate
report 2 success
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    report 1 failed terminate -> ignored(tool_result 1: already_reported) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
    report 2 success -> ignored(tool_result 2: not_waiting) = running
"#]],
    );
}

#[test]
fn c_049_a_report_for_a_call_that_is_not_in_the_waiting_set_is_ignored() {
    check(
        "tools: a",
        "
entered
reply: a
report 0 success
report 2 success
timeout 7
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 0 success -> ignored(tool_result 0: not_waiting) = suspended, waits for 1 until 60000
    report 2 success -> ignored(tool_result 2: not_waiting) = suspended, waits for 1 until 60000
    timeout 7 -> ignored(timeout 7: not_waiting) = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
"#]],
    );
}

#[test]
fn c_049_a_report_while_the_run_is_not_suspended_is_ignored() {
    check(
        "tools: a",
        "
report 1 success
entered
report 1 success
lease_ended 1
",
        expect![[r#"
    report 1 success -> ignored(tool_result 1: not_waiting) = dispatched
    entered -> leased, lap_started(1) [call_model 1] = running
    report 1 success -> ignored(tool_result 1: not_waiting) = running
    lease_ended 1 -> ignored(lease_ended 1: not_waiting) = running
"#]],
    );
}

#[test]
fn a_result_of_an_earlier_iteration_is_stale() {
    check(
        "tools: a",
        "
entered
reply: a
report 1 success
reply: a
report 1 success
timeout 1
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply: a -> replied(2 a) [start_tool 2] +call 2 = suspended, waits for 1 until 60000
    report 1 success -> ignored(tool_result 1: not_waiting) = suspended, waits for 1 until 60000
    timeout 1 -> ignored(timeout 1: not_waiting) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(3) [call_model 3] +result 2 = running
"#]],
    );
}

#[test]
fn a_timeout_after_the_result_and_a_result_after_the_timeout_are_ignored() {
    check(
        "tools: a, b",
        "
entered
reply: a, b
report 1 success
timeout 1
timeout 2
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    timeout 1 -> ignored(timeout 1: already_reported) = suspended, waits for 1 until 60000
    timeout 2 -> reported(2 timeout), lap_started(2) [call_model 2] +result 1 +result 2 = running
    report 2 success -> ignored(tool_result 2: not_waiting) = running
"#]],
    );
}

#[test]
fn inputs_of_another_phase_are_ignored_and_recorded() {
    check(
        "tools: a",
        "
reply \"early\"
failed broken retry 10
entered
entered
reply: a
reply \"again\"
failed broken never
entered
report 1 success
",
        expect![[r#"
    reply "early" -> ignored(replied: out_of_phase) = dispatched
    failed broken retry 10 -> ignored(attempt_failed: out_of_phase) = dispatched
    entered -> leased, lap_started(1) [call_model 1] = running
    entered -> ignored(entered: out_of_phase) = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    reply "again" -> ignored(replied: out_of_phase) = suspended, waits for 1 until 60000
    failed broken never -> ignored(attempt_failed: out_of_phase) = suspended, waits for 1 until 60000
    entered -> ignored(entered: out_of_phase) = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
"#]],
    );
}

#[test]
fn an_ended_run_is_final_whatever_comes() {
    check(
        "tools: a",
        "
entered
reply \"done\"
entered
reply \"more\": a
failed broken never
report 1 success
timeout 1
lease_ended 1
stop it
taken over
panicked
answer record 1
answer release 1
answer tell 1
answer resume
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
            entered -> ignored(entered: already_ended) = idle
            reply "more": a -> ignored(replied: already_ended) = idle
            failed broken never -> ignored(attempt_failed: already_ended) = idle
            report 1 success -> ignored(tool_result 1: already_ended) = idle
            timeout 1 -> ignored(timeout 1: already_ended) = idle
            lease_ended 1 -> ignored(lease_ended 1: already_ended) = idle
            stop it -> ignored(stop: already_ended) = idle
            taken over -> ignored(taken_over: already_ended) = idle
            panicked -> ignored(panicked: already_ended) = idle
            answer record 1 -> ignored(answer: already_ended) = idle
            answer release 1 -> ignored(answer: already_ended) = idle
            answer tell 1 -> ignored(answer: already_ended) = idle
            answer resume -> ignored(answer: already_ended) = idle
        "#]],
    );
}

#[test]
fn a_lease_that_ended_after_the_result_is_ignored() {
    check(
        "tools: pay external write, look external",
        "
entered
reply: pay, look
report 1 success
lease_ended 1
lease_ended 9
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: pay, look -> replied(1 pay, 2 look) +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    lease_ended 1 -> ignored(lease_ended 1: already_reported) = suspended, waits for 1 until 60000
    lease_ended 9 -> ignored(lease_ended 9: not_waiting) = suspended, waits for 1 until 60000
"#]],
    );
}
