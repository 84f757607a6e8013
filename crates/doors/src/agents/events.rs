//! An agent's events as a stream of server-sent events. A client can resume it after the last event it received.
//!
//! The door keeps no state for a reader between pages: it reads the journal. A slow client costs the memory of one page, because the
//! back-pressure of its connection decides when the next page is read.

use std::{collections::VecDeque, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::Instant;
use windlass_engine::{Watch, messages};
use windlass_kernel::{AgentKey, Event};
use windlass_ports::{JournalEntry, RunView, StoreError};

use crate::{
    DoorState,
    auth::{Caller, Scope},
    error::ApiError,
    limits::{EVENTS_PAGE, HEARTBEAT_MS},
    request::{AgentPath, Query, last_event_id},
    spelling::number,
    waiting::news_or_time,
};

pub(super) async fn events(
    State(state): State<DoorState>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(&Scope::AgentsRead)?;
    query.only(&["after", "from"])?;
    let watch = state.engine.watch_agent(&agent);
    let at = start(&state, &agent, &headers, &query).await?;
    let reader = EventReader { state, agent, watch, at, ready: VecDeque::new(), silent_since: Instant::now() };
    let body = Body::from_stream(stream::unfold(reader, EventReader::next));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, body).into_response())
}

/// The position of a reader in the agent's journal. It points to the next message of an entry to send; one entry can project to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    ordinal: u64,
    number: u64,
    message: u64,
}

impl Position {
    fn run(ordinal: u64) -> Self {
        Position { ordinal, number: 0, message: 0 }
    }

    /// The position after the event with this id. `None` if the id is malformed.
    fn after(id: &str) -> Option<Self> {
        let mut parts = id.split('.').map(number);
        let position = Position { ordinal: parts.next()??, number: parts.next()??, message: parts.next()?? + 1 };
        parts.next().is_none().then_some(position)
    }
}

/// The first position of the stream: after the event that the client names, at the agent's first run for `from=start`, else at the active
/// run.
async fn start(state: &DoorState, agent: &AgentKey, headers: &HeaderMap, query: &Query) -> Result<Position, ApiError> {
    let head = state.engine.views().head(agent).await?;
    let runs = head.as_ref().map_or(0, |head| head.runs);
    if let Some(cursor) = last_event_id(headers).or_else(|| query.text("after").map(str::to_owned)) {
        let position = Position::after(&cursor).filter(|position| position.ordinal <= runs);
        return position.ok_or_else(|| ApiError::bad("bad_cursor", "this is not the id of an event of this agent"));
    }
    match query.text("from") {
        Some("start") => Ok(Position::run(0)),
        Some(_) => Err(ApiError::bad("bad_query", "`from` can only be `start`")),
        None => {
            let active = match head.and_then(|head| head.run) {
                Some(run) => state.engine.views().run(&agent.tenant, run).await?,
                None => None,
            };
            Ok(Position::run(active.map_or(runs + 1, |run| run.ordinal)))
        }
    }
}

struct EventReader {
    state: DoorState,
    agent: AgentKey,
    watch: Watch,
    at: Position,
    /// Events of the current page that have not been sent yet.
    ready: VecDeque<Bytes>,
    silent_since: Instant,
}

impl EventReader {
    /// The next chunk: one event or a heartbeat. The stream ends when the server drains.
    async fn next(mut self) -> Option<(Result<Bytes, StoreError>, Self)> {
        let heartbeat = Duration::from_millis(HEARTBEAT_MS);
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.silent_since = Instant::now();
                return Some((Ok(event), self));
            }
            match self.read_page().await {
                Ok(Page::More) => continue,
                Ok(Page::End) => {}
                Err(StoreError::Unavailable(why)) => {
                    tracing::warn!(agent = %self.agent.agent, why = why.as_str(), "an event stream waits for the store")
                }
                Err(StoreError::Fenced) => {}
                Err(error @ StoreError::Corrupt(_)) => {
                    tracing::error!(agent = %self.agent.agent, %error, "an event stream is broken off");
                    return Some((Err(error), self));
                }
            }
            if self.state.engine.is_draining() {
                return None;
            }
            let silence = self.silent_since.elapsed();
            if silence >= heartbeat {
                self.silent_since = Instant::now();
                return Some((Ok(Bytes::from_static(b": still here\n\n")), self));
            }
            news_or_time(&mut self.watch, heartbeat - silence).await;
        }
    }

    /// Reads the next page from the current position and advances the position past it.
    async fn read_page(&mut self) -> Result<Page, StoreError> {
        let views = self.state.engine.views().clone();
        let Some(mut run) = views.run_from(&self.agent, self.at.ordinal).await? else {
            return Ok(Page::End);
        };
        if run.unlisted {
            self.at = Position::run(run.ordinal + 1);
            return Ok(Page::More);
        }
        if run.ordinal != self.at.ordinal {
            self.at = Position::run(run.ordinal);
        }
        let entries = views.journal(&self.agent.tenant, run.id, self.at.number, EVENTS_PAGE).await?;
        let has_ended = |entry: &JournalEntry| matches!(entry.event, Event::Ended { .. });
        if entries.iter().any(has_ended) {
            // The run was read before its journal and may have ended in between. The event of its end names the deliverable, so the run is
            // read again.
            match views.run(&self.agent.tenant, run.id).await? {
                Some(ended) => run = ended,
                None => return Ok(Page::End),
            }
        }
        for entry in &entries {
            self.take(&run, entry);
        }
        match entries.is_empty() {
            // Nothing follows the end of a run, so the reader continues with the agent's next run.
            true if run.state.has_ended() && self.at.number >= run.state.next_number => self.at = Position::run(run.ordinal + 1),
            true => return Ok(Page::End),
            false => {}
        }
        Ok(Page::More)
    }

    fn take(&mut self, run: &RunView, entry: &JournalEntry) {
        // `message` of the position counts only in the entry that the position names.
        let first = if entry.number == self.at.number { self.at.message } else { 0 };
        for (message, published) in (0_u64..).zip(messages::project(run, entry)) {
            if message >= first && published.subject.is_event() {
                let id = format!("{}.{}.{message}", run.ordinal, entry.number);
                let event = format!("id: {id}\nevent: {}\ndata: {}\n\n", published.subject, published.body);
                self.ready.push_back(event.into());
            }
        }
        self.at = Position { ordinal: run.ordinal, number: entry.number + 1, message: 0 };
    }
}

enum Page {
    /// The next page may be there already.
    More,
    /// The reader has read all that is committed.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_continues_after_the_event_it_names() {
        assert_eq!(Position::after("3.0.2"), Some(Position { ordinal: 3, number: 0, message: 3 }));
        for id in ["", "3", "3.0", "3.0.2.1", "a.b.c", "3.-1.0", "3.0.", "03.0.0", "3.0.99999999999999999999"] {
            assert_eq!(Position::after(id), None, "{id}");
        }
    }
}
