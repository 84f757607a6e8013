//! Follows a run: reads what is new of its journal, its items and its words, and keeps the response up to date with it.

use std::sync::Arc;

use windlass_engine::{Engine, OpenWords, Tail, Watch};
use windlass_kernel::{AgentKey, Manifest, RunId, Timestamp};
use windlass_ports::{Passage, RunView, StoreError};

use super::{compaction::Sealer, note::Note, project::Projection};
use crate::{DoorState, limits::EVENTS_PAGE};

/// A response that is read along with.
pub(super) struct Reader {
    engine: Engine,
    pub agent: AgentKey,
    pub watch: Watch,
    pub made: Projection,
    tail: Tail,
    /// Whether the response has just been brought up to date from the tail: then what is not there has not happened yet.
    is_up_to_date: bool,
}

/// Why a response cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// It was deleted meanwhile, or its time had come.
    #[error("the response was deleted or erased while it was read")]
    Gone,
    /// The store does not say.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a response is read from, if it is this door's.
pub(super) struct Known {
    pub id: RunId,
    pub agent: AgentKey,
    pub note: Arc<Note>,
    pub manifest: Arc<Manifest>,
    pub created_at: Timestamp,
    /// What happened since it began, if it was begun here.
    pub tail: Option<Tail>,
}

impl Known {
    /// A run's response. `None` if the run is another door's.
    pub fn of(view: RunView) -> Option<Self> {
        let note = Arc::new(Note::read(view.note.as_ref()?)?);
        Some(Known { id: view.id, agent: view.agent, note, manifest: Arc::new(view.manifest), created_at: view.created_at, tail: None })
    }
}

impl Reader {
    /// Reads a response from its beginning. `is_told` says whether its events are wanted, or only what they amount to.
    pub fn new(state: &DoorState, known: Known, is_told: bool) -> Self {
        let engine = &state.engine;
        let watch = engine.watch_agent(&known.agent);
        let sealer = Sealer::new(state, &known.agent.tenant);
        let tail = known.tail.unwrap_or_else(|| engine.follow(known.id));
        let made = Projection::new(known.id, known.note, known.manifest, known.created_at, sealer, is_told);
        Reader { engine: engine.clone(), agent: known.agent, watch, tail, made, is_up_to_date: false }
    }

    /// Reads everything there is by now.
    pub async fn catch_up(&mut self) -> Result<(), ReadError> {
        while self.read_on().await? {}
        Ok(())
    }

    /// Reads on from where the response is. Says whether there may be more already: then nobody rings for it.
    pub async fn read_on(&mut self) -> Result<bool, ReadError> {
        if self.made.is_over() {
            return Ok(false);
        }
        // Words are read first: if the journal, read after them, does not settle them, they belong to where the response is.
        let words = match &self.made.run {
            Some(run) if self.made.awaits_words() => {
                self.engine.open_words(&self.agent.tenant, self.made.id, run.output.length, self.made.pieces).await?
            }
            Some(_) | None => OpenWords::default(),
        };
        let passages = self.passages(words.tail_is_whole).await?;
        if passages.is_empty() {
            self.made.take_words(words.pieces);
            self.is_up_to_date = false;
            return Ok(false);
        }
        let is_page_full = passages.len() == EVENTS_PAGE;
        for passage in &passages {
            self.made.take(passage);
        }
        // The first words of a lap may have been announced before the reader knew of the lap.
        let may_be_more = is_page_full || self.made.awaits_words();
        self.is_up_to_date &= may_be_more;
        Ok(may_be_more)
    }

    /// What happened since. Rings come once more than there is something new, and most of them while the model speaks: they cost
    /// the store nothing.
    async fn passages(&mut self, tail_is_whole: bool) -> Result<Vec<Passage>, ReadError> {
        let next = self.made.next_number();
        if let Some(found) = self.tail.from(next)
            && (!found.is_empty() || tail_is_whole || self.is_up_to_date)
        {
            self.is_up_to_date = true;
            return Ok(found);
        }
        self.is_up_to_date = false;
        tracing::trace!(run = %self.made.id, from = next, "the store is asked for what happened");
        let found = self.engine.views().passages(&self.agent.tenant, self.made.id, self.made.run.clone(), EVENTS_PAGE).await?;
        // Every run has a first event for as long as it is there.
        if found.is_empty() && next == 0 { Err(ReadError::Gone) } else { Ok(found) }
    }

    /// Whether the response is there still, for a reader that has heard nothing for a while.
    pub async fn check_there(&self) -> Result<(), ReadError> {
        let view = self.engine.views().run(&self.agent.tenant, self.made.id).await?;
        view.filter(|view| view.note.is_some()).map(drop).ok_or(ReadError::Gone)
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
