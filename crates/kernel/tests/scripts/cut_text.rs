//! Streamed text stays, whatever becomes of the attempt that streamed it.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_model_that_does_not_repeat_its_text_continues_in_another_message() {
    check(
        "tools: look",
        "\nentered\ncut half a sen\nowed?\nreply \"the rest\"\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        cut half a sen -> cut(resumes) [call_model 1 try 2] +thought "half a sen" +reminder "your last message was cut off in the middle; go on from where it ends, without repeating it" = running
        owed? call_model 1 try 2
        reply "the rest" -> replied, ended(success answered) +deliverable {"text":"the rest"} = idle
    "#]],
    );
}

#[test]
fn a_stop_keeps_the_streamed_text() {
    check(
        "tools: look",
        "\nentered\nstop enough saying half a sen\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        stop enough saying half a sen -> cut(ends), ended(canceled stopped) +thought "half a sen" +deliverable {"text":"stopped: enough"} = idle
    "#]],
    );
}

#[test]
fn a_final_failure_keeps_the_text_and_a_retried_one_leaves_it_open() {
    check(
        "tools: look",
        "\nentered\nfailed busy retry 5 saying half a sen\nfailed gone never saying half a sen\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        failed busy retry 5 saying half a sen -> attempt_failed(busy) [call_model 1 try 2 at 5] = running
        failed gone never saying half a sen -> cut(ends), attempt_failed(gone), ended(failed model_failed gone) +thought "half a sen" +deliverable {"text":"the model could not be called: gone it was"} = idle
    "#]],
    );
}

#[test]
fn text_is_not_kept_where_no_model_is_asked() {
    check(
        "tools: look external",
        "\nentered\nreply: look\ncut stray\nquiet\nstop enough saying stray\nquiet\n",
        expect![[r#"
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: look -> replied(1 look) +call 1 = suspended, waits for 1 until 60000
        cut stray -> ignored(cut: out_of_phase) = suspended, waits for 1 until 60000
        quiet -> quiet = suspended, waits for 1 until 60000
        stop enough saying stray -> ended(canceled stopped) +deliverable {"text":"stopped: enough"} = idle
        quiet -> ignored(quiet: already_ended) = idle
    "#]],
    );
}
