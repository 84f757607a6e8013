//! What becomes of a run whose model call came to nothing, or whose owner was lost: what was said stays, and what was used up counts.

use super::{Draft, TAKEOVERS_MAX, Taken};
use crate::{
    budget::{self, Spent},
    content::{self, ItemKind},
    event::Event,
    ids::{CallNumber, Timestamp},
    input::{LeftBehind, Said},
    manifest::{EffectClass, Route},
    run::{ParkReason, Phase, Progress},
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
    /// The model is asked to go on, if the run may ask once more.
    pub(super) fn cut_off(&mut self, said: Said, spent: Spent) -> Taken {
        match self.breached_by(spent, self.moment.now) {
            None => self.cut(said, spent, AfterCut::AsksAgain),
            Some(breach) => {
                self.cut(said, spent, AfterCut::Ends);
                self.breach(breach);
            }
        }
        Ok(())
    }

    /// What stands against another try that starts then, after one that used this up.
    pub(super) fn breached_by(&self, spent: Spent, starts_at: Timestamp) -> Option<budget::Breach> {
        let mut used = self.run().clone();
        used.usage.add(spent.usage);
        used.lost = used.lost.saturating_add(spent.lost);
        budget::before_attempt(&used, &self.manifest.budgets, starts_at)
    }

    /// Words that were announced stay, whatever becomes of the run.
    pub(super) fn cut(&mut self, said: Said, Spent { usage, lost }: Spent, then: AfterCut) {
        let before = self.appended();
        if !said.text.is_empty() {
            self.append_new(ItemKind::Thought, content::thought(said.text));
        }
        let resumes = then == AfterCut::AsksAgain;
        if resumes {
            let words = "your last message was cut off in the middle; go on from where it ends, without repeating it";
            self.append_new(ItemKind::Instruction, content::encode(&content::Instruction::Text(words.into())));
        }
        let items = self.appended_since(before);
        self.record(Event::Cut { iteration: self.run().iteration, items, pieces: said.pieces, resumes, usage, lost });
    }

    /// A lost owner may have been in the middle of anything it had started: a write waits for a person, the rest is owed again, if
    /// what was lost leaves enough of the budgets.
    pub(super) fn taken_over(&mut self, left: LeftBehind) -> Taken {
        self.record(Event::TakenOver { lost: left.lost });
        self.park_cut_writes();
        if left.lost > 0
            && self.run().parked.is_none()
            && matches!(self.run().phase, Phase::Thinking { .. })
            && let Some(breach) = budget::before_attempt(self.run(), &self.manifest.budgets, self.moment.now)
        {
            if !left.said.is_empty() {
                self.cut(left.said, Spent::default(), AfterCut::Ends);
            }
            self.breach(breach);
            return Ok(());
        }
        if self.run().takeovers >= TAKEOVERS_MAX && self.run().parked.is_none() {
            self.record(Event::Parked { reason: ParkReason::OwnersLost });
        }
        Ok(())
    }

    /// Parks the writes that had been started in this process: nobody knows how far they got.
    pub(super) fn park_cut_writes(&mut self) {
        let cut: Vec<CallNumber> = self
            .run()
            .calls()
            .iter()
            .filter(|call| call.route == Route::InProcess && call.progress == Progress::Open && call.effect == EffectClass::Write)
            .map(|call| call.call)
            .collect();
        for call in cut {
            self.record(Event::CallParked { call });
        }
    }
}
