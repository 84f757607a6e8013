//! Lost work: model calls that were cut off, and runs whose owner was lost. Streamed text stays, and tokens that were used count.

use super::{Draft, TAKEOVERS_MAX, Taken};
use crate::{
    budget::{self, Spent},
    content::{self, ItemKind},
    event::Event,
    ids::{CallNumber, Timestamp},
    input::{LostModelCall, StreamedText},
    interrupt::Cause,
    manifest::EffectClass,
    outstanding::{Effect, outstanding},
    run::Phase,
};

/// What follows a reply that was cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterCut {
    /// The model is asked to continue in another message.
    AsksAgain,
    /// The run ends.
    Ends,
}

impl Draft<'_, '_> {
    /// The model is asked to continue in another message, unless a budget forbids another attempt.
    pub(super) fn cut_off(&mut self, streamed: StreamedText, spent: Spent) -> Taken {
        match self.breached_by(spent, self.moment.now) {
            None => self.cut(streamed, spent, AfterCut::AsksAgain),
            Some(breach) => {
                let then = if self.manifest.budgets_park { AfterCut::AsksAgain } else { AfterCut::Ends };
                self.cut(streamed, spent, then);
                self.breach(breach);
            }
        }
        Ok(())
    }

    /// The budget that another attempt would exceed, if it starts at `starts_at` and the last one used `spent`.
    pub(super) fn breached_by(&self, spent: Spent, starts_at: Timestamp) -> Option<budget::Breach> {
        let mut used = self.run().clone();
        used.usage.add(spent.usage);
        used.lost = used.lost.saturating_add(spent.lost);
        budget::before_attempt(&used, &self.manifest.budgets, starts_at)
    }

    /// Stores streamed text that no reply completes. Readers have seen it, so that it stays whatever follows.
    pub(super) fn cut(&mut self, streamed: StreamedText, Spent { usage, lost }: Spent, then: AfterCut) {
        let before = self.appended();
        if !streamed.text.is_empty() {
            self.append_new(ItemKind::Thought, content::thought(streamed.text));
        }
        let resumes = then == AfterCut::AsksAgain;
        if resumes {
            let text = "your last message was cut off in the middle; go on from where it ends, without repeating it";
            self.append_new(ItemKind::Instruction, content::encode(&content::Instruction::Text(text.into())));
        }
        let items = self.appended_since(before);
        self.record(Event::Cut { iteration: self.run().iteration, items, chunks: streamed.chunks, resumes, usage, lost });
    }

    /// A lost owner may have been in the middle of any effect it had started. Its writes are held; everything else is owed again, unless
    /// the tokens of the lost model call exceed a budget.
    pub(super) fn owner_changed(&mut self, left: LostModelCall) -> Taken {
        self.record(Event::OwnerChanged { lost: left.lost });
        self.hold_cut_writes();
        if left.lost > 0
            && !self.run().is_held()
            && matches!(self.run().phase, Phase::Thinking { .. })
            && let Some(breach) = budget::before_attempt(self.run(), &self.manifest.budgets, self.moment.now)
        {
            if !left.streamed.is_empty() && !self.manifest.budgets_park {
                self.cut(left.streamed, Spent::default(), AfterCut::Ends);
            }
            self.breach(breach);
            return Ok(());
        }
        if self.run().takeovers >= TAKEOVERS_MAX && !self.run().is_held() {
            self.interrupt(Cause::OwnersLost, None);
        }
        Ok(())
    }

    /// Holds the writes that the owner may have started: their outcome is unknown. A write that waits for approval is none of them.
    pub(super) fn hold_cut_writes(&mut self) {
        for call in self.outstanding_writes() {
            self.interrupt(Cause::UnknownOutcome, Some(call));
        }
    }

    /// The writes that the owner had to start, and may have started.
    fn outstanding_writes(&self) -> Vec<CallNumber> {
        let run = self.run();
        let is_write = |call: &CallNumber| run.call(*call).is_some_and(|open| open.effect == EffectClass::Write);
        let started = outstanding(run).into_iter().filter_map(|effect| match effect {
            Effect::StartTool { call } => Some(call),
            // A child run is recognised by its id: starting it again starts nothing.
            Effect::CallModel { .. } | Effect::StartChild { .. } => None,
        });
        started.filter(is_write).collect()
    }
}
