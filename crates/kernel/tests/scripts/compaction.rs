//! A run whose prompt is too long for its model gets a summary and continues from it.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_run_that_became_too_long_continues_from_a_summary() {
    check(
        "compaction: auto\ntools: look",
        "\nentered\nreply: look\nreport 1 success\nfailed context_length_exceeded never\nreply \"in short\" using 9+3\nreply \"done\"\nusage?\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(2) [call_model 2 summary try 2 at 0] = running
            reply "in short" using 9+3 -> compacted(2) [call_model 2 try 3] +summary "in short" = running
            reply "done" -> replied, ended(success answered) +deliverable {"text":"done"} = idle
            usage? 9+3
        "#]],
    );
}

#[test]
fn a_summary_that_is_too_long_to_make_is_attempted_with_less_and_then_given_up() {
    check(
        "compaction: auto",
        "\nentered\nfailed context_length_exceeded never\nfailed context_length_exceeded never\nfailed busy retry 5\nfailed context_length_exceeded never\nfailed context_length_exceeded never\nfailed context_length_exceeded never\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 2 at 0] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 3 at 0] = running
            failed busy retry 5 -> attempt_failed(busy) [call_model 1 summary try 4 at 5] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 5 at 0] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 6 at 0] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), ended(failed model_failed context_length_exceeded) +deliverable {"text":"the model could not be called: context_length_exceeded it was"} = idle
        "#]],
    );
}

#[test]
fn an_iteration_that_is_too_long_with_its_summary_ends_the_run() {
    check(
        "compaction: auto",
        "\nentered\nfailed context_length_exceeded never\nreply \"in short\"\nfailed context_length_exceeded never\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 2 at 0] = running
            reply "in short" -> compacted(1) [call_model 1 try 3] +summary "in short" = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), ended(failed model_failed context_length_exceeded) +deliverable {"text":"the model could not be called: context_length_exceeded it was"} = idle
        "#]],
    );
}

#[test]
fn no_summary_is_made_when_it_is_off_or_text_was_streamed() {
    check(
        "tools: look",
        "\nentered\nfailed context_length_exceeded never\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed context_length_exceeded never -> attempt_failed(context_length_exceeded), ended(failed model_failed context_length_exceeded) +deliverable {"text":"the model could not be called: context_length_exceeded it was"} = idle
    "#]],
    );
    check(
        "compaction: auto",
        "\nentered\nfailed context_length_exceeded never saying half\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed context_length_exceeded never saying half -> cut(ends), attempt_failed(context_length_exceeded), ended(failed model_failed context_length_exceeded) +thought "half" +deliverable {"text":"the model could not be called: context_length_exceeded it was"} = idle
    "#]],
    );
    check(
        "compaction: auto",
        "\nentered\nfailed refused never\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed refused never -> attempt_failed(refused), ended(failed model_failed refused) +deliverable {"text":"the model could not be called: refused it was"} = idle
    "#]],
    );
}

#[test]
fn a_budget_holds_for_summaries_too() {
    check(
        "compaction: auto\nbudgets: 10 tokens",
        "\nentered\nfailed context_length_exceeded never\nreply \"in short\" using 9+3\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 2 at 0] = running
            reply "in short" using 9+3 -> compacted(1), budget_breached(tokens 12 of 10), ended(partial budget tokens) +summary "in short" +deliverable {"text":"stopped by the budget: tokens would be 12, 10 allowed"} = idle
        "#]],
    );
    check(
        "compaction: auto\nbudgets: 10 tokens",
        "\nentered\nfailed context_length_exceeded never using 10+0\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed context_length_exceeded never using 10+0 -> attempt_failed(context_length_exceeded), budget_breached(tokens 10 of 10), ended(partial budget tokens) +deliverable {"text":"stopped by the budget: tokens would be 10, 10 allowed"} = idle
    "#]],
    );
}

#[test]
fn a_compaction_is_over_with_its_summary_and_calls_nothing() {
    check(
        "compaction: only\ntools: look",
        "\nentered\nfailed context_length_exceeded never\nreply \"in short\": look\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1 summary] = running
            failed context_length_exceeded never -> attempt_failed(context_length_exceeded), compacting(1) [call_model 1 summary try 2 at 0] = running
            reply "in short": look -> replied, ended(success answered) +deliverable {"summary":"in short"} = idle
        "#]],
    );
    check(
        "compaction: only",
        "\nentered\nthoughtful hm / in short / so / look\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1 summary] = running
            thoughtful hm / in short / so / look -> replied, ended(success answered) +deliverable {"summary":"in short"} = idle
        "#]],
    );
    check(
        "compaction: only",
        "\nentered\nreply \" \" using 7+1\nusage?\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1 summary] = running
            reply " " using 7+1 -> attempt_failed(no_summary), ended(failed model_failed no_summary) +deliverable {"text":"the model could not be called: it gave no summary of the conversation"} = idle
            usage? 7+1
        "#]],
    );
}
