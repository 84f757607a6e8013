//! The state that a socket keeps between its requests: responses that only this socket can continue.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use windlass_kernel::RunId;

use super::holds::ResponseHold;
use crate::{
    in_flight::ByteLease,
    responses::{
        object::{response_id, run_of},
        request_identity::HistoryHash,
    },
};

/// How many responses with `store: false` a socket keeps.
const REMEMBERED_MAX: usize = 8;

/// The responses that later requests of the socket may continue.
#[derive(Default)]
pub(super) struct Remembered {
    /// Responses with `store: false`, oldest first, each with the hash of the conversation up to its end.
    held: VecDeque<(ResponseHold, Option<HistoryHash>)>,
    /// The latest warm-up.
    warm: Option<WarmUp>,
    /// The input items that added tools to the latest response. Requests that continue it do not send them again.
    tools: Option<(RunId, Vec<Box<RawValue>>, ByteLease)>,
}

/// A request with `generate: false`, which only sends its input in advance. It starts no run: its input is prepended to that of the request
/// that continues it.
pub(super) struct WarmUp {
    pub id: RunId,
    /// The response that the warm-up itself continues.
    pub from: Option<String>,
    pub input: Vec<Box<RawValue>>,
    /// The hash of the conversation up to the end of its input.
    pub history: Option<HistoryHash>,
    /// Counts the bytes of the input.
    pub lease: ByteLease,
}

impl Remembered {
    pub fn hold(&mut self, held: ResponseHold, history: Option<HistoryHash>) {
        self.held.retain(|(known, _)| known.run() != held.run());
        self.held.push_back((held, history));
        if self.held.len() > REMEMBERED_MAX {
            self.held.pop_front();
        }
    }

    /// Records that the response `next` continues `from`.
    pub fn record_continuation(&mut self, from: RunId, next: RunId) {
        self.held.iter_mut().for_each(|(held, _)| held.record_continuation(from, next));
    }

    pub fn warm_up(&mut self, warm: WarmUp) {
        self.warm = Some(warm);
    }

    /// Keeps the items that added tools to the response. `lease` is the rest of the frame's lease.
    pub fn keep_tools(&mut self, run: RunId, items: Vec<Box<RawValue>>, mut lease: ByteLease) {
        self.tools = None;
        let bytes: usize = items.iter().map(|item| item.get().len()).sum();
        lease.shrink_to(bytes);
        // Items of an earlier frame were counted by the lease that was just dropped, so there is room for them.
        let _ = lease.grow(bytes - lease.bytes());
        self.tools = Some((run, items, lease));
    }

    /// The items that added tools to the response with this id.
    pub fn tools(&self, id: &str) -> &[Box<RawValue>] {
        self.tools.as_ref().filter(|(run, ..)| run_of(id) == Some(*run)).map(|(_, items, _)| items.as_slice()).unwrap_or_default()
    }

    /// The responses with `store: false` that the socket keeps.
    pub fn runs(&self) -> Vec<RunId> {
        self.held.iter().map(|(held, _)| held.run()).collect()
    }

    /// The warm-up with this response id.
    pub fn warmed_up(&self, id: &str) -> Option<&WarmUp> {
        self.warm.as_ref().filter(|warm| response_id(warm.id) == id)
    }

    /// The hash of the conversation up to the end of a response, if the socket keeps that response.
    pub fn history(&self, id: &str) -> Option<HistoryHash> {
        let run = run_of(id)?;
        let held = self.held.iter().find(|(held, _)| held.run() == run).and_then(|(_, history)| *history);
        held.or_else(|| self.warmed_up(id)?.history)
    }

    pub fn forget(&mut self, id: &str) {
        let Some(run) = run_of(id) else { return };
        self.held.retain(|(held, _)| held.run() != run);
        self.warm.take_if(|warm| warm.id == run);
    }
}
