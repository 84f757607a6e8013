//! From stored items to what a model reads: the whole conversation, in order.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::value::RawValue;
use windlass_kernel::{
    CallNumber, ItemKind, Manifest, RequestedCall, SUBMIT_RESULT,
    content::{Call, CallResult, Deliverable, Instruction, Thought},
    submit_result_schema,
};
use windlass_ports::{Item, ModelMessage, ModelTool};

/// The messages that the items of a context amount to. An item that cannot be read is passed on as text rather than lost.
pub(crate) fn messages(items: &[Item]) -> Vec<ModelMessage> {
    let mut prompt = Prompt::default();
    for item in items {
        prompt.add(item);
    }
    prompt.messages
}

/// The tools a run's model sees.
pub(crate) fn tools(manifest: &Manifest) -> Arc<[ModelTool]> {
    let declared = manifest.tools.iter().map(|tool| ModelTool {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    });
    let built_in = (!manifest.result_fields.is_empty()).then(|| ModelTool {
        name: SUBMIT_RESULT.into(),
        description: "Hands in the result of the task. Call it once, alone, when you are done.".into(),
        parameters: submit_result_schema(&manifest.result_fields),
    });
    declared.chain(built_in).collect()
}

#[derive(Default)]
struct Prompt {
    messages: Vec<ModelMessage>,
    /// Calls whose results may follow: numbers are a run's own, so a later run's call of the same number takes its place.
    calls: BTreeMap<CallNumber, (String, String)>,
}

impl Prompt {
    fn add(&mut self, item: &Item) {
        if self.add_known(item).is_none() {
            self.messages.push(ModelMessage::User(String::from_utf8_lossy(&item.content).into_owned()));
        }
    }

    /// `None` if the content is not of the shape its kind says.
    fn add_known(&mut self, item: &Item) -> Option<()> {
        let bytes = &item.content;
        match item.kind {
            ItemKind::Instruction => self.messages.push(match serde_json::from_slice(bytes).ok()? {
                Instruction::Text(text) => ModelMessage::User(text),
                Instruction::Item(raw) => ModelMessage::UserItem(serde_json::from_str(raw.get()).ok()?),
            }),
            // The model sees the wanted fields as the parameters of `submit_result`.
            ItemKind::ResultFields => {}
            ItemKind::Thought => self.say(serde_json::from_slice::<Thought>(bytes).ok()?.text),
            ItemKind::Call => self.call(serde_json::from_slice(bytes).ok()?),
            ItemKind::Result => self.result(&serde_json::from_slice(bytes).ok()?),
            ItemKind::Deliverable => match serde_json::from_slice(bytes).ok()? {
                Deliverable::Text(text) => self.say(text),
                Deliverable::Fields(_) => self.say(String::from_utf8_lossy(bytes).into_owned()),
            },
        }
        Some(())
    }

    fn say(&mut self, text: String) {
        self.messages.push(ModelMessage::Assistant { text, calls: Vec::new() });
    }

    /// Calls made in one breath stand in one message, with the words before them.
    fn call(&mut self, call: Call) {
        self.calls.insert(call.call, (call.provider_id.clone(), call.tool.clone()));
        let requested = RequestedCall { provider_id: call.provider_id, tool: call.tool, arguments: call.arguments };
        match self.messages.last_mut() {
            Some(ModelMessage::Assistant { calls, .. }) => calls.push(requested),
            _ => self.messages.push(ModelMessage::Assistant { text: String::new(), calls: vec![requested] }),
        }
    }

    fn result(&mut self, result: &CallResult<'_>) {
        let (provider_id, tool) = self.calls.get(&result.call).cloned().unwrap_or_default();
        self.messages.push(ModelMessage::ToolResult { provider_id, tool, output: as_text(result.result) });
    }
}

/// A string's words, anything else as JSON. What is no valid text, such as half a surrogate pair, stays as it is spelled.
fn as_text(raw: &RawValue) -> String {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
}
