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
pub(crate) struct FairSemaphores {
    semaphores: Mutex<BTreeMap<String, Arc<FairSemaphore>>>,
}

impl FairSemaphores {
    /// The semaphore of a key. Its limit is the lowest of those that it was requested with.
    pub fn of(&self, concurrency_key: &str, limit: usize) -> Arc<FairSemaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = semaphores.get(concurrency_key) {
            semaphore.limit.fetch_min(limit.max(1), Ordering::Relaxed);
            return semaphore.clone();
        }
        let semaphore = Arc::new(FairSemaphore { limit: AtomicUsize::new(limit.max(1)), state: Mutex::default() });
        semaphores.insert(concurrency_key.to_owned(), semaphore.clone());
        semaphore
    }
}

/// A semaphore that serves tenants in turn.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    limit: AtomicUsize,
    state: Mutex<SemaphoreState>,
}

#[derive(Debug, Default)]
struct SemaphoreState {
    in_use: usize,
    waiting: BTreeMap<Tenant, VecDeque<oneshot::Sender<Permit>>>,
    /// The tenants with queued calls, in the order in which they are served.
    turns: VecDeque<Tenant>,
}

/// A permit for one call. Dropping it passes it on to the next waiting call.
#[derive(Debug)]
pub(crate) struct Permit {
    /// `None` once the permit was taken back.
    semaphore: Option<Arc<FairSemaphore>>,
}

impl FairSemaphore {
    /// Waits for a permit. Tenants are served round robin; within a tenant, the first to come is served first.
    pub async fn acquire(self: &Arc<Self>, tenant: &Tenant) -> Permit {
        let waiting = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.in_use < self.limit.load(Ordering::Relaxed) {
                state.in_use += 1;
                return Permit { semaphore: Some(self.clone()) };
            }
            let (permit, waiting) = oneshot::channel();
            let queue = state.waiting.entry(tenant.clone()).or_default();
            queue.push_back(permit);
            if queue.len() == 1 {
                state.turns.push_back(tenant.clone());
            }
            waiting
        };
        waiting.await.expect("a gate outlives those who wait at it, and hands each a place")
    }

    /// Passes a released permit on to the next call that still waits. Without one, the permit becomes free.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                // The limit may have been lowered since the permit was granted.
                let next = if state.in_use > self.limit.load(Ordering::Relaxed) { None } else { state.next() };
                let Some(next) = next else {
                    state.in_use -= 1;
                    return;
                };
                next
            };
            match next.send(Permit { semaphore: Some(self.clone()) }) {
                Ok(()) => return,
                // The call that waited was cancelled. The permit is passed on to the next one.
                Err(mut permit) => permit.semaphore = None,
            }
        }
    }
}

impl SemaphoreState {
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
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

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(semaphore) = self.semaphore.take() {
            semaphore.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tenants_take_turns_whatever_one_has_queued() {
        let semaphore = FairSemaphores::default().of("p", 1);
        let first = semaphore.acquire(&"a".into()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (tenant, n) in [("a", 1), ("a", 2), ("a", 3), ("b", 1)] {
            let (waiting, log) = (semaphore.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _permit = waiting.acquire(&tenant.into()).await;
                log.lock().unwrap().push(format!("{tenant}{n}"));
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "a2", "a3"]);
    }

    #[tokio::test]
    async fn the_lowest_of_several_limits_holds() {
        let semaphores = FairSemaphores::default();
        let semaphore = semaphores.of("p", 2);
        let permits = [semaphore.acquire(&"a".into()).await, semaphore.acquire(&"a".into()).await];
        let limited = semaphores.of("p", 1);
        let waiting = limited.clone();
        let third = tokio::spawn(async move { waiting.acquire(&"a".into()).await });
        tokio::task::yield_now().await;
        let [first, second] = permits;
        drop(first);
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "one permit is still in use");
        drop(second);
        let _permit = third.await.unwrap();
        assert_eq!(limited.state.lock().unwrap().in_use, 1);
    }

    #[tokio::test]
    async fn a_permit_is_not_lost_on_a_cancelled_waiter() {
        let semaphore = FairSemaphores::default().of("p", 1);
        let first = semaphore.acquire(&"a".into()).await;
        let waiting = semaphore.clone();
        let gone = tokio::spawn(async move { drop(waiting.acquire(&"a".into()).await) });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(first);
        let _permit = semaphore.acquire(&"b".into()).await;
        assert_eq!(semaphore.state.lock().unwrap().in_use, 1);
    }
}
