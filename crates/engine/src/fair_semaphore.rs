//! Limits the concurrent calls of a provider, and shares them fairly: tenants take turns, however many calls one of them has queued.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::oneshot;
use windlass_kernel::Tenant;

/// One semaphore per concurrency key.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    gates: Mutex<BTreeMap<String, Arc<Gate>>>,
}

impl Gates {
    /// The semaphore of a key. Its limit is the lowest of those that it was requested with.
    pub fn of(&self, line: &str, limit: usize) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(line) {
            gate.limit.fetch_min(limit.max(1), Ordering::Relaxed);
            return gate.clone();
        }
        let gate = Arc::new(Gate { limit: AtomicUsize::new(limit.max(1)), state: Mutex::default() });
        gates.insert(line.to_owned(), gate.clone());
        gate
    }
}

/// A semaphore that serves tenants in turn.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    waiting: BTreeMap<Tenant, VecDeque<oneshot::Sender<Place>>>,
    /// The tenants with queued calls, in the order in which they are served.
    turns: VecDeque<Tenant>,
}

/// A permit for one call. Dropping it passes it on to the next waiting call.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` once the permit was taken back.
    gate: Option<Arc<Gate>>,
}

impl Gate {
    /// Waits for a permit. Tenants are served round robin; within a tenant, the first to come is served first.
    pub async fn enter(self: &Arc<Self>, tenant: &Tenant) -> Place {
        let waiting = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.taken < self.limit.load(Ordering::Relaxed) {
                state.taken += 1;
                return Place { gate: Some(self.clone()) };
            }
            let (place, waiting) = oneshot::channel();
            let queue = state.waiting.entry(tenant.clone()).or_default();
            queue.push_back(place);
            if queue.len() == 1 {
                state.turns.push_back(tenant.clone());
            }
            waiting
        };
        waiting.await.expect("a gate outlives those who wait at it, and hands each a place")
    }

    /// Passes a released permit on to the next call that still waits. Without one, the permit becomes free.
    fn hand_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                // The limit may have been lowered since the permit was granted.
                let next = if state.taken > self.limit.load(Ordering::Relaxed) { None } else { state.next() };
                let Some(next) = next else {
                    state.taken -= 1;
                    return;
                };
                next
            };
            match next.send(Place { gate: Some(self.clone()) }) {
                Ok(()) => return,
                // The call that waited was cancelled. The permit is passed on to the next one.
                Err(mut place) => place.gate = None,
            }
        }
    }
}

impl State {
    fn next(&mut self) -> Option<oneshot::Sender<Place>> {
        let tenant = self.turns.pop_front()?;
        let queue = self.waiting.get_mut(&tenant)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.turns.push_back(tenant);
        }
        next
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.hand_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tenants_take_turns_whatever_one_has_queued() {
        let gate = Gates::default().of("p", 1);
        let held = gate.enter(&"a".into()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (tenant, n) in [("a", 1), ("a", 2), ("a", 3), ("b", 1)] {
            let (waiting, log) = (gate.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _place = waiting.enter(&tenant.into()).await;
                log.lock().unwrap().push(format!("{tenant}{n}"));
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "a2", "a3"]);
    }

    #[tokio::test]
    async fn of_different_limits_the_least_holds() {
        let gates = Gates::default();
        let gate = gates.of("p", 2);
        let places = [gate.enter(&"a".into()).await, gate.enter(&"a".into()).await];
        let narrow = gates.of("p", 1);
        let waiting = narrow.clone();
        let third = tokio::spawn(async move { waiting.enter(&"a".into()).await });
        tokio::task::yield_now().await;
        let [first, second] = places;
        drop(first);
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "one is still inside");
        drop(second);
        let _place = third.await.unwrap();
        assert_eq!(narrow.state.lock().unwrap().taken, 1);
    }

    #[tokio::test]
    async fn a_place_is_not_lost_on_somebody_who_left() {
        let gate = Gates::default().of("p", 1);
        let held = gate.enter(&"a".into()).await;
        let waiting = gate.clone();
        let gone = tokio::spawn(async move { drop(waiting.enter(&"a".into()).await) });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        let _place = gate.enter(&"b".into()).await;
        assert_eq!(gate.state.lock().unwrap().taken, 1);
    }
}
