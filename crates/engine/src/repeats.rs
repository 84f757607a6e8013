//! Whether a repeated create request joins the run of the first one.
//!
//! A repetition has the same token and an equal canonical body. It joins when it is marked as a retry and the earlier reader is gone
//! without an answer, or when the server of the first request was lost or stopped while the request was open. A client that closed its
//! connection itself chose to leave, so its next unmarked request starts a new run. Doors handle requests with idempotency keys and with
//! Codex's turn ids themselves; such requests never come here.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use windlass_kernel::{EndReason, Phase, RunId, Tenant, Timestamp};
use windlass_ports::{LostRequest, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash, RunView, StoreError};

use crate::{
    api::EngineError,
    engine::{Engine, Inner},
    readers::{JoinGuard, lock},
};

/// Open requests of lost servers that are read at once. A server has fewer connections than that.
const LOST_MAX: usize = 16_384;

/// Whether a client marks a request as a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryMark {
    /// The request has no retry mark.
    Unmarked,
    /// The request is marked as a retry (`x-stainless-retry-count` of OpenAI's clients).
    Marked,
}

/// Why a repeated request may join a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JoinRule {
    /// The request is marked as a retry, and the earlier reader is gone.
    Marked,
    /// The server of the first request gave its last heartbeat then.
    ServerLost(Timestamp),
}

/// Requests that lost servers left open and whose client did not leave by itself, for the join window from when they became known.
#[derive(Default)]
pub(crate) struct LostRequests {
    by_hash: BTreeMap<(Tenant, RequestHash), Vec<Lost>>,
}

#[derive(Clone)]
struct Lost {
    request: LostRequest,
    until: Instant,
}

impl LostRequests {
    fn insert(&mut self, request: LostRequest, until: Instant) {
        let same_hash = self.by_hash.entry((request.request.tenant.clone(), request.request.hash)).or_default();
        // The window counts from the first time that the request became known here.
        if same_hash.iter().all(|known| known.request.request != request.request) {
            same_hash.push(Lost { request, until });
        }
    }

    fn find(&self, tenant: &Tenant, hash: RequestHash, now: Instant) -> Vec<LostRequest> {
        let found = self.by_hash.get(&(tenant.clone(), hash)).into_iter().flatten();
        found.filter(|lost| lost.until > now).map(|lost| lost.request.clone()).collect()
    }

    /// Removes a request.
    pub fn remove(&mut self, request: &OpenRequest) {
        self.retain(|lost| lost.request.request.run != request.run);
    }

    /// Removes and returns the requests whose window is over.
    pub fn expired(&mut self, now: Instant) -> Vec<OpenRequest> {
        let all = self.by_hash.values().flatten();
        let expired = all.filter(|lost| lost.until <= now).map(|lost| lost.request.request.clone()).collect();
        self.retain(|lost| lost.until > now);
        expired
    }

    fn retain(&mut self, keeps: impl Fn(&Lost) -> bool) {
        self.by_hash.retain(|_, same_hash| {
            same_hash.retain(&keeps);
            !same_hash.is_empty()
        });
    }
}

impl Engine {
    /// Finds the run that a repeated create request joins, and reserves it for this request. Waits until the open requests of servers
    /// that were lost before this one started are known.
    pub async fn join_repeated(
        &self,
        tenant: &Tenant,
        hash: RequestHash,
        mark: RetryMark,
    ) -> Result<Option<(RunId, JoinGuard)>, EngineError> {
        let readers = &self.inner().readers;
        self.ready().await;
        let lost = lock(&readers.lost).find(tenant, hash, Instant::now());
        for LostRequest { request, lost_at } in lost {
            if let Some(joined) = self.join(request, JoinRule::ServerLost(lost_at)).await? {
                return Ok(Some(joined));
            }
        }
        if mark == RetryMark::Unmarked {
            return Ok(None);
        }
        for request in self.views().open_requests(tenant, hash).await? {
            if let Some(joined) = self.join(request, JoinRule::Marked).await? {
                return Ok(Some(joined));
            }
        }
        Ok(None)
    }

    /// Waits until requests can be served.
    pub async fn ready(&self) {
        let _ = self.inner().readers.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Whether requests can be served: the open requests of lost servers are known.
    pub fn is_ready(&self) -> bool {
        *self.inner().readers.loaded.borrow()
    }

    async fn join(&self, request: OpenRequest, rule: JoinRule) -> Result<Option<(RunId, JoinGuard)>, EngineError> {
        let inner = self.inner();
        let Some(guard) = self.reserve_join(&request.tenant, &format!("run:{}", request.run)) else { return Ok(None) };
        let view = self.views().run(&request.tenant, request.run).await?;
        if !view.is_some_and(|view| is_joinable(&view, rule, inner.settings.join_ms)) || !self.wait_until_unread(request.run).await {
            return Ok(None);
        }
        // What is recorded of the earlier reader applies to that reader alone, and must not be written after this request has joined.
        if request.node == inner.node {
            inner.store.flush_readers().await?;
        }
        // Another server may be handling a repetition of the same request at this moment.
        if !inner.store.adopt_request(request.clone(), inner.node).await? {
            inner.readers.forget(&request);
            return Ok(None);
        }
        inner.readers.forget(&request);
        tracing::info!(tenant = %request.tenant, run = %request.run, ?rule, "a repeated request joins its run");
        Ok(Some((request.run, guard)))
    }
}

/// Whether a run has a result for a client that repeats its request. A run that failed before it started any call is worth a new attempt.
/// A run that started a call is not repeated, because the call may have been a write.
fn is_joinable(view: &RunView, rule: JoinRule, join_ms: u64) -> bool {
    let Phase::Ended { reason, .. } = &view.state.phase else { return view.note.is_some() };
    let has_failed = matches!(reason, EndReason::ModelFailed(_) | EndReason::Stopped | EndReason::Abandoned);
    let window = i64::try_from(join_ms).unwrap_or(i64::MAX);
    let is_recent = match rule {
        JoinRule::Marked => true,
        JoinRule::ServerLost(lost_at) => view.ended_at.is_some_and(|ended| ended.0 >= lost_at.0.saturating_sub(window)),
    };
    view.note.is_some() && is_recent && (!has_failed || view.state.calls_used > 0)
}

/// Reads the open requests of servers that were lost before this one started, until the store has answered.
pub(crate) async fn load_at_start(inner: Arc<Inner>) {
    while let Err(error) = load(&inner).await {
        tracing::warn!(%error, "the open requests of lost servers could not be read; trying again");
        tokio::time::sleep(Duration::from_millis(inner.settings.sweep_ms)).await;
    }
    inner.readers.loaded.send_replace(true);
}

/// Reads the open requests of lost servers.
pub(crate) async fn load(inner: &Inner) -> Result<(), StoreError> {
    let lost = inner.store.lost_requests(inner.node, LOST_MAX).await?;
    if lost.len() == LOST_MAX {
        tracing::warn!(limit = LOST_MAX, "more open requests of lost servers than are read: repetitions of the others start new runs");
    }
    let until = Instant::now() + Duration::from_millis(inner.settings.join_ms);
    if !lost.is_empty() {
        tracing::info!(requests = lost.len(), "requests of lost servers can be joined");
    }
    for request in lost {
        match request.request.left_at {
            None => lock(&inner.readers.lost).insert(request, until),
            Some(_) if inner.readers.has_left(&request.request) => {}
            Some(_) => inner.readers.keep_left(request.request, until),
        }
    }
    Ok(())
}

/// Removes requests whose join window is over, and records that.
pub(crate) fn expire(inner: &Inner) {
    for request in inner.readers.expired(Instant::now()) {
        inner.store.record_reader(ReaderRecord { request, outcome: ReaderOutcome::Closed });
    }
}
