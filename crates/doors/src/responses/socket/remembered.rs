//! What a socket remembers: the responses made on it that are to be found nowhere else.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use windlass_kernel::RunId;

use super::held::Held;
use crate::{
    in_flight::ByteLease,
    responses::{
        object::{response_id, run_of},
        said::Trail,
    },
};

/// Responses that a socket remembers at a time.
const REMEMBERED_MAX: usize = 8;

/// Responses that a socket can be gone on from.
#[derive(Default)]
pub(super) struct Remembered {
    /// Those that are not stored, the oldest first, each with the conversation up to its end.
    held: VecDeque<(Held, Option<Trail>)>,
    /// The latest one that asked no model.
    warm: Option<WarmUp>,
    /// The items that brought tools along for the latest response: whoever goes on from it does not say them again.
    tools: Option<(RunId, Vec<Box<RawValue>>, ByteLease)>,
}

/// What a client said beforehand. It is no run: whoever goes on from it says the same and more.
pub(super) struct WarmUp {
    pub id: RunId,
    /// The response that it goes on from itself.
    pub from: Option<String>,
    pub input: Vec<Box<RawValue>>,
    /// The conversation up to its end.
    pub trail: Option<Trail>,
    /// Counts the bytes of the input.
    pub lease: ByteLease,
}

impl Remembered {
    pub fn hold(&mut self, held: Held, trail: Option<Trail>) {
        self.held.retain(|(known, _)| known.run() != held.run());
        self.held.push_back((held, trail));
        if self.held.len() > REMEMBERED_MAX {
            self.held.pop_front();
        }
    }

    /// A response goes on from another one.
    pub fn go_on(&mut self, from: RunId, next: RunId) {
        self.held.iter_mut().for_each(|(held, _)| held.is_gone_on_from(from, next));
    }

    pub fn warm_up(&mut self, warm: WarmUp) {
        self.warm = Some(warm);
    }

    /// Remembers the items that brought tools along. `lease` is what is left of the frame's.
    pub fn bring_tools(&mut self, run: RunId, items: Vec<Box<RawValue>>, mut lease: ByteLease) {
        self.tools = None;
        let bytes: usize = items.iter().map(|item| item.get().len()).sum();
        lease.shrink_to(bytes);
        // Items that an earlier frame brought were counted until just now, and so there is room for them.
        let _ = lease.grow(bytes - lease.bytes());
        self.tools = Some((run, items, lease));
    }

    /// The items that brought tools along for the response of that id.
    pub fn tools(&self, id: &str) -> &[Box<RawValue>] {
        self.tools.as_ref().filter(|(run, ..)| run_of(id) == Some(*run)).map(|(_, items, _)| items.as_slice()).unwrap_or_default()
    }

    /// The responses that are not stored.
    pub fn runs(&self) -> Vec<RunId> {
        self.held.iter().map(|(held, _)| held.run()).collect()
    }

    /// The warm-up of that id.
    pub fn warmed_up(&self, id: &str) -> Option<&WarmUp> {
        self.warm.as_ref().filter(|warm| response_id(warm.id) == id)
    }

    /// The conversation up to the end of a response.
    pub fn trail(&self, id: &str) -> Option<Trail> {
        let run = run_of(id)?;
        let held = self.held.iter().find(|(held, _)| held.run() == run).and_then(|(_, trail)| *trail);
        held.or_else(|| self.warmed_up(id)?.trail)
    }

    pub fn forget(&mut self, id: &str) {
        let Some(run) = run_of(id) else { return };
        self.held.retain(|(held, _)| held.run() != run);
        self.warm.take_if(|warm| warm.id == run);
    }
}
