//! Reasoning precedes the text and the calls that it led to in the output box.

use expect_test::expect;

use crate::support::check;

#[test]
fn reasoning_is_stored_before_the_text_and_a_later_attempt_has_its_own() {
    check(
        "tools: look",
        "\nentered\nreasoned first\nowed?\nfailed busy retry 5\nreasoned second\nreply \"so be it\"\nreasoned too late\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            reasoned first -> reasoned(after 1 signs) +reasoning first = running
            owed? call_model 1
            failed busy retry 5 -> attempt_failed(busy) [call_model 1 try 2 at 5] = running
            reasoned second -> reasoned(after 1 signs) +reasoning second = running
            reply "so be it" -> replied, ended(success answered) +deliverable {"text":"so be it"} = idle
            reasoned too late -> ignored(reasoned: already_ended) = idle
        "#]],
    );
}

#[test]
fn the_reasoning_of_a_reply_is_stored_in_its_places() {
    check(
        "tools: look",
        "\nentered\nthoughtful hm / let me see / aha / look\nreport 1 success\nthoughtful now / done / never shown\n",
        expect![[r#"
            entered -> leased, lap_started(1) [call_model 1] = running
            thoughtful hm / let me see / aha / look -> reasoned(after 1 signs), replied(1 look) [start_tool 1] +reasoning hm +thought "let me see" +reasoning aha +call 1 = suspended, waits for 1 until 60000
            report 1 success -> reported(1 success), lap_started(2) [call_model 2] +result 1 = running
            thoughtful now / done / never shown -> reasoned(after 1 signs), replied, ended(success answered) +reasoning now +deliverable {"text":"done"} = idle
        "#]],
    );
}

#[test]
fn reasoning_is_only_taken_while_the_model_is_asked() {
    check(
        "tools: look",
        "\nreasoned early\nentered\nreply: look\nreasoned late\n",
        expect![[r#"
        reasoned early -> ignored(reasoned: out_of_phase) = dispatched
        entered -> leased, lap_started(1) [call_model 1] = running
        reply: look -> replied(1 look) [start_tool 1] +call 1 = suspended, waits for 1 until 60000
        reasoned late -> ignored(reasoned: out_of_phase) = suspended, waits for 1 until 60000
    "#]],
    );
}
