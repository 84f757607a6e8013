//! Compaction: a run whose prompt is too long for its model asks for a summary and continues from it.

use super::{Draft, Taken};
use crate::{
    budget,
    content::{self, ItemKind},
    event::{EndReason, Event, TaskStatus},
    failure::{FailureCause, FailureCode},
    input::{Failure, Reply, StreamedText},
    manifest::Compaction,
    policy::{Delivery, Ending},
    run::Purpose,
};

/// Attempts for one summary. Each attempt reads less than the one before.
const ATTEMPTS_MAX: u32 = 4;

impl Draft<'_, '_> {
    /// What the next iteration asks the model for.
    pub(super) fn purpose(&self) -> Purpose {
        match self.manifest.compaction {
            Compaction::Only => Purpose::Summary,
            Compaction::Off | Compaction::Auto => Purpose::Reply,
        }
    }

    /// Whether the next reply of the model is a summary. The setting decides too, because older journals have no purposes.
    pub(super) fn awaits_summary(&self) -> bool {
        let is_summary = self.run().model_call().is_some_and(|id| id.purpose == Purpose::Summary);
        is_summary || self.purpose() == Purpose::Summary
    }

    /// Whether to ask for a summary after this failure. It is of no use once text was streamed, which is never retracted, or in an iteration
    /// that starts with a summary already.
    pub(super) fn can_compact(&self, code: &FailureCode, streamed: &StreamedText) -> bool {
        let run = self.run();
        let may_begin = match self.manifest.compaction {
            Compaction::Off => false,
            Compaction::Auto => run.compacting > 0 || run.compacted_in != run.iteration,
            Compaction::Only => true,
        };
        may_begin && *code == FailureCode::ContextLengthExceeded && streamed.text.is_empty() && run.compacting < ATTEMPTS_MAX
    }

    /// Takes a reply to a request for a summary. Only its text counts.
    pub(super) fn summed_up(&mut self, mut reply: Reply) -> Taken {
        let spent = reply.spent();
        if reply.text.trim().is_empty() {
            let (code, message) = (FailureCode::NoSummary, "it gave no summary of the conversation".to_owned());
            let streamed = StreamedText { text: String::new(), chunks: reply.chunks };
            let cause = FailureCause::BadAnswer;
            let failure = Failure { code, cause, message, retry_after_ms: None, retry_at: None, fallback: None, spent, streamed };
            return self.attempt_failed(failure);
        }
        if self.manifest.compaction == Compaction::Only {
            let ended = reply.take_end();
            self.record_reply(self.appended(), ended, Vec::new());
            let deliverable = Delivery::Encoded(content::deliverable_summary(reply.text));
            self.end(Ending { status: TaskStatus::Success, reason: EndReason::Answered, deliverable });
            return Ok(());
        }
        let Reply { text, chunks, usage, model, .. } = reply;
        self.append_new(ItemKind::Instruction, content::summary(text));
        self.record(Event::Compacted { iteration: self.run().iteration, usage, chunks, model });
        if let Some(breach) = budget::before_attempt(self.run(), &self.manifest.budgets, self.moment.now) {
            self.breach(breach);
        }
        Ok(())
    }
}
