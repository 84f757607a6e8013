//! The queue of outgoing rings. Equal rings are merged, and rings beyond a limit are dropped.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;
use windlass_ports::{NodeId, Ring};

use super::{
    WAITING_MAX,
    wire::{Batch, encode},
};

/// The queue between the callers that ring and the task that sends.
#[derive(Default)]
pub(super) struct Waiting {
    rings: Mutex<Rings>,
    some: Notify,
}

#[derive(Default)]
struct Rings {
    order: VecDeque<Ring>,
    known: BTreeSet<Ring>,
}

impl Waiting {
    /// Adds a ring. Never waits.
    pub fn put(&self, ring: Ring) {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        if rings.order.len() < WAITING_MAX && rings.known.insert(ring.clone()) {
            rings.order.push_back(ring);
            self.some.notify_one();
        }
    }

    /// Waits for rings, and takes as many as fit into one message.
    pub async fn take(&self, from: NodeId) -> String {
        loop {
            if let Some(message) = self.batch(from) {
                return message;
            }
            self.some.notified().await;
        }
    }

    /// Drops all rings, because no other process can be reached.
    pub fn clear(&self) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) = Rings::default();
    }

    fn batch(&self, from: NodeId) -> Option<String> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = Batch::new(from);
        let mut taken = 0;
        while let Some(ring) = rings.order.front() {
            let has_room = batch.add(&encode(ring));
            // A ring that fits into no message would block the queue for ever.
            if !has_room && taken > 0 {
                break;
            }
            taken += usize::from(has_room);
            if let Some(ring) = rings.order.pop_front() {
                rings.known.remove(&ring);
            }
        }
        batch.finish()
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::AgentKey;

    use super::*;
    use crate::doorbells::wire::decode;

    fn ring(agent: &str) -> Ring {
        Ring::Agent(AgentKey { tenant: "acme".into(), agent: agent.into() })
    }

    #[tokio::test]
    async fn equal_rings_are_one_and_keep_their_order() {
        let waiting = Waiting::default();
        for agent in ["b", "a", "b", "b", "c", "a"] {
            waiting.put(ring(agent));
        }
        let (from, rings) = decode(waiting.take(NodeId(7)).await.as_bytes()).unwrap();
        assert_eq!((from, rings), (NodeId(7), vec![ring("b"), ring("a"), ring("c")]));
        waiting.put(ring("b"));
        assert_eq!(decode(waiting.take(NodeId(7)).await.as_bytes()).unwrap().1, [ring("b")], "what was sent can ring again");
    }

    #[tokio::test]
    async fn too_many_are_dropped_and_the_rest_goes_out_in_several_messages() {
        let waiting = Waiting::default();
        for n in 0..2 * WAITING_MAX {
            waiting.put(ring(&format!("agent-{n:06}")));
        }
        let mut seen = Vec::new();
        while seen.len() < WAITING_MAX {
            seen.extend(decode(waiting.take(NodeId(1)).await.as_bytes()).unwrap().1);
        }
        assert!(seen.is_sorted() && seen.len() == WAITING_MAX);
        assert!(waiting.batch(NodeId(1)).is_none());
    }

    #[tokio::test]
    async fn a_ring_that_fits_no_message_blocks_no_other() {
        let waiting = Waiting::default();
        waiting.put(ring(&"x".repeat(9000)));
        waiting.put(ring("a"));
        assert_eq!(decode(waiting.take(NodeId(1)).await.as_bytes()).unwrap().1, [ring("a")]);
    }
}
