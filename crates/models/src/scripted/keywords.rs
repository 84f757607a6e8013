//! Answers by keywords in the input. The parent module documents them.

use serde_json::{Map, Value, value::RawValue};
use windlass_kernel::SUBMIT_RESULT;
use windlass_ports::ModelTool;

use super::script::{Call, Cut, Fail, Reply};
use crate::{
    conversation::ConversationEnd,
    limits::{CALLS_MAX, ECHO_CHARS_MAX, KEYWORD_WAIT_MS_MAX},
};

/// The reply to the conversation so far.
pub(super) fn reply(conversation: &ConversationEnd, tools: &[ModelTool]) -> Reply {
    let Some(input) = conversation.input.as_deref() else {
        return text_reply("Nobody has said anything yet.");
    };
    if !conversation.results.is_empty() {
        return after_results(input, &conversation.results, tools);
    }
    let calls = mentioned(input, tools);
    let answer = if calls.is_empty() {
        submission(input, tools, input).unwrap_or_else(|| text_reply(format!("You said: {}", beginning(input))))
    } else {
        Reply { calls, ..Reply::default() }
    };
    with_faults(input, answer)
}

fn after_results(input: &str, results: &[(String, String)], tools: &[ModelTool]) -> Reply {
    let summary: Vec<String> = results.iter().map(|(tool, output)| format!("{tool} gave {}", beginning(output))).collect();
    let summary = summary.join("; ");
    // A submission with a result was refused. Submitting again would repeat that for ever.
    let was_refused = results.iter().any(|(tool, _)| tool == SUBMIT_RESULT);
    let submission = if was_refused { None } else { submission(input, tools, &summary) };
    submission.unwrap_or_else(|| text_reply(format!("The results are: {summary}")))
}

fn text_reply(text: impl Into<String>) -> Reply {
    Reply { text: text.into(), ..Reply::default() }
}

fn beginning(text: &str) -> &str {
    text.char_indices().nth(ECHO_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

/// One call for each mention of a tool that is offered.
fn mentioned(input: &str, tools: &[ModelTool]) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut rest = input;
    while let Some(after) = after_word(rest, "call").filter(|_| calls.len() < CALLS_MAX) {
        rest = after;
        let name_end = after.find(|c: char| !is_name(c)).unwrap_or(after.len());
        // Punctuation at the end of a sentence is not part of the name.
        let name = after[..name_end].trim_end_matches(['.', ':']);
        if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
            let (arguments, end) = object(&after[name_end..]).unwrap_or(("{}", 0));
            calls.push(Call::verbatim(&tool.name, arguments.to_owned()));
            // A tool's name inside the arguments is not a mention.
            rest = &after[name_end + end..];
        }
    }
    calls
}

/// The call that submits a result, if the input asks for that and the tool is offered.
fn submission(input: &str, tools: &[ModelTool], content: &str) -> Option<Reply> {
    let tool = tools.iter().find(|tool| tool.name == SUBMIT_RESULT)?;
    let after = after_word(input, "submit")?;
    let arguments = object(after).map_or_else(|| fields(tool, content), |(given, _)| given.to_owned());
    Some(Reply { calls: vec![Call::verbatim(SUBMIT_RESULT, arguments)], ..Reply::default() })
}

fn fields(tool: &ModelTool, content: &str) -> String {
    let names = tool.parameters.get("properties").and_then(Value::as_object);
    let filled = |(name, _): (&String, &Value)| (name.clone(), Value::from(beginning(content)));
    Value::Object(names.map_or_else(Map::new, |names| names.iter().map(filled).collect())).to_string()
}

fn with_faults(input: &str, answer: Reply) -> Reply {
    let number_after = |keyword: &str| number(after_word(input, keyword)?);
    let wait_ms = number_after("wait").unwrap_or(0);
    let fail = number_after("fail").and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let cut = number_after("cut after").and_then(|chunks| usize::try_from(chunks).ok());
    Reply {
        delay_ms: wait_ms.min(KEYWORD_WAIT_MS_MAX),
        fail: fail.map(|code| Fail { code, message: "the input asks for it".to_owned(), retry_after_ms: None, times: Some(1) }),
        cut_after: cut.map(|chunks| Cut { chunks, times: Some(1) }),
        ..answer
    }
}

/// The text after the first occurrence of `word` as a whole word, without the space between.
fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let mut before = None;
    for (start, c) in text.char_indices() {
        let found = text.get(start..start + word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
        if found && !before.is_some_and(is_name) {
            let after = &text[start + word.len()..];
            if !after.starts_with(is_name) {
                return Some(after.trim_start());
            }
        }
        before = Some(c);
    }
    None
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// The JSON object at the beginning of the text, byte for byte, and the position after it.
fn object(text: &str) -> Option<(&str, usize)> {
    let start = text.find(|c: char| !c.is_whitespace()).filter(|start| text[*start..].starts_with('{'))?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<&RawValue>();
    let raw = values.next()?.ok()?;
    Some((raw.get(), start + values.byte_offset()))
}

fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools(names: &[&str]) -> Vec<ModelTool> {
        let parameters = json!({"type": "object", "properties": {"title": {}, "body": {}}});
        let tool =
            |name: &&str| ModelTool { name: (*name).to_owned(), description: String::new(), parameters: parameters.clone(), strict: None };
        names.iter().map(tool).collect()
    }

    fn answer(input: &str, results: &[(&str, &str)], names: &[&str]) -> (String, Vec<(String, String)>) {
        let results = results.iter().map(|(tool, output)| ((*tool).to_owned(), (*output).to_owned())).collect();
        let reply = reply(&ConversationEnd { input: Some(input.to_owned()), results }, &tools(names));
        (reply.text, reply.calls.iter().map(|call| (call.tool.clone(), call.arguments())).collect())
    }

    fn calls(input: &str) -> Vec<(String, String)> {
        answer(input, &[], &["echo", "fetch.page"]).1
    }

    fn call(tool: &str, arguments: &str) -> (String, String) {
        (tool.to_owned(), arguments.to_owned())
    }

    #[test]
    fn each_mention_of_an_offered_tool_is_one_call() {
        assert_eq!(calls("please call echo, then Call fetch.page."), [call("echo", "{}"), call("fetch.page", "{}")]);
        assert_eq!(calls("call echo and call echo"), [call("echo", "{}"), call("echo", "{}")]);
        assert_eq!(calls("call nobody, recall echo, call echoes, call"), []);
    }

    #[test]
    fn arguments_are_taken_byte_for_byte() {
        let input = r#"call echo {"text":  "call echo }"} call echo{"b":1}"#;
        assert_eq!(calls(input), [call("echo", r#"{"text":  "call echo }"}"#), call("echo", r#"{"b":1}"#)]);
        assert_eq!(calls("call echo {broken"), [call("echo", "{}")]);
    }

    #[test]
    fn results_are_repeated_and_anything_else_is_echoed() {
        assert_eq!(answer("call echo", &[("echo", "hi"), ("b", "2")], &["echo"]).0, "The results are: echo gave hi; b gave 2");
        assert_eq!(answer("good day ä", &[], &[]).0, "You said: good day ä");
        assert_eq!(reply(&ConversationEnd::default(), &[]).text, "Nobody has said anything yet.");
    }

    #[test]
    fn a_submission_has_the_given_object_or_every_field() {
        let names = ["echo", SUBMIT_RESULT];
        assert_eq!(answer(r#"submit {"title": 1}"#, &[], &names).1, [call(SUBMIT_RESULT, r#"{"title": 1}"#)]);
        let filled = r#"{"body":"please submit","title":"please submit"}"#;
        assert_eq!(answer("please submit", &[], &names).1, [call(SUBMIT_RESULT, filled)]);
        assert_eq!(answer("call echo and submit", &[], &names).1, [call("echo", "{}")]);
        let filled = r#"{"body":"echo gave x","title":"echo gave x"}"#;
        assert_eq!(answer("call echo and submit", &[("echo", "x")], &names).1, [call(SUBMIT_RESULT, filled)]);
        assert_eq!(answer("submit", &[(SUBMIT_RESULT, "no")], &names).0, "The results are: submit_result gave no");
        assert_eq!(answer("submit", &[], &["echo"]).0, "You said: submit");
    }

    #[test]
    fn keywords_ask_for_faults() {
        let faults = |input: &str| {
            let reply = reply(&ConversationEnd { input: Some(input.to_owned()), results: Vec::new() }, &[]);
            (reply.delay_ms, reply.fail.map(|fail| fail.code), reply.cut_after.map(|cut| cut.chunks))
        };
        assert_eq!(faults("wait 20 ms, fail 429, cut after 2 pieces"), (20, Some(429), Some(2)));
        assert_eq!(faults("wait 99999999"), (KEYWORD_WAIT_MS_MAX, None, None));
        assert_eq!(faults("do not fail 200, nor wait, nor cut after all"), (0, None, None));
    }
}
