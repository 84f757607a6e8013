//! Follows a run: reads new journal events, items and streamed text, and keeps the projection up to date.

use std::sync::Arc;

use windlass_engine::{Engine, JournalCache, StreamedChunks, Watch};
use windlass_kernel::{AgentKey, Manifest, RunId, Timestamp};
use windlass_ports::{JournalRecord, RunView, StoreError};

use super::{compaction::Sealer, note::Note, project::Projection};
use crate::{DoorState, limits::EVENTS_PAGE};

/// Follows one run, and holds the response that it has been projected to.
pub(super) struct Reader {
    engine: Engine,
    pub agent: AgentKey,
    pub watch: Watch,
    pub projection: Projection,
    tail: JournalCache,
    /// Whether the last read brought the response up to date from the tail. Then an empty tail means that nothing has happened since, and
    /// the store need not be asked.
    is_up_to_date: bool,
}

/// Why a response can't be read any further.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The run was deleted, or erased by retention.
    #[error("the response was deleted or erased while it was read")]
    Gone,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A run of this door, with everything that a projection of it needs.
pub(super) struct Known {
    pub id: RunId,
    pub agent: AgentKey,
    pub note: Arc<Note>,
    pub manifest: Arc<Manifest>,
    pub created_at: Timestamp,
    /// The run's recent events, if this request has just started it.
    pub tail: Option<JournalCache>,
}

impl Known {
    /// The response of a run. `None` if the run is another door's, or was erased.
    pub fn of(view: RunView) -> Option<Self> {
        let note = Arc::new(Note::read(view.note.as_ref()?)?);
        Some(Known { id: view.id, agent: view.agent, note, manifest: Arc::new(view.manifest), created_at: view.created_at, tail: None })
    }
}

impl Reader {
    /// A reader that starts at the beginning. With `emits_events` the projection emits wire events; without, it only builds the object.
    pub fn new(state: &DoorState, known: Known, emits_events: bool) -> Self {
        let engine = &state.engine;
        let watch = engine.watch_agent(&known.agent);
        let sealer = Sealer::new(state, &known.agent.tenant);
        let tail = known.tail.unwrap_or_else(|| engine.follow(known.id));
        let projection = Projection::new(known.id, known.note, known.manifest, known.created_at, sealer, emits_events);
        Reader { engine: engine.clone(), agent: known.agent, watch, tail, projection, is_up_to_date: false }
    }

    /// Reads everything that has happened by now.
    pub async fn catch_up(&mut self) -> Result<(), ReadError> {
        while self.read_on().await? {}
        Ok(())
    }

    /// Reads one page of what is new. Returns `true` if there may be more already: the caller must then read again at once, because no
    /// notification will come for it.
    pub async fn read_on(&mut self) -> Result<bool, ReadError> {
        if self.projection.is_over() {
            return Ok(false);
        }
        // Streamed text is read before the journal. If the journal then has no new event, the text continues the response as it is;
        // otherwise an event may have stored the text in an item, and the chunks are thrown away.
        let streamed = match &self.projection.run {
            Some(run) if self.projection.awaits_deltas() => {
                self.engine.streamed_chunks(&self.agent.tenant, self.projection.id, run.output.length, self.projection.open_chunks).await?
            }
            Some(_) | None => StreamedChunks::default(),
        };
        let journal_records = self.journal_records(streamed.tail_is_whole).await?;
        if journal_records.is_empty() {
            self.projection.take_chunks(streamed.pieces);
            self.is_up_to_date = false;
            return Ok(false);
        }
        let is_page_full = journal_records.len() == EVENTS_PAGE;
        for passage in &journal_records {
            self.projection.take(passage);
        }
        // The first chunks of an iteration may have been streamed before the reader knew of the iteration.
        let may_be_more = is_page_full || self.projection.awaits_deltas();
        self.is_up_to_date &= may_be_more;
        Ok(may_be_more)
    }

    /// The journal's new events. Notifications may be spurious, and most of them are for streamed text: if the tail has the answer, the
    /// store is not asked.
    async fn journal_records(&mut self, tail_is_whole: bool) -> Result<Vec<JournalRecord>, ReadError> {
        let next = self.projection.next_number();
        if let Some(found) = self.tail.from(next)
            && (!found.is_empty() || tail_is_whole || self.is_up_to_date)
        {
            self.is_up_to_date = true;
            return Ok(found);
        }
        self.is_up_to_date = false;
        tracing::trace!(run = %self.projection.id, from = next, "the store is asked for what happened");
        let found =
            self.engine.views().journal_records(&self.agent.tenant, self.projection.id, self.projection.run.clone(), EVENTS_PAGE).await?;
        // Every run that was not erased has a first event.
        if found.is_empty() && next == 0 { Err(ReadError::Gone) } else { Ok(found) }
    }

    /// Fails with [`ReadError::Gone`] if the response was erased, which sends no notification.
    pub async fn check_not_erased(&self) -> Result<(), ReadError> {
        let view = self.engine.views().run(&self.agent.tenant, self.projection.id).await?;
        view.filter(|view| view.note.is_some()).map(drop).ok_or(ReadError::Gone)
    }

    /// Requests a heartbeat of the run, unless it has had an event that this reader does not know yet.
    pub async fn request_heartbeat(&self) {
        self.engine.quiet(&self.agent, self.projection.id, self.projection.next_number()).await;
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}
