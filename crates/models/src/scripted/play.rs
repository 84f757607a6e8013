//! Plays a reply: computes its steps, a pure function of reply and request, and streams them.

use std::time::Duration;

use futures_util::stream;
use serde_json::{Value, json};
use windlass_kernel::{
    RequestedCall, Usage,
    content::Reasoning,
    header::{Content, Role},
};
use windlass_ports::{ModelError, ModelEvent, ModelMessage, ModelRequest, ModelStream};

use super::script::{Fail, Reply, affects};
use crate::{
    conversation::{json_of, role_name},
    failure,
    limits::CHUNK_BYTES,
};

/// One step of the stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    WaitMs(u64),
    Emit(ModelEvent),
    Fail(ModelError),
}

/// The steps of this reply for the request's attempt.
pub(super) fn steps(reply: &Reply, request: &ModelRequest) -> Vec<Step> {
    let mut steps = Vec::new();
    wait(&mut steps, reply.delay_ms);
    if let Some(fail) = reply.fail.as_ref().filter(|fail| affects(fail.times, request.attempt)) {
        let Fail { code, message, retry_after_ms, times: _ } = fail;
        steps.push(Step::Fail(failure::from_status(*code, message.clone(), *retry_after_ms)));
        return steps;
    }
    if let Some(think) = &reply.think {
        steps.push(Step::Emit(ModelEvent::Reasoning(reasoning_of(think, request.iteration))));
    }
    let cut = reply.cut_after.filter(|cut| affects(cut.times, request.attempt));
    let pieces = pieces(&reply.text, reply.chunk.map_or(CHUNK_BYTES, |chunk| chunk.get()));
    let sent = cut.map_or(pieces.len(), |cut| cut.chunks.min(pieces.len()));
    for (index, piece) in pieces.into_iter().take(sent).enumerate() {
        wait(&mut steps, if index == 0 { 0 } else { reply.chunk_delay_ms });
        steps.push(Step::Emit(ModelEvent::Text(piece.to_owned())));
    }
    if cut.is_some() {
        steps.push(Step::Fail(failure::stream_cut(format!("the script cuts the stream after {sent} pieces"))));
        return steps;
    }
    let calls = calls(reply, request.iteration);
    let usage = reply.usage.map_or_else(|| counted(&reply.text, &calls, request), Usage::from);
    steps.extend(calls.into_iter().map(|call| Step::Emit(ModelEvent::Call(call))));
    steps.push(Step::Emit(ModelEvent::Usage(usage)));
    steps.extend(reply.finish.map(|finish| Step::Emit(ModelEvent::Finish(finish.into()))));
    steps
}

/// The steps as a stream, which ends after the first failure.
pub(super) fn stream(steps: Vec<Step>) -> ModelStream {
    Box::pin(stream::unfold(steps.into_iter(), |mut steps| async move {
        loop {
            match steps.next()? {
                Step::WaitMs(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Step::Emit(event) => return Some((Ok(event), steps)),
                Step::Fail(error) => return Some((Err(error), Vec::new().into_iter())),
            }
        }
    }))
}

fn wait(steps: &mut Vec<Step>, ms: u64) {
    if ms > 0 {
        steps.push(Step::WaitMs(ms));
    }
}

/// Splits a text into chunks of at most `bytes` bytes, but at least one character.
fn pieces(mut text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let first = text.chars().next().map_or(text.len(), char::len_utf8);
        let (piece, rest) = text.split_at(text.floor_char_boundary(bytes).max(first));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

/// Reasoning with a summary and a seal, as the other providers have it.
fn reasoning_of(think: &str, iteration: u32) -> Reasoning {
    let sealed = Some(format!("sealed_{iteration}"));
    Reasoning { provider: "scripted".to_owned(), summary: vec![think.to_owned()], text: String::new(), sealed }
}

fn calls(reply: &Reply, iteration: u32) -> Vec<RequestedCall> {
    let requested = |(index, call): (usize, &super::script::Call)| RequestedCall {
        provider_id: format!("call_{iteration}_{index}"),
        tool: call.tool.clone(),
        arguments: call.arguments(),
    };
    reply.calls.iter().enumerate().map(requested).collect()
}

/// Estimates the tokens as a quarter of the bytes, which is close enough to test budgets.
fn counted(text: &str, calls: &[RequestedCall], request: &ModelRequest) -> Usage {
    let call_bytes = |call: &RequestedCall| call.tool.len() + call.arguments.len();
    let message_bytes = |message: &ModelMessage| match message {
        ModelMessage::User(text) => text.len(),
        ModelMessage::Message { role, content } => json_bytes(*role, content),
        ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => item.to_string().len(),
        ModelMessage::Assistant { reasoning: _, text, calls } => text.len() + calls.iter().map(call_bytes).sum::<usize>(),
        ModelMessage::ToolResult { output, .. } => output.len(),
    };
    let read = request.instructions.as_ref().map_or(0, String::len) + request.messages.iter().map(message_bytes).sum::<usize>();
    let written = text.len() + calls.iter().map(call_bytes).sum::<usize>();
    Usage { tokens_in: (read / 4) as u64 + 1, tokens_out: (written / 4) as u64 + 1, ..Usage::default() }
}

/// The bytes of a message from outside as JSON.
fn json_bytes(role: Role, content: &Content<String, Value>) -> usize {
    let (role, json) = (role_name(role), json_of(content, "input_text"));
    let message = match content {
        Content::Text(_) => json!({ "role": role, "content": json }),
        Content::Parts(_) => json!({ "type": "message", "role": role, "content": json }),
    };
    message.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(pieces("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(pieces("aäöu", 2), ["a", "ä", "ö", "u"]);
        assert_eq!(pieces("🦀🦀", 1), ["🦀", "🦀"]);
        assert!(pieces("", 8).is_empty());
    }
}
