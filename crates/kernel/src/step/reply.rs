//! The part of a reply that goes into the journal unchanged.

use super::Draft;
use crate::{
    budget::Spent,
    chunks::ChunkLengths,
    event::Event,
    facts::ReplyFacts,
    input::{Finish, Reply},
    run::OpenCall,
};

/// What the journal records of a reply besides its content.
pub(super) struct ReplyEnd {
    spent: Spent,
    chunks: ChunkLengths,
    finish: Finish,
    model: ReplyFacts,
}

impl Reply {
    /// Moves the part that the journal records out of the reply.
    pub(super) fn take_end(&mut self) -> ReplyEnd {
        let (spent, finish) = (self.spent(), self.finish);
        ReplyEnd { spent, finish, chunks: std::mem::take(&mut self.chunks), model: std::mem::take(&mut self.model) }
    }
}

impl Draft<'_, '_> {
    /// Records a reply. Its items are those in the output box since [`appended`](Self::appended) gave `before`.
    pub(super) fn record_reply(&mut self, before: usize, ended: ReplyEnd, calls: Vec<OpenCall>) {
        let items = self.appended_since(before);
        let ReplyEnd { spent: Spent { usage, lost }, chunks, finish, model } = ended;
        self.record(Event::Replied { iteration: self.run().iteration, items, usage, lost, chunks, finish, model, calls });
    }
}
