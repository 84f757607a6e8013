//! A response as a stream of events, from any number on.
//!
//! A slow reader holds one page of events; its connection's own back-pressure decides when it reads on. A stream that cannot be
//! ended properly is broken off, never closed: a clean end without the last event looks like a whole answer to most clients.

use std::{collections::BTreeSet, io, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::time::Instant;
use windlass_engine::ReaderGuard;
use windlass_ports::StoreError;

use super::{
    reader::{ReadError, Reader},
    wire::{DONE, WireEvent},
};
use crate::waiting::news_or_time;

/// How long after a nudge that brought nothing the connection is kept alive by other means.
const PATIENCE_MS: u64 = 5_000;

/// Which events a reader has not got yet: all, if nothing is said.
#[derive(Default)]
pub(super) struct Unseen {
    /// It has those up to this number.
    after: Option<u64>,
    /// It has these items of the output, and does not want to hear of them again.
    items: BTreeSet<usize>,
}

impl Unseen {
    /// What comes after an event.
    pub fn after(number: Option<u64>) -> Self {
        Unseen { after: number, ..Unseen::default() }
    }

    /// What is not about these items of the output.
    pub fn without_items(items: impl IntoIterator<Item = usize>) -> Self {
        Unseen { after: None, items: items.into_iter().collect() }
    }

    fn has(&self, event: &WireEvent) -> bool {
        let is_new = self.after.is_none_or(|after| event.number > after);
        is_new && event.output_index().is_none_or(|index| !self.items.contains(&index))
    }
}

/// What a stream has to tell.
pub(super) enum Told {
    Event(WireEvent),
    /// Nothing happened for long: the connection is to be kept alive without an event.
    Silence,
}

/// The events of a response as they come, however they are framed.
pub(super) struct Events {
    reader: Reader,
    /// Anything else is left out.
    unseen: Unseen,
    /// How long it may be silent.
    heartbeat: Duration,
    /// Whether there was nothing more to read when it last read: then news come first.
    has_read_all: bool,
    quiet_since: Instant,
    /// Whether the run was asked for a sign of life since anything came.
    nudged: bool,
    draining_since: Option<Instant>,
}

impl Events {
    pub fn new(reader: Reader, unseen: Unseen, heartbeat_ms: u64) -> Self {
        Events {
            reader,
            unseen,
            heartbeat: Duration::from_millis(heartbeat_ms.max(1)),
            has_read_all: false,
            quiet_since: Instant::now(),
            nudged: false,
            draining_since: None,
        }
    }

    /// What comes next; `None` after the last event. After an error nothing comes any more.
    pub async fn next(&mut self) -> io::Result<Option<Told>> {
        loop {
            if let Some(event) = self.reader.made.events.pop() {
                if !self.unseen.has(&event) {
                    continue;
                }
                (self.quiet_since, self.nudged) = (Instant::now(), false);
                return Ok(Some(Told::Event(event)));
            }
            if self.reader.made.is_over() {
                return Ok(None);
            }
            if !self.has_read_all {
                self.has_read_all = true;
                self.read().await?;
                continue;
            }
            if self.is_cut_by_drain() {
                return Err(io::Error::other("the server is about to stop"));
            }
            self.has_read_all = false;
            if self.is_silent().await? {
                return Ok(Some(Told::Silence));
            }
        }
    }

    /// The output, as far as it was told.
    pub fn output(&self) -> &[Value] {
        &self.reader.made.output
    }

    /// Reads on. A store that does not answer now may do so later.
    async fn read(&mut self) -> io::Result<()> {
        match self.reader.read_on().await {
            Ok(may_be_more) => self.has_read_all = !may_be_more,
            Err(ReadError::Store(StoreError::Unavailable(why))) => tracing::warn!(why, "a response's stream waits for the store"),
            Err(ReadError::Store(StoreError::Fenced)) => {}
            Err(gone @ ReadError::Gone) => return Err(io::Error::other(gone)),
            Err(ReadError::Store(error @ StoreError::Corrupt(_))) => {
                tracing::error!(%error, "a response's stream is broken off");
                return Err(io::Error::other("stored data makes no sense"));
            }
        }
        Ok(())
    }

    /// Waits for news. After a while without any, the run is asked for a sign of life that every reader of the stream gets; should
    /// that fail too, because a process that cannot be reached has the run, the connection has to be kept open without an event.
    async fn is_silent(&mut self) -> io::Result<bool> {
        let quiet = self.quiet_since.elapsed();
        let limit = if self.nudged { self.heartbeat + Duration::from_millis(PATIENCE_MS) } else { self.heartbeat };
        if quiet < limit {
            news_or_time(&mut self.reader.watch, limit - quiet).await;
            return Ok(false);
        }
        if self.nudged {
            (self.quiet_since, self.nudged) = (Instant::now(), false);
            return Ok(true);
        }
        self.nudged = true;
        self.reader.nudge().await;
        // What is gone says nothing any more, and its stream cannot be told to its end.
        match self.reader.check_there().await {
            Err(gone @ ReadError::Gone) => Err(io::Error::other(gone)),
            Ok(()) | Err(ReadError::Store(_)) => Ok(false),
        }
    }

    /// A server that stops lets calls in flight finish for a while; then whatever is still open is broken off.
    fn is_cut_by_drain(&mut self) -> bool {
        let engine = self.reader.engine();
        if !engine.is_draining() {
            return false;
        }
        let patience = Duration::from_millis(engine.settings().drain_ms);
        self.draining_since.get_or_insert_with(Instant::now).elapsed() >= patience
    }
}

/// The stream of a response as server-sent events.
pub(super) fn response(events: Events, reader: Option<ReaderGuard>) -> Response {
    let stream = Sse { events, reader, place: Place::Running };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(stream::unfold(stream, Sse::next))).into_response()
}

struct Sse {
    events: Events,
    reader: Option<ReaderGuard>,
    place: Place,
}

enum Place {
    Running,
    /// The end mark is out.
    Closed,
}

impl Sse {
    /// The next chunk: one event, whole.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if let Place::Closed = self.place {
            if let Some(reader) = &mut self.reader {
                reader.served();
            }
            return None;
        }
        let chunk = match self.events.next().await {
            Ok(Some(Told::Event(event))) => Ok(event.sse()),
            Ok(Some(Told::Silence)) => Ok(Bytes::from_static(b": still here\n\n")),
            Ok(None) => {
                self.place = Place::Closed;
                Ok(Bytes::from_static(DONE))
            }
            Err(error) => Err(error),
        };
        Some((chunk, self))
    }
}
