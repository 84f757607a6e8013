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
use tokio::time::Instant;
use windlass_ports::StoreError;

use super::{
    attended::Attendance,
    reader::Reader,
    wire::{DONE, WireEvent},
};
use crate::waiting::news_or_time;

/// How long after a nudge that brought nothing a comment keeps the connection alive instead.
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

/// The stream of a response.
pub(super) fn response(reader: Reader, unseen: Unseen, attendance: Option<Attendance>, heartbeat_ms: u64) -> Response {
    let stream = Stream {
        reader,
        unseen,
        attendance,
        heartbeat: Duration::from_millis(heartbeat_ms.max(1)),
        place: Place::Running,
        has_read_all: false,
        quiet_since: Instant::now(),
        nudged: false,
        draining_since: None,
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(stream::unfold(stream, Stream::next))).into_response()
}

struct Stream {
    reader: Reader,
    /// Anything else is left out.
    unseen: Unseen,
    attendance: Option<Attendance>,
    /// How long it may be silent.
    heartbeat: Duration,
    place: Place,
    /// Whether there was nothing more to read when it last read: then news come first.
    has_read_all: bool,
    quiet_since: Instant,
    /// Whether the run was asked for a sign of life since anything came.
    nudged: bool,
    draining_since: Option<Instant>,
}

enum Place {
    Running,
    /// The last event is out; the end mark is not.
    Ended,
    Closed,
}

impl Stream {
    /// The next chunk: one event, whole.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if let Some(event) = self.reader.made.events.pop() {
                if !self.unseen.has(&event) {
                    continue;
                }
                (self.quiet_since, self.nudged) = (Instant::now(), false);
                return Some((Ok(event.sse()), self));
            }
            match self.place {
                Place::Running => {}
                Place::Ended => {
                    self.place = Place::Closed;
                    return Some((Ok(Bytes::from_static(DONE)), self));
                }
                Place::Closed => {
                    if let Some(attendance) = &mut self.attendance {
                        attendance.served();
                    }
                    return None;
                }
            }
            if !self.has_read_all {
                self.has_read_all = true;
                if let Err(error) = self.read().await {
                    return Some((Err(error), self));
                }
                continue;
            }
            if self.is_cut_by_drain() {
                return Some((Err(io::Error::other("the server is about to stop")), self));
            }
            self.has_read_all = false;
            if let Some(comment) = self.sign_of_life().await {
                return Some((Ok(comment), self));
            }
        }
    }

    /// Reads on. A store that does not answer now may do so later.
    async fn read(&mut self) -> io::Result<()> {
        match self.reader.read_on().await {
            Ok(may_be_more) => {
                self.has_read_all = !may_be_more;
                if self.reader.made.is_over() {
                    self.place = Place::Ended;
                }
            }
            Err(StoreError::Unavailable(why)) => tracing::warn!(why, "a response's stream waits for the store"),
            Err(StoreError::Fenced) => {}
            Err(error @ StoreError::Corrupt(_)) => {
                tracing::error!(%error, "a response's stream is broken off");
                return Err(io::Error::other("stored data makes no sense"));
            }
        }
        Ok(())
    }

    /// Waits for news. After a while without any, the run is asked for a sign of life that every reader of the stream gets; should
    /// that fail too, because another process has the run, a comment keeps the connection open.
    async fn sign_of_life(&mut self) -> Option<Bytes> {
        let quiet = self.quiet_since.elapsed();
        let limit = if self.nudged { self.heartbeat + Duration::from_millis(PATIENCE_MS) } else { self.heartbeat };
        if quiet < limit {
            news_or_time(&mut self.reader.watch, limit - quiet).await;
            return None;
        }
        if self.nudged {
            (self.quiet_since, self.nudged) = (Instant::now(), false);
            return Some(Bytes::from_static(b": still here\n\n"));
        }
        self.nudged = true;
        self.reader.nudge().await;
        None
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
