//! Answers the requests of one socket, one at a time.

use std::{sync::Arc, time::Duration};

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use windlass_engine::Engine;

use super::{
    queue::ReceivedFrame,
    remembered::{Remembered, WarmUp},
    writer::{Gone, Writer},
};
use crate::{
    DoorState,
    auth::{Caller, Scope},
    error::ApiError,
    in_flight::ByteLease,
    responses::{
        compaction::Sealer,
        create::{self, CreateContext, Prepared, StartedResponse},
        error::WireError,
        join::Identity,
        object::run_of,
        project::Projection,
        reader::Reader,
        request::{Create, Frame, ITEMS_MAX, adds_tools},
        stream::{Events, StreamItem},
        wire::PendingEvents,
    },
};

pub(super) struct Session {
    state: DoorState,
    caller: Caller,
    /// The headers of the handshake. They apply to every response of the socket.
    headers: HeaderMap,
    remembered: Remembered,
    ends_at: Instant,
}

/// What answers a frame.
enum Answer {
    /// A run, and the input items that added tools to it.
    Run(Box<StartedResponse>, Vec<Box<RawValue>>),
    /// The events of a warm-up.
    WarmUp(PendingEvents),
}

impl Session {
    pub fn new(state: DoorState, caller: Caller, headers: HeaderMap, ends_at: Instant) -> Self {
        Session { state, caller, headers, remembered: Remembered::default(), ends_at }
    }

    pub fn engine(&self) -> Engine {
        self.state.engine.clone()
    }

    /// The longest time without a frame to the client.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.state.responses.heartbeat_ms.max(1))
    }

    /// Executes the request in a frame and sends its events, or an error.
    pub async fn respond(&mut self, frame: ReceivedFrame, writer: &Writer) -> Result<(), Gone> {
        let ReceivedFrame { text, mut lease } = frame;
        match self.start(&text, &mut lease).await {
            Ok(Answer::Run(started, tools)) => {
                // The run has its own copy of the frame. Only the items with tools are still needed.
                drop(text);
                lease.shrink_to(tools.iter().map(|item| item.get().len()).sum());
                self.stream(*started, tools, lease, writer).await
            }
            Ok(Answer::WarmUp(mut events)) => {
                while let Some(event) = events.pop() {
                    writer.send_text(event.frame()).await?;
                }
                Ok(())
            }
            Err(error) => {
                // Forget the response that the request tried to continue, so that the client starts over: trying again would fail again.
                if let Some(previous) = previous_of(&text) {
                    self.remembered.forget(&previous);
                }
                writer.send_text(error.frame()).await
            }
        }
    }

    async fn start(&mut self, frame: &[u8], lease: &mut ByteLease) -> Result<Answer, WireError> {
        self.caller = self.caller.renewed(&self.state)?;
        self.caller.needs(&Scope::Responses)?;
        self.state.engine.admit_request(self.caller.tenant())?;
        let Frame { mut create, generate } = Create::read_frame(frame)?;
        let mut from = create.previous.clone();
        let identity = Identity::of_frame(frame, from.as_deref().and_then(|id| self.remembered.history(id)));
        if let Some(warm) = from.as_deref().and_then(|id| self.remembered.warmed_up(id)) {
            lease.grow(warm.lease.bytes()).map_err(ApiError::from)?;
            create.input = warm.input.iter().cloned().chain(std::mem::take(&mut create.input)).collect();
            from.clone_from(&warm.from);
            self.check_size(&create.input)?;
        }
        let mut tools = from.as_deref().map(|id| self.remembered.tools(id).to_vec()).unwrap_or_default();
        create.add_tools(&tools)?;
        if create.input.iter().any(|item| adds_tools(item)) {
            tools = create.input.iter().filter(|item| adds_tools(item)).cloned().collect();
        }
        if generate && create.input.is_empty() && from.is_none() && create.conversation.is_none() {
            return Err(WireError::missing("input"));
        }
        let history = identity.history();
        let left = self.ends_at.saturating_duration_since(Instant::now());
        let context = CreateContext {
            caller: &self.caller,
            headers: &self.headers,
            create: &create,
            identity,
            from: from.as_deref(),
            own: &self.remembered.runs(),
            kept_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        };
        if generate {
            let started = create::start_or_join(&self.state, &context).await?;
            if let Some(from) = from.as_deref().and_then(run_of) {
                self.remembered.record_continuation(from, started.known.id);
            }
            return Ok(Answer::Run(Box::new(started), tools));
        }
        let Prepared { request, note } = create::prepare(&self.state, &context).await?;
        let id = self.state.engine.fresh_run();
        let sealer = Sealer::new(&self.state, self.caller.tenant());
        let mut projection = Projection::new(id, Arc::new(note), Arc::new(request.manifest), self.state.engine.now(), sealer, true);
        projection.warm_up();
        self.remembered.warm_up(WarmUp { id, from, input: create.input, history, lease: lease.take() });
        Ok(Answer::WarmUp(projection.events))
    }

    /// Applies the limits of one request to its input together with that of the warm-up.
    fn check_size(&self, input: &[Box<RawValue>]) -> Result<(), WireError> {
        let bytes_max = self.state.limits.body_bytes_max;
        let bytes: usize = input.iter().map(|item| item.get().len()).sum();
        if bytes > bytes_max {
            let message = format!("with what was said before it, the input has {bytes} bytes; {bytes_max} are allowed");
            return Err(WireError::too_large(message).at("input"));
        }
        if input.len() > ITEMS_MAX {
            let message = format!("with what was said before it, the input has {} items; {ITEMS_MAX} are allowed", input.len());
            return Err(WireError::invalid("input", message));
        }
        Ok(())
    }

    /// Streams a response to its end, and keeps what later requests need. Each event is sent before the next one is made, so a slow client
    /// costs the memory of one event.
    async fn stream(&mut self, started: StartedResponse, tools: Vec<Box<RawValue>>, lease: ByteLease, writer: &Writer) -> Result<(), Gone> {
        let StartedResponse { known, unseen, mut reader, history, .. } = started;
        let erase = Duration::from_millis(self.state.responses.erase_ms);
        let run = known.id;
        let held = (!known.note.store).then(|| self.state.holders.hold(&self.state.engine, self.caller.tenant(), known.id, erase));
        let mut events = Events::new(Reader::new(&self.state, known, true), unseen, self.state.responses.heartbeat_ms);
        // A stream that can't be completed is aborted.
        while let Some(item) = events.next().await.map_err(|_| Gone)? {
            match item {
                StreamItem::Event(event) => writer.send_text(event.frame()).await?,
                StreamItem::Silence => writer.ping().await?,
            }
        }
        reader.served();
        self.remembered.keep_tools(run, tools, lease);
        if let Some(held) = held {
            self.remembered.hold(held, history.map(|history| history.with_output(events.output())));
        }
        Ok(())
    }
}

/// The response that a frame continues, also if the rest of the frame is invalid.
fn previous_of(frame: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        previous_response_id: Option<String>,
    }
    serde_json::from_slice::<Named>(frame).ok()?.previous_response_id
}
