//! What becomes of a run whose model has more to read than it can: it is asked for a summary, and goes on from that.

use super::{Draft, Taken};
use crate::{
    budget,
    content::{self, ItemKind},
    event::{EndReason, Event, TaskStatus},
    failure::FailureCause,
    input::{Failure, Reply, Said},
    manifest::Compaction,
    policy::{Delivery, Ending},
};

/// What a try fails with that has too much to read.
const TOO_LONG: &str = "context_length_exceeded";

/// How often a model is asked for one summary; each time it reads less.
const TRIES_MAX: u32 = 4;

impl Draft<'_, '_> {
    /// Whether the next answer of the model is a summary.
    pub(super) fn awaits_summary(&self) -> bool {
        self.run().compacting > 0 || self.manifest.compaction == Compaction::Only
    }

    /// Whether a summary may help after this failure. What was announced is never taken back, and a lap that is too long with its
    /// summary stays too long.
    pub(super) fn can_compact(&self, code: &str, said: &Said) -> bool {
        let run = self.run();
        let may_begin = match self.manifest.compaction {
            Compaction::Off => false,
            Compaction::Auto => run.compacting > 0 || run.compacted_in != run.iteration,
            Compaction::Only => true,
        };
        may_begin && code == TOO_LONG && said.text.is_empty() && run.compacting < TRIES_MAX
    }

    /// The model was asked for nothing but words: whatever else it gave is left out.
    pub(super) fn summed_up(&mut self, mut reply: Reply) -> Taken {
        let spent = reply.spent();
        if reply.text.trim().is_empty() {
            let (code, message) = ("no_summary".to_owned(), "it gave no summary of the conversation".to_owned());
            let said = Said { text: String::new(), pieces: reply.pieces };
            let cause = FailureCause::BadAnswer;
            let failure = Failure { code, cause, message, retry_after_ms: None, retry_at: None, fallback: None, spent, said };
            return self.attempt_failed(failure);
        }
        if self.manifest.compaction == Compaction::Only {
            let ended = reply.take_end();
            self.record_reply(self.appended(), ended, Vec::new());
            let deliverable = Delivery::Encoded(content::deliverable_summary(reply.text));
            self.end(Ending { status: TaskStatus::Success, reason: EndReason::Answered, deliverable });
            return Ok(());
        }
        let Reply { text, pieces, usage, model, .. } = reply;
        self.append_new(ItemKind::Instruction, content::summary(text));
        self.record(Event::Compacted { iteration: self.run().iteration, usage, pieces, model });
        if let Some(breach) = budget::before_attempt(self.run(), &self.manifest.budgets, self.moment.now) {
            self.breach(breach);
        }
        Ok(())
    }
}
