//! Follows a run: reads what is new of its journal, its items and its words, and keeps the response up to date with it.

use std::sync::Arc;

use windlass_engine::{Engine, Watch};
use windlass_kernel::{AgentKey, BoxRange, Event, Manifest, RunId, Timestamp, apply};
use windlass_ports::{Item, JournalEntry, RunView, StoreError};

use super::{note::Note, project::Projection};
use crate::limits::EVENTS_PAGE;

/// A response that is read along with.
pub(super) struct Reader {
    engine: Engine,
    pub agent: AgentKey,
    pub watch: Watch,
    pub made: Projection,
}

/// What a response is read from, if it is this door's.
pub(super) struct Known {
    pub id: RunId,
    pub agent: AgentKey,
    pub note: Arc<Note>,
    pub manifest: Arc<Manifest>,
    pub created_at: Timestamp,
}

impl Known {
    /// A run's response. `None` if the run is another door's.
    pub fn of(view: RunView) -> Option<Self> {
        let note = Arc::new(Note::read(view.note.as_ref()?)?);
        Some(Known { id: view.id, agent: view.agent, note, manifest: Arc::new(view.manifest), created_at: view.created_at })
    }
}

impl Reader {
    /// Reads a response from its beginning. `is_told` says whether its events are wanted, or only what they amount to.
    pub fn new(engine: &Engine, known: Known, is_told: bool) -> Self {
        let watch = engine.watch_agent(&known.agent);
        let made = Projection::new(known.id, known.note, known.manifest, known.created_at, is_told);
        Reader { engine: engine.clone(), agent: known.agent, watch, made }
    }

    /// Reads everything there is by now.
    pub async fn catch_up(&mut self) -> Result<(), StoreError> {
        while self.read_on().await? {}
        Ok(())
    }

    /// Reads on from where the response is. False if there is nothing new.
    pub async fn read_on(&mut self) -> Result<bool, StoreError> {
        if self.made.is_over() {
            return Ok(false);
        }
        // Words are read first: if the journal, read after them, does not settle them, they belong to where the response is.
        let words = match self.made.awaits_words() {
            true => self.engine.open_words(&self.agent.tenant, self.made.id, self.made.pieces).await?,
            false => Vec::new(),
        };
        let views = self.engine.views();
        let entries = views.journal(&self.agent.tenant, self.made.id, self.made.next_number(), EVENTS_PAGE).await?;
        if entries.is_empty() {
            let is_new = !words.is_empty();
            self.made.take_words(words);
            return Ok(is_new);
        }
        self.take(&entries).await?;
        Ok(true)
    }

    async fn take(&mut self, entries: &[JournalEntry]) -> Result<(), StoreError> {
        let from = self.made.items_taken();
        let mut run = self.made.run.clone();
        let lengths: Vec<u32> = entries
            .iter()
            .map(|entry| {
                run = apply(run.take(), &entry.event);
                run.as_ref().map_or(0, |run| run.output.length)
            })
            .collect();
        let output = run.as_ref().map(|run| run.output);
        let items = match output.filter(|output| output.length > from) {
            Some(output) => self.items(output, from).await?,
            None => Vec::new(),
        };
        let mut before = from;
        for (entry, after) in entries.iter().zip(lengths) {
            let mut result = None;
            if let Event::Reported { item, .. } = &entry.event {
                result = self.engine.views().item(&self.agent.tenant, *item).await?;
            }
            let at = |length: u32| (length.saturating_sub(from) as usize).min(items.len());
            self.made.take(entry, &items[at(before)..at(after)], result.as_ref());
            before = after;
        }
        Ok(())
    }

    /// The items of the output box from a position on.
    async fn items(&self, output: BoxRange, from: u32) -> Result<Vec<Item>, StoreError> {
        let count = (output.length - from) as usize;
        let items = self.engine.views().box_items(&self.agent.tenant, output.id, from, count).await?;
        if items.len() != count {
            return Err(StoreError::Corrupt(format!("an output box has {} items where {count} must be", items.len())));
        }
        Ok(items)
    }

    /// Asks the run for a sign of life: nobody here has heard anything for a while.
    pub async fn nudge(&self) {
        self.engine.quiet(&self.agent, self.made.id, self.made.next_number()).await;
    }

    /// The engine whose run it is.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
