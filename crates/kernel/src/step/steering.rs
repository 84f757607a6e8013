//! Steering: instructions that arrive while a run is active. The next iteration reads them.

use super::{Draft, Taken};
use crate::{
    budget::{self, Breach, Spent},
    content::{self, ItemKind},
    event::{EndReason, Event, IgnoreReason},
    ids::ItemId,
    input::Reply,
    manifest::{Compaction, Manifest, ToolChoice},
    policy::{Ending, Planned, Refusal},
    run::{Origin, Run},
};

/// The highest number of instructions that wait for the next iteration of a run.
const UNREAD_MAX: usize = 32;

/// Whether a run takes an instruction now. The error is the reason why not.
pub fn check_steering(run: &Run, manifest: &Manifest) -> Result<(), IgnoreReason> {
    if run.has_ended() {
        return Err(IgnoreReason::AlreadyEnded);
    }
    // An action asks no model, and a run that only makes a summary asks it once.
    if run.origin == Origin::Action || manifest.compaction == Compaction::Only {
        return Err(IgnoreReason::NotSteerable);
    }
    if run.steering.len() >= UNREAD_MAX { Err(IgnoreReason::TooManyInstructions) } else { Ok(()) }
}

impl Draft<'_, '_> {
    pub(super) fn steered(&mut self, item: ItemId) -> Taken {
        check_steering(self.run(), self.manifest)?;
        self.record(Event::Steered { item });
        Ok(())
    }

    /// Appends the instructions that no model call has read, in the order of their arrival.
    pub(super) fn append_steering(&mut self) {
        self.made.appended.extend(&self.made.run.steering);
    }

    /// Whether the run goes on after a final answer, because an instruction came that the model has not read. If a budget ends the run
    /// before another iteration, the answer that is there is its result.
    pub(super) fn must_read_on(&self, ending: &Ending, spent: Spent) -> bool {
        let has_unread = ending.reason == EndReason::Answered && !self.run().steering.is_empty();
        has_unread && (self.manifest.budgets_park || self.next_iteration_breach(spent).is_none())
    }

    /// The budget that another iteration would exceed after a reply that used `spent`.
    fn next_iteration_breach(&self, spent: Spent) -> Option<Breach> {
        let mut used = self.run().clone();
        used.usage.add(spent.usage);
        used.lost = used.lost.saturating_add(spent.lost);
        budget::before_iteration(&used, &self.manifest.budgets, self.moment.now)
    }

    /// The text of a final answer stays as a message, and another iteration starts. A result that was handed in is refused, so that the
    /// model hands it in again.
    pub(super) fn read_on(&mut self, mut reply: Reply) {
        if !reply.calls.is_empty() && self.manifest.choice != ToolChoice::None {
            let message = "new instructions came while you worked; take them into account, and hand in the result again";
            let refused =
                |requested| Planned { requested, refused: Some(Refusal { code: "new_instructions", message: message.to_owned() }) };
            let planned = reply.calls.iter().cloned().map(refused).collect();
            return self.act(reply, planned);
        }
        let (before, ended) = (self.appended(), reply.take_end());
        self.append_new(ItemKind::Thought, content::thought(reply.text));
        self.record_reply(before, ended, Vec::new());
        self.start_iteration();
    }
}
