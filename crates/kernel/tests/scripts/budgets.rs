//! S10: nothing starts past a limit. The breach records how much was used, and the run ends with a partial deliverable.

use expect_test::expect;

use crate::support::check;

#[test]
fn v_007_iterations_end_at_the_limit_with_a_partial_deliverable() {
    check(
        "
tools: a
budgets: 2 iterations
",
        "
entered
reply: a
report 1 success
reply: a
report 2 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply: a -> replied(2 a) [start_tool 2] +call 2 = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), budget_breached(iterations 3 of 2), ended(partial budget iterations) +result 2 +deliverable {"text":"stopped by the budget: iterations would be 3, 2 allowed"} = idle
"#]],
    );
}

#[test]
fn iterations_of_refused_calls_count_as_well() {
    check(
        "budgets: 2 iterations",
        "
entered
reply: b
reply: b
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: b -> replied(1 b), reported(1 failed), lap_started(2) [call_model 2] +call 1 +result 1 unknown_tool: there is no tool "b"; there are:  = running
    reply: b -> replied(2 b), reported(2 failed), budget_breached(iterations 3 of 2), ended(partial budget iterations) +call 2 +result 2 unknown_tool: there is no tool "b"; there are:  +deliverable {"text":"stopped by the budget: iterations would be 3, 2 allowed"} = idle
"#]],
    );
}

#[test]
fn a_budget_of_no_iterations_ends_on_entry() {
    check(
        "budgets: 0 iterations",
        "
entered
",
        expect![[r#"
    entered -> leased, budget_breached(iterations 1 of 0), ended(partial budget iterations) +deliverable {"text":"stopped by the budget: iterations would be 1, 0 allowed"} = idle
"#]],
    );
}

#[test]
fn an_iteration_that_would_pass_the_call_limit_starts_none_of_its_calls() {
    check(
        "
tools: a, b
budgets: 3 calls
",
        "
entered
reply: a, b
report 1 success
report 2 success
reply \"two more\": a, b
owed?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
    report 1 success -> reported(1 success) = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(2) [call_model 2] +result 1 +result 2 = running
    reply "two more": a, b -> replied, budget_breached(calls 4 of 3), ended(partial budget calls) +thought "two more" +call 3 +call 4 +deliverable {"text":"stopped by the budget: calls would be 4, 3 allowed"} = idle
    owed? nothing
"#]],
    );
}

#[test]
fn an_iteration_that_just_reaches_the_call_limit_runs() {
    check(
        "
tools: a
budgets: 2 calls
",
        "
entered
reply: a, a
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a, a -> replied(1 a, 2 a) [start_tool 1, start_tool 2] +call 1 +call 2 = suspended, waits for 2 until 60000
"#]],
    );
}

#[test]
fn refused_calls_of_the_iteration_do_not_count_against_the_call_limit() {
    check(
        "
tools: a
budgets: 1 calls
",
        "
entered
reply: b, a, a(oops)
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: b, a, a(oops) -> replied(1 b, 2 a, 3 a), reported(1 failed), reported(3 failed) [start_tool 2] +call 1 +call 2 +call 3(oops) = suspended, waits for 1 until 60000
"#]],
    );
}

#[test]
fn tokens_used_up_by_a_reply_start_none_of_its_calls() {
    check(
        "
tools: a
budgets: 100 tokens
",
        "
entered
reply: a using 90+10
usage?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a using 90+10 -> replied, budget_breached(tokens 100 of 100), ended(partial budget tokens) +call 1 +deliverable {"text":"stopped by the budget: tokens would be 100, 100 allowed"} = idle
    usage? 90+10
"#]],
    );
}

#[test]
fn an_answer_that_uses_up_the_tokens_is_delivered() {
    check(
        "budgets: 100 tokens",
        "
entered
reply \"done\" using 500+500
usage?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "done" using 500+500 -> replied, ended(success answered) +deliverable {"text":"done"} = idle
    usage? 500+500
"#]],
    );
}

#[test]
fn tokens_below_the_limit_do_not_end_the_run() {
    check(
        "
tools: a
budgets: 100 tokens
",
        "
entered
reply: a using 40+10
report 1 success
reply: a using 49+0
report 2 success
reply: a using 1+0
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a using 40+10 -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
    reply: a using 49+0 -> replied(2 a) [start_tool 2] +call 2 = suspended, waits for 1 until 60000
    report 2 success -> reported(2 success), lap_started(3) [call_model 3] +result 2 = running
    reply: a using 1+0 -> replied, budget_breached(tokens 100 of 100), ended(partial budget tokens) +call 3 +deliverable {"text":"stopped by the budget: tokens would be 100, 100 allowed"} = idle
"#]],
    );
}

#[test]
fn tokens_of_failed_attempts_count_and_no_further_attempt_is_owed() {
    check(
        "budgets: 100 tokens",
        "
entered
failed cut retry 10 using 60+0
failed cut retry 10 using 60+0
usage?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed cut retry 10 using 60+0 -> attempt_failed(cut) [call_model 1 try 2 at 10] = running
    failed cut retry 10 using 60+0 -> attempt_failed(cut), budget_breached(tokens 120 of 100), ended(partial budget tokens) +deliverable {"text":"stopped by the budget: tokens would be 120, 100 allowed"} = idle
    usage? 120+0
"#]],
    );
}

/// The usage is what providers reported. The budget also counts the estimates.
#[test]
fn unreported_tokens_count_but_are_not_usage() {
    check(
        "budgets: 100 tokens",
        "
entered
failed cut retry 10 using 20+1 losing 30
cut half a losing 40
usage?
reply: a using 9+0
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed cut retry 10 using 20+1 losing 30 -> attempt_failed(cut) [call_model 1 try 2 at 10] = running
            cut half a losing 40 -> cut(resumes) [call_model 1 try 3] +thought "half a" +reminder "your last message was cut off in the middle; go on from where it ends, without repeating it" = running
            usage? 20+1, 70 lost
            reply: a using 9+0 -> replied, budget_breached(tokens 100 of 100), ended(partial budget tokens) +call 1 +deliverable {"text":"stopped by the budget: tokens would be 100, 100 allowed"} = idle
        "#]],
    );
}

#[test]
fn an_attempt_that_does_not_continue_the_text_may_be_the_last() {
    check(
        "budgets: 100 tokens",
        "
entered
cut half a losing 100
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            cut half a losing 100 -> cut(ends), budget_breached(tokens 100 of 100), ended(partial budget tokens) +thought "half a" +deliverable {"text":"stopped by the budget: tokens would be 100, 100 allowed"} = idle
        "#]],
    );
}

/// The model is asked again after a takeover, so the budgets are checked first.
#[test]
fn tokens_lost_with_an_owner_count_and_streamed_text_stays() {
    check(
        "budgets: 100 tokens",
        "
entered
taken over losing 60
usage?
taken over losing 60 saying half a
usage?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            taken over losing 60 -> taken_over = running
            usage? 0+0, 60 lost
            taken over losing 60 saying half a -> taken_over, cut(ends), budget_breached(tokens 120 of 100), ended(partial budget tokens) +thought "half a" +deliverable {"text":"stopped by the budget: tokens would be 120, 100 allowed"} = idle
            usage? 0+0, 120 lost
        "#]],
    );
}

/// A waiting run has no model call that its owner could lose.
#[test]
fn a_waiting_run_is_not_ended_by_a_takeover() {
    check(
        "
tools: look
budgets: 100 tokens
",
        "
entered
reply: look using 50+0
taken over losing 60
usage?
",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look using 50+0 -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            taken over losing 60 -> taken_over = suspended, waits for 1 until 60000
            usage? 50+0, 60 lost
        "#]],
    );
}

#[test]
fn tokens_of_the_last_failed_attempt_are_recorded() {
    check(
        "",
        "
entered
failed cut retry 10 using 60+1
failed cut never using 30+2
usage?
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    failed cut retry 10 using 60+1 -> attempt_failed(cut) [call_model 1 try 2 at 10] = running
    failed cut never using 30+2 -> attempt_failed(cut), ended(failed model_failed cut) +deliverable {"text":"the model could not be called: cut it was"} = idle
    usage? 90+3
"#]],
    );
}

#[test]
fn time_that_is_up_starts_no_further_iteration() {
    check(
        "
tools: a
budgets: 1000 wall_ms
",
        "
at 500
entered
reply: a
at 1500
timeout 1
",
        expect![[r#"
    at 500
    entered -> leased, lap_started(1) [call_model 1] = running
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 1500
    at 1500
    timeout 1 -> reported(1 timeout), budget_breached(wall_ms 1000 of 1000), ended(partial budget wall_ms) +result 1 +deliverable {"text":"stopped by the budget: wall_ms would be 1000, 1000 allowed"} = idle
"#]],
    );
}

#[test]
fn time_counts_from_the_first_iteration_on() {
    check(
        "
tools: a
budgets: 1000 wall_ms
",
        "
at 500
entered
at 1400
reply: a
report 1 success
at 1600
reply: a
",
        expect![[r#"
            at 500
            entered -> leased, lap_started(1) [call_model 1] = running
            at 1400
            reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 1500
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            at 1600
            reply: a -> replied, budget_breached(wall_ms 1100 of 1000), ended(partial budget wall_ms) +call 2 +deliverable {"text":"stopped by the budget: wall_ms would be 1100, 1000 allowed"} = idle
        "#]],
    );
}

#[test]
fn time_that_is_up_starts_no_further_call() {
    check(
        "
tools: a
budgets: 1000 wall_ms
",
        "
at 500
entered
at 1499
reply: a
at 1500
report 1 success
",
        expect![[r#"
    at 500
    entered -> leased, lap_started(1) [call_model 1] = running
    at 1499
    reply: a -> replied(1 a) [start_tool 1] +call 1 = suspended, waits for 1 until 1500
    at 1500
    report 1 success -> reported(1 success), budget_breached(wall_ms 1000 of 1000), ended(partial budget wall_ms) +result 1 +deliverable {"text":"stopped by the budget: wall_ms would be 1000, 1000 allowed"} = idle
"#]],
    );
    check(
        "
tools: a
budgets: 1000 wall_ms
",
        "
at 500
entered
at 1700
reply: a
",
        expect![[r#"
    at 500
    entered -> leased, lap_started(1) [call_model 1] = running
    at 1700
    reply: a -> replied, budget_breached(wall_ms 1200 of 1000), ended(partial budget wall_ms) +call 1 +deliverable {"text":"stopped by the budget: wall_ms would be 1200, 1000 allowed"} = idle
"#]],
    );
}

#[test]
fn an_attempt_that_could_only_start_past_the_time_limit_is_not_owed() {
    check(
        "budgets: 1000 wall_ms",
        "
entered
at 300
failed busy retry 600
at 950
failed busy retry 60
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    at 300
    failed busy retry 600 -> attempt_failed(busy) [call_model 1 try 2 at 900] = running
    at 950
    failed busy retry 60 -> attempt_failed(busy), budget_breached(wall_ms 1010 of 1000), ended(partial budget wall_ms) +deliverable {"text":"stopped by the budget: wall_ms would be 1010, 1000 allowed"} = idle
"#]],
    );
}

#[test]
fn an_answer_counts_though_the_time_is_up() {
    check(
        "budgets: 1000 wall_ms",
        "
entered
at 5000
reply \"late but here\"
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    at 5000
    reply "late but here" -> replied, ended(success answered) +deliverable {"text":"late but here"} = idle
"#]],
    );
}

#[test]
fn a_breach_keeps_the_results_that_are_in() {
    check(
        "
tools: a, b
budgets: 1 iterations
",
        "
entered
reply \"both\": a, b
report 2 success
report 1 success
",
        expect![[r#"
    entered -> leased, lap_started(1) [call_model 1] = running
    reply "both": a, b -> replied(1 a, 2 b) [start_tool 1, start_tool 2] +thought "both" +call 1 +call 2 = suspended, waits for 2 until 60000
    report 2 success -> reported(2 success) = suspended, waits for 1 until 60000
    report 1 success -> reported(1 success), budget_breached(iterations 2 of 1), ended(partial budget iterations) +result 1 +result 2 +deliverable {"text":"stopped by the budget: iterations would be 2, 1 allowed"} = idle
"#]],
    );
}
