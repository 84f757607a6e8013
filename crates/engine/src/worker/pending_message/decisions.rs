//! A person's answer to an interrupt, as part of a draft.

use std::sync::Arc;

use windlass_kernel::{Decision, Input, ItemId, ItemKind, NewItem, TaskStatus};
use windlass_ports::{MessageKind, NewMessage};

use super::{super::interrupt_answer, Drafting};
use crate::api::{AnswerAction, AnswerInterrupt};

impl Drafting<'_> {
    pub(super) fn answer_interrupt(&mut self, answer: &AnswerInterrupt) -> bool {
        if answer.run != self.run {
            return false;
        }
        let Ok(open) = interrupt_answer::find(&self.draft.run, answer) else { return false };
        let (interrupt, shows, call) = (open.number, open.shows, open.call);
        let mut item = None;
        let decision = match (&answer.action, call) {
            (AnswerAction::Record { status, result }, Some(call)) => {
                let Some(id) = self.given_result(call, *status, result) else { return false };
                item = Some(id);
                Decision::Record { status: *status, item: id }
            }
            (AnswerAction::Answer { answer }, Some(call)) => {
                let Some(id) = self.given_result(call, TaskStatus::Success, answer) else { return false };
                item = Some(id);
                Decision::Answer { item: id }
            }
            (AnswerAction::Edit { call: content }, Some(_)) => {
                let id = ItemId(self.inner.ids.fresh());
                item = Some(id);
                self.draft.items.push(NewItem::own(id, ItemKind::Call, content.clone()));
                Decision::Edit { item: id }
            }
            (AnswerAction::Record { .. } | AnswerAction::Edit { .. } | AnswerAction::Answer { .. }, None) => return false,
            (AnswerAction::Approve, _) => Decision::Approve,
            (AnswerAction::Reject { comment }, _) => Decision::Reject { comment: comment.clone() },
            (AnswerAction::Release, _) => Decision::Release,
            (AnswerAction::Tell, _) => Decision::Tell,
            (AnswerAction::Raise { limit }, _) => Decision::Raise { limit: *limit },
            (AnswerAction::Resume, _) => Decision::Resume,
            (AnswerAction::End, _) => {
                // Like a stop: what the owner has in flight must not be committed any more.
                self.draft.raise_epoch = true;
                Decision::End
            }
        };
        // A call may get several decisions, so the row of a decision does not carry the call as the row of a report does.
        let (source, key) = (answer.source.clone(), answer.key.clone());
        let by = source.as_deref().map(Arc::from);
        self.message(NewMessage {
            kind: MessageKind::Answer,
            call: None,
            retry: 0,
            item,
            outcome: None,
            after: None,
            source,
            reason: None,
            key,
        });
        self.answered_at = Some(self.draft.run.next_number);
        self.step(Input::Answered(windlass_kernel::Answer { interrupt, shows, by, decision }));
        self.remaining = self.draft.run.interrupt(interrupt).map_or(0, |open| open.needs.saturating_sub(open.approvals.len() as u8));
        true
    }

    /// Stores the result that a person gave a call. `None` if it is not JSON.
    fn given_result(&mut self, call: windlass_kernel::CallNumber, status: TaskStatus, result: &[u8]) -> Option<ItemId> {
        let raw = serde_json::from_slice(result).ok()?;
        let id = ItemId(self.inner.ids.fresh());
        let content = windlass_kernel::content::result(call, status, raw);
        self.draft.items.push(NewItem::own(id, ItemKind::Result, content));
        Some(id)
    }
}
