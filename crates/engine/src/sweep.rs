//! The sweep: the periodic pass that finds work that is due, stranded or without an owner. With it, a lost doorbell costs time only.
//!
//! One bad row never stops a pass: each agent is loaded by a worker of its own, and a run that cannot be erased is skipped.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use windlass_kernel::{AgentKey, Tenant};
use windlass_ports::{Fact, StoreError};

use crate::{engine::Inner, repeats, retention::RetentionSweep, stored::BytesCounter, usage::UsageCounter, worker_message::WorkerMessage};

/// Runs the sweep until the engine drains.
pub(crate) async fn run(inner: Arc<Inner>) {
    // The two loops run concurrently: runs of lost owners may wait long for a worker, and deadlines must be handled meanwhile.
    tokio::join!(adopt_until_draining(&inner), run_passes(&inner));
}

async fn run_passes(inner: &Arc<Inner>) {
    let mut draining = inner.draining.subscribe();
    let pause = Duration::from_millis(inner.settings.sweep_ms);
    let mut round = BTreeSet::new();
    let mut usage = UsageCounter::default();
    let (mut retention, mut bytes) = (RetentionSweep::default(), BytesCounter::default());
    let mut all_at = tokio::time::Instant::now();
    loop {
        // The branches are polled in this order, so that a simulation of the engine is reproducible.
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            () = inner.room.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let now = tokio::time::Instant::now();
        let is_full_pass = now >= all_at;
        if is_full_pass {
            all_at = now + pause;
        }
        match pass(inner, &mut round, is_full_pass).await {
            Ok(()) => inner.meter.record(Fact::Swept),
            Err(error) => tracing::warn!(%error, "a pass of the sweep failed; the next one tries again"),
        }
        repeats::expire(inner);
        // Usage is counted before anything is erased, because a run that was only in memory is gone after that.
        if let Err(error) = usage.count(inner).await {
            tracing::warn!(%error, "the usage of ended runs could not be added up; the next pass tries again");
        }
        if let Err(error) = erase(inner).await {
            tracing::warn!(%error, "runs that are not kept could not be listed; the next pass tries again");
        }
        // A worker that ends can wake the sweep early. These passes must not read the store more often because of that.
        if is_full_pass && let Err(error) = retention.pass(inner).await {
            tracing::warn!(%error, "runs that are older than `retention` could not be listed; the next round tries again");
        }
        if is_full_pass && let Err(error) = bytes.count(inner).await {
            tracing::warn!(%error, "stored bytes could not be counted; the next pass tries again");
        }
        if is_full_pass && let Err(error) = inner.store.empty_log(inner.clock.now()).await {
            tracing::warn!(%error, "the log of the store could not be emptied of what was erased; the next pass tries again");
        }
    }
}

/// Has a worker check every agent that is due. Some agents stay due, such as one whose retried model call takes its time, so `round`
/// holds the agents that were checked already and a pass skips them. If there is no room for all, a round takes several passes, and the
/// next pass continues with the agents that were refused.
///
/// A tenant that uses up its share of the workers does not block other tenants. Finding the due agents of the others means reading all
/// that the tenant has waiting, so it happens once per sweep interval and not whenever a worker ends.
async fn pass(inner: &Arc<Inner>, round: &mut BTreeSet<AgentKey>, is_full_pass: bool) -> Result<(), StoreError> {
    let now = inner.clock.now();
    let mut page = inner.settings.sweep_page.max(1);
    let mut full: BTreeSet<Tenant> = BTreeSet::new();
    loop {
        let due = inner.store.due(now, page).await?;
        let is_last = due.len() < page;
        for agent in due {
            if round.contains(&agent) || full.contains(&agent.tenant) {
                continue;
            }
            // Without room the rest stays due, and the next worker that ends wakes the sweep.
            match inner.wake_worker(&agent) {
                true => drop(round.insert(agent)),
                false if is_full_pass && inner.workers.count() < inner.settings.workers_max => drop(full.insert(agent.tenant)),
                false => return Ok(()),
            }
        }
        if is_last {
            // Agents of a refused tenant stay in the round. For all others a new round begins.
            round.retain(|agent| full.contains(&agent.tenant));
            return Ok(());
        }
        page = page.saturating_mul(2);
    }
}

/// Erases one page of the runs that are not to be kept. Runs that cannot be erased stay the oldest, so a pass skips them; otherwise they
/// would block the erasure of all others.
async fn erase(inner: &Arc<Inner>) -> Result<(), StoreError> {
    let now = inner.clock.now();
    let mut page = inner.settings.sweep_page.max(1);
    let mut failed = BTreeSet::new();
    loop {
        let due = inner.store.erasable(now, page).await?;
        let is_last = due.len() < page;
        let fresh: Vec<_> = due.into_iter().filter(|run| !failed.contains(run)).collect();
        let tried = fresh.len();
        let failed_before = failed.len();
        for (tenant, run) in fresh {
            if let Err(error) = inner.store.erase(tenant.clone(), run).await {
                tracing::warn!(%tenant, %run, %error, "a run that is not kept could not be erased; the next pass tries again");
                failed.insert((tenant, run));
            }
        }
        if is_last || failed.len() - failed_before < tried {
            return Ok(());
        }
        page = page.saturating_mul(2);
    }
}

async fn adopt_until_draining(inner: &Arc<Inner>) {
    let mut draining = inner.draining.subscribe();
    tokio::select! {
        biased;
        _ = draining.wait_for(|draining| *draining) => {}
        () = adopt_lost(inner) => {}
    }
}

/// Takes over the runs of lost owners, at start and whenever a node is lost. Lost nodes are deleted once a whole pass has found nothing
/// that they own. A node is not deleted in the pass that finds its runs, because a worker that was sent one may fail to take it over.
async fn adopt_lost(inner: &Arc<Inner>) {
    let mut news = inner.lease.lost();
    let mut lost = Vec::new();
    let mut is_first = true;
    loop {
        let found = adopt(inner).await;
        if std::mem::take(&mut is_first) {
            inner.meter.record(Fact::RunsResumed(found));
            tracing::info!(runs = found, node = inner.node.0, "resumed the runs that lost servers had left unfinished");
        }
        if found == 0
            && !lost.is_empty()
            && let Err(error) = inner.store.bury(lost).await
        {
            tracing::warn!(%error, "lost nodes could not be forgotten; the next pass tries again");
        }
        lost = loop {
            if news.changed().await.is_err() {
                return;
            }
            let lost_now = news.borrow_and_update().clone();
            if !lost_now.is_empty() {
                break lost_now;
            }
        };
        if let Err(error) = repeats::load(inner).await {
            tracing::warn!(%error, "the open requests of lost servers could not be read; the next heartbeat tries again");
        }
    }
}

/// One pass over the runs of lost owners. Returns the number of agents found.
async fn adopt(inner: &Arc<Inner>) -> usize {
    let mut after: Option<AgentKey> = None;
    let mut found = 0;
    loop {
        let page = match inner.store.orphans(inner.node, after.clone(), inner.settings.sweep_page).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "lost owners' runs could not be listed; trying again");
                tokio::time::sleep(Duration::from_millis(inner.settings.sweep_ms)).await;
                continue;
            }
        };
        let Some(last) = page.last() else { return found };
        after = Some(last.clone());
        found += page.len();
        for agent in page {
            // The run was interrupted in the middle of its work, so this waits for room for a worker.
            inner.send_when_room(&agent, WorkerMessage::CheckStore).await;
        }
    }
}
