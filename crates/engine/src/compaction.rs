//! The prompt of the model call that summarises a conversation, and its size.

use serde_json::Value;
use windlass_kernel::{
    Compaction, Manifest, Purpose, Run,
    header::{Content, Media, Part, Role},
};
use windlass_ports::{Item, ModelMessage, ModelTool};

use crate::{
    count::{self, BYTES_PER_TOKEN},
    prompt,
};

/// The most bytes of users' messages that are kept beside a summary.
pub const KEPT_BYTES_MAX: usize = 64 << 10;

/// The largest summary, in bytes.
pub(crate) const SUMMARY_BYTES_MAX: usize = 256 << 10;

/// The size at which an image or a file counts: its cost to a model has little to do with its bytes.
const DATA_BYTES: usize = 4 << 10;

/// The bytes that a message takes besides its text.
const MESSAGE_BYTES: usize = 26;

/// The bytes that a part of a message takes besides its text.
const PART_BYTES: usize = 18;

const WANTED: &str = "Stop here and sum up this conversation for whoever goes on with it without having read it. Say what is asked for and \
    which wishes and rules hold; what was done and found out, with the names, numbers, paths and exact words that matter; what was decided \
    and why; and what is left to do next. Leave out greetings and whatever no longer counts. Call no tools. Answer with the summary alone.";

const GIVEN: &str = "What was said up to here has been summed up to save room. Go on from this summary:";

const LEFT_OUT: &str = "\n[… left out …]\n";

/// What the next model call is for, and how large its prompt may be.
#[derive(Clone, Copy)]
pub(crate) struct PromptPlan {
    /// Whether the model is asked for a summary.
    pub is_summary: bool,
    /// How many attempts failed because the text to summarise was too long.
    attempts: u32,
    /// Whether the prompt may be too long. If it is, the run asks for a summary first.
    may_exceed_context: bool,
    /// The context size of the model in tokens, if it is configured.
    context: Option<u64>,
}

impl PromptPlan {
    /// The plan for the next model call of a run.
    pub fn of(run: &Run, manifest: &Manifest, context: Option<u64>) -> Self {
        // The setting decides too, because older journals have no purposes.
        let is_summary = run.model_call().is_some_and(|id| id.purpose == Purpose::Summary) || manifest.compaction == Compaction::Only;
        let may_exceed_context = manifest.compaction == Compaction::Auto && !is_summary && run.compacted_in != run.iteration;
        PromptPlan { is_summary, attempts: run.compacting, may_exceed_context, context }
    }

    /// How many bytes of users' messages are kept beside a summary: at most a quarter of the context.
    pub fn kept_bytes_max(&self) -> usize {
        let quarter = self.context.map_or(u64::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN) / 4);
        KEPT_BYTES_MAX.min(usize::try_from(quarter).unwrap_or(usize::MAX))
    }

    /// An estimate of the tokens of the prompt.
    pub fn tokens(&self, manifest: &Manifest, items: &[Item], tools: &[ModelTool]) -> u64 {
        let messages = prompt::messages(items, manifest, self.kept_bytes_max());
        match self.is_summary {
            true => count::tokens(manifest, &self.summary_prompt(messages), &[]),
            false => count::tokens(manifest, &messages, tools),
        }
    }

    /// The tokens of the prompt and of the context, if the prompt is too long and must be summarised first.
    pub fn excess_tokens(&self, manifest: &Manifest, messages: &[ModelMessage], tools: &[ModelTool]) -> Option<(u64, u64)> {
        let context = self.context.filter(|_| self.may_exceed_context)?;
        let tokens = count::tokens(manifest, messages, tools);
        (tokens > context).then_some((tokens, context))
    }

    /// The prompt of a summary: the newest messages that fit, and the request for the summary at the end.
    pub fn summary_prompt(self, mut messages: Vec<ModelMessage>) -> Vec<ModelMessage> {
        let whole: usize = messages.iter().map(bytes).sum();
        let share = match self.attempts {
            0 => whole,
            1 => whole / 4 * 3,
            attempts => whole >> (attempts - 1).min(16),
        };
        // A quarter of the context is left for the summary itself.
        let fits = self.context.map_or(u64::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN) / 4 * 3);
        let room = share.min(usize::try_from(fits).unwrap_or(usize::MAX));
        if whole > room {
            messages = newest(messages, room);
        }
        messages.push(ModelMessage::User(WANTED.to_owned()));
        messages
    }
}

/// The message by which a model is given a summary.
pub(crate) fn summary_message(summary: &str) -> ModelMessage {
    ModelMessage::User(format!("{GIVEN}\n\n{summary}"))
}

/// Whether a message is from the system or the developer. Such a message stays valid for the whole conversation.
pub(crate) fn is_system_message(message: &ModelMessage) -> bool {
    matches!(message, ModelMessage::Message { role: Role::System | Role::Developer, .. })
}

/// The size of a message in bytes.
pub(crate) fn bytes(message: &ModelMessage) -> usize {
    match message {
        ModelMessage::User(text) => text.len(),
        ModelMessage::Message { content: Content::Text(text), .. } => MESSAGE_BYTES + text.len(),
        ModelMessage::Message { content: Content::Parts(parts), .. } => MESSAGE_BYTES + parts.iter().map(part_bytes).sum::<usize>(),
        ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => json_bytes(item),
        ModelMessage::Assistant { reasoning, text, calls } => {
            let reasoning_bytes: usize = reasoning.iter().map(windlass_kernel::content::Reasoning::bytes).sum();
            reasoning_bytes + text.len() + calls.iter().map(|call| call.tool.len() + call.arguments.len()).sum::<usize>()
        }
        ModelMessage::ToolResult { output, .. } => output.len(),
    }
}

fn part_bytes(part: &Part<String, Value>) -> usize {
    let size = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    PART_BYTES
        + match part {
            Part::Text(text) => text.len(),
            Part::Attachment { media, json } => match media {
                Media::Image { url, detail } => text_bytes(url.as_deref().unwrap_or_default()) + size(detail),
                Media::File { data, url, id, name } => size(data).min(DATA_BYTES) + size(url) + size(id) + size(name),
                Media::Refusal(text) => text.len(),
                Media::Other => json_bytes(json),
            },
        }
}

/// The bytes of a text, where embedded data counts less than its length.
fn text_bytes(text: &str) -> usize {
    if text.starts_with("data:") { text.len().min(DATA_BYTES) } else { text.len() }
}

/// The bytes of a value of an unknown format.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text_bytes(text),
        Value::Array(values) => values.iter().map(json_bytes).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + json_bytes(value)).sum(),
    }
}

/// The newest messages that fit into `room`. The longest of them are cut in the middle, and no result is kept without its call.
fn newest(messages: Vec<ModelMessage>, room: usize) -> Vec<ModelMessage> {
    // A few long results must not displace everything else.
    let each = room / 4;
    let mut left = room;
    let mut kept: Vec<ModelMessage> = Vec::new();
    for message in messages.into_iter().rev() {
        let message = cut(message, each);
        let Some(less) = left.checked_sub(bytes(&message)) else { break };
        left = less;
        kept.push(message);
    }
    while matches!(kept.last(), Some(ModelMessage::ToolResult { .. })) {
        kept.pop();
    }
    kept.reverse();
    kept
}

/// The message with at most `bytes_max` bytes of text, from its beginning and its end.
fn cut(message: ModelMessage, bytes_max: usize) -> ModelMessage {
    match message {
        ModelMessage::User(text) => ModelMessage::User(cut_text(text, bytes_max)),
        ModelMessage::ToolResult { provider_id, tool, output } => {
            ModelMessage::ToolResult { provider_id, tool, output: cut_text(output, bytes_max) }
        }
        ModelMessage::Assistant { reasoning, text, calls } if bytes_max < text.len() => {
            ModelMessage::Assistant { reasoning, text: cut_text(text, bytes_max), calls }
        }
        long @ (ModelMessage::Message { .. } | ModelMessage::StrayOutput { .. } | ModelMessage::Other(_)) if bytes_max < bytes(&long) => {
            ModelMessage::User(cut_text(text_of(long), bytes_max))
        }
        whole @ (ModelMessage::Assistant { .. }
        | ModelMessage::Message { .. }
        | ModelMessage::StrayOutput { .. }
        | ModelMessage::Other(_)) => whole,
    }
}

fn cut_text(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let half = bytes_max.saturating_sub(LEFT_OUT.len()) / 2;
    let (end, start) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}{LEFT_OUT}{}", &text[..end], &text[start..])
}

/// The text of a message from outside that is too long to be passed on unchanged.
fn text_of(message: ModelMessage) -> String {
    match message {
        ModelMessage::Message { content: Content::Text(text), .. } | ModelMessage::User(text) | ModelMessage::Assistant { text, .. } => {
            text
        }
        ModelMessage::Message { content: Content::Parts(parts), .. } => {
            let texts = parts.into_iter().filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None });
            texts.collect::<Vec<String>>().join("\n")
        }
        ModelMessage::StrayOutput { item, .. } | ModelMessage::Other(item) => item.to_string(),
        ModelMessage::ToolResult { output, .. } => output,
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::RequestedCall;

    use super::*;

    fn user(text: &str) -> ModelMessage {
        ModelMessage::User(text.to_owned())
    }

    fn iteration_messages(output: &str) -> [ModelMessage; 2] {
        let call = RequestedCall { provider_id: "c".into(), tool: "look".into(), arguments: "{}".into() };
        let result = ModelMessage::ToolResult { provider_id: "c".into(), tool: "look".into(), output: output.into() };
        [ModelMessage::Assistant { reasoning: Vec::new(), text: String::new(), calls: vec![call] }, result]
    }

    fn plan(attempts: u32, context: Option<u64>) -> PromptPlan {
        PromptPlan { is_summary: true, attempts, may_exceed_context: false, context }
    }

    #[test]
    fn the_summary_prompt_shrinks_with_every_attempt_and_ends_with_the_request() {
        let messages: Vec<ModelMessage> = (0..100).map(|n| user(&format!("{n:0>10}"))).collect();
        let counts: Vec<usize> = (0..5).map(|attempts| plan(attempts, None).summary_prompt(messages.clone()).len() - 1).collect();
        assert_eq!(counts, [100, 75, 50, 25, 12]);
        let read = plan(2, None).summary_prompt(messages.clone());
        assert_eq!((&read[0], &read[50]), (&messages[50], &user(WANTED)), "the newest stay");
        assert_eq!(plan(0, Some(100)).summary_prompt(messages).len() - 1, 30, "three quarters of what fits");
    }

    #[test]
    fn no_result_is_kept_without_its_call_and_long_ones_are_cut() {
        let mut messages: Vec<ModelMessage> = iteration_messages("old").into_iter().chain(iteration_messages("late")).collect();
        messages.push(user("now"));
        assert_eq!(newest(messages.clone(), 19), messages[2..], "the older result would fit without its call");
        let long: Vec<ModelMessage> = iteration_messages(&"b".repeat(400)).into_iter().chain([user("now")]).collect();
        let read = newest(long, 200);
        let [_, ModelMessage::ToolResult { output, .. }, _] = read.as_slice() else { panic!("{read:?}") };
        assert!(output.len() <= 50 && output.contains("left out"), "{output}");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let cut = cut_text("ä".repeat(100), 61);
        assert!(cut.len() <= 61 && cut.starts_with('ä') && cut.ends_with('ä'), "{cut}");
        assert_eq!(cut_text("short".into(), 61), "short");
    }

    #[test]
    fn data_counts_little() {
        let media = Media::Image { url: Some(format!("data:{}", "x".repeat(1 << 20))), detail: None };
        let content = Content::Parts(vec![Part::Attachment { media, json: Value::Null }]);
        assert!(bytes(&ModelMessage::Message { role: Role::User, content }) < 2 * DATA_BYTES);
    }
}
