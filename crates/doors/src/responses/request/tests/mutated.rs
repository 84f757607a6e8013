//! Mutated bodies: parsing always ends in a request or in a 400.

use super::refusal;

/// A body with every field that the parser checks.
const BODY: &str = r#"{"model":"m","instructions":"be brief","previous_response_id":"resp_1","store":true,"background":false,"stream":true,
"input":[{"role":"user","content":"hi \u00e4\ud83d\ude00"},{"type":"message","role":"assistant","id":"msg_1","status":"completed",
"content":[{"type":"output_text","text":"ho","annotations":[]},{"type":"input_image","image_url":"data:","detail":"low"},
{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}]},{"type":"function_call","call_id":"c","name":"a","arguments":"{}"},
{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"1"}]},{"id":"msg_2"},{"type":"reasoning","summary":[]}],
"tools":[{"type":"function","name":"a","parameters":{"type":"object"},"strict":false},{"type":"namespace","name":"n","tools":
[{"type":"function","name":"a"}]},{"type":"mcp","server_label":"docs","server_url":"https://x/mcp","headers":{"k":"v"},"authorization":"t",
"allowed_tools":{"tool_names":["s"]},"require_approval":{"never":{"tool_names":["s"]}}},{"type":"web_search"}],
"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"a"},{"type":"mcp","server_label":"docs"}]},
"parallel_tool_calls":false,"max_tool_calls":3,"max_output_tokens":100,"max_turns":5,"windlass":{"max_turns":4,"budgets":{"tokens":1000,
"wall_time_s":1.5}},"temperature":0.5,"top_p":1,"top_logprobs":2,"reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":
"json_schema","name":"x","schema":{},"strict":true},"verbosity":"low"},"metadata":{"k":"v"},"include":["a"],"truncation":"auto"}"#;

/// Fragments that have a meaning in JSON.
const FRAGMENTS: [&str; 16] = [
    "null",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "1e999",
    "0.5",
    "true",
    "\\",
    "\"",
    "\\ud800",
    "{\"a\":",
    "[[[[",
    ",",
    "\u{0}",
    "99999999999999999999",
];

/// A deterministic random number generator, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn the_unmutated_body_is_accepted() {
    assert_eq!(refusal(BODY.as_bytes()), None);
}

#[test]
fn mutated_bytes_never_panic_the_parser() {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut refused = 0;
    for _ in 0..5_000 {
        let mut body = BODY.as_bytes().to_vec();
        for _ in 0..=numbers.below(4) {
            mutate(&mut body, &mut numbers);
        }
        refused += usize::from(refusal(&body).is_some());
    }
    assert!(refused > 2_500, "the mutations are too mild: {refused}");
}

fn mutate(body: &mut Vec<u8>, numbers: &mut Numbers) {
    let (here, there) = (numbers.below(body.len()), numbers.below(body.len()));
    let (from, to) = (here.min(there), here.max(there).min(here.min(there) + 40));
    match numbers.below(5) {
        0 => body[here] = numbers.below(256) as u8,
        1 => drop(body.drain(from..to)),
        2 => drop(body.splice(here..here, FRAGMENTS[numbers.below(FRAGMENTS.len())].bytes())),
        3 => drop(body.splice(from..to, FRAGMENTS[numbers.below(FRAGMENTS.len())].bytes())),
        _ => {
            let copy = body[from..to].to_vec();
            drop(body.splice(there..there, copy));
        }
    }
    if body.is_empty() {
        body.push(b'{');
    }
}

#[test]
fn any_value_in_any_place_is_accepted_or_refused() {
    // Replace every value of the body in turn. The syntax stays valid, so that the checks of types and values are reached.
    let values = ["null", "true", "0", "-1", "1e30", "\"\"", "\"a\"", "[]", "[null]", "{}", "{\"type\":\"function\"}", "\"\\u0000\""];
    let places: Vec<(usize, usize)> = BODY.match_indices(':').filter_map(|(index, _)| value_at(index + 1)).collect();
    assert!(places.len() > 80, "{}", places.len());
    for (from, to) in places {
        for value in values {
            let body = format!("{}{value}{}", &BODY[..from], &BODY[to..]);
            let refused = refusal(body.as_bytes());
            assert!(refused.is_none_or(|(_, code)| code != "invalid_json"), "{body}");
        }
    }
}

/// The range of the value that starts here; `None` if the colon before it is part of a text.
fn value_at(from: usize) -> Option<(usize, usize)> {
    let mut values = serde_json::Deserializer::from_str(&BODY[from..]).into_iter::<serde::de::IgnoredAny>();
    let is_key = BODY[..from].ends_with("\":");
    values.next()?.ok().filter(|_| is_key).map(|_| (from, from + values.byte_offset()))
}
