//! A response as a stream of events, starting at any event number.
//!
//! A slow client costs the memory of one page of events: the back-pressure of its connection decides when the next page is read. A stream
//! that can't be completed is aborted, never closed: most clients take a clean end without the last event for a complete answer.

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

/// How long a requested heartbeat may take. After that, the connection is kept alive without an event.
const HEARTBEAT_WAIT_MS: u64 = 5_000;

/// The events that a reader has not received yet. By default, all of them.
#[derive(Default)]
pub(super) struct Unseen {
    /// The reader has received the events up to this number.
    after: Option<u64>,
    /// The reader has received these items of the output; events about them are skipped.
    items: BTreeSet<usize>,
}

impl Unseen {
    /// The events after the one with this number.
    pub fn after(number: Option<u64>) -> Self {
        Unseen { after: number, ..Unseen::default() }
    }

    /// The events that are not about these items of the output.
    pub fn without_items(items: impl IntoIterator<Item = usize>) -> Self {
        Unseen { after: None, items: items.into_iter().collect() }
    }

    fn has(&self, event: &WireEvent) -> bool {
        let is_new = self.after.is_none_or(|after| event.number > after);
        is_new && event.output_index().is_none_or(|index| !self.items.contains(&index))
    }
}

/// What a stream sends next.
pub(super) enum StreamItem {
    Event(WireEvent),
    /// There was no event for long: the connection must be kept alive without one.
    Silence,
}

/// The events of a response in order, before they are framed for HTTP or a socket.
pub(super) struct Events {
    reader: Reader,
    /// The events to send; all others are skipped.
    unseen: Unseen,
    /// How long the stream may be silent.
    heartbeat: Duration,
    /// Whether the last read found everything: then the stream waits for a notification before it reads again.
    has_read_all: bool,
    quiet_since: Instant,
    /// Whether a heartbeat was requested since the last event.
    heartbeat_requested: bool,
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
            heartbeat_requested: false,
            draining_since: None,
        }
    }

    /// The next event; `None` after the last one. After an error the stream must be aborted.
    pub async fn next(&mut self) -> io::Result<Option<StreamItem>> {
        loop {
            if let Some(event) = self.reader.projection.events.pop() {
                if !self.unseen.has(&event) {
                    continue;
                }
                (self.quiet_since, self.heartbeat_requested) = (Instant::now(), false);
                return Ok(Some(StreamItem::Event(event)));
            }
            if self.reader.projection.is_over() {
                return Ok(None);
            }
            if !self.has_read_all {
                self.has_read_all = true;
                self.read().await?;
                continue;
            }
            if self.drain_has_expired() {
                return Err(io::Error::other("the server is about to stop"));
            }
            self.has_read_all = false;
            if self.wait_or_request_heartbeat().await? {
                return Ok(Some(StreamItem::Silence));
            }
        }
    }

    /// The output so far.
    pub fn output(&self) -> &[Value] {
        &self.reader.projection.output
    }

    /// Reads what is new. If the store is unavailable, this returns without an error, and the next call asks it again.
    async fn read(&mut self) -> io::Result<()> {
        match self.reader.read_on().await {
            Ok(may_be_more) => self.has_read_all = !may_be_more,
            Err(ReadError::Store(StoreError::Unavailable(why))) => {
                tracing::warn!(why = why.as_str(), "a response's stream waits for the store")
            }
            Err(ReadError::Store(StoreError::Fenced)) => {}
            Err(gone @ ReadError::Gone) => return Err(io::Error::other(gone)),
            Err(ReadError::Store(error @ StoreError::Corrupt(_))) => {
                tracing::error!(%error, "a response's stream is broken off");
                return Err(io::Error::other("stored data makes no sense"));
            }
        }
        Ok(())
    }

    /// Waits for a notification. After a heartbeat interval without one it requests a heartbeat, which is an event for every reader of the
    /// run. If that brings nothing, because the run's owner can't be reached, it returns `true`: the connection must be kept alive without
    /// an event.
    async fn wait_or_request_heartbeat(&mut self) -> io::Result<bool> {
        let quiet = self.quiet_since.elapsed();
        let limit = if self.heartbeat_requested { self.heartbeat + Duration::from_millis(HEARTBEAT_WAIT_MS) } else { self.heartbeat };
        if quiet < limit {
            news_or_time(&mut self.reader.watch, limit - quiet).await;
            return Ok(false);
        }
        if self.heartbeat_requested {
            (self.quiet_since, self.heartbeat_requested) = (Instant::now(), false);
            return Ok(true);
        }
        self.heartbeat_requested = true;
        self.reader.request_heartbeat().await;
        // A response that was erased has no further events, so the stream can't be completed.
        match self.reader.check_not_erased().await {
            Err(gone @ ReadError::Gone) => Err(io::Error::other(gone)),
            Ok(()) | Err(ReadError::Store(_)) => Ok(false),
        }
    }

    /// Whether the stream must be aborted because the server stops. Streams may continue for `drain_ms` first, so that calls in flight
    /// finish.
    fn drain_has_expired(&mut self) -> bool {
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
    let stream = Sse { events, reader, state: SseState::Running };
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
    state: SseState,
}

enum SseState {
    Running,
    /// The `[DONE]` marker was sent.
    Closed,
}

impl Sse {
    /// The next chunk of the body: one complete event.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if let SseState::Closed = self.state {
            if let Some(reader) = &mut self.reader {
                reader.served();
            }
            return None;
        }
        let chunk = match self.events.next().await {
            Ok(Some(StreamItem::Event(event))) => Ok(event.sse()),
            Ok(Some(StreamItem::Silence)) => Ok(Bytes::from_static(b": still here\n\n")),
            Ok(None) => {
                self.state = SseState::Closed;
                Ok(Bytes::from_static(DONE))
            }
            Err(error) => Err(error),
        };
        Some((chunk, self))
    }
}
