//! The pass that makes doorbells a matter of speed alone: it finds what is due, stranded or owned by nobody, and has it looked at.
//!
//! One bad row never stops a pass: each agent is looked at by a worker of its own, and a run that cannot be erased is passed over.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use windlass_kernel::{AgentKey, Tenant};
use windlass_ports::{CommitKind, Fact, StoreError};

use crate::{engine::Inner, note::Note, repeats, retention::RetentionSweep, stored::BytesCounter, usage::UsageCounter};

/// Looks around until the engine is told to stop.
pub(crate) async fn run(inner: Arc<Inner>) {
    // Side by side: lost runs may wait long for a worker, and deadlines must pass meanwhile.
    tokio::join!(adopt_until_draining(&inner), look_around(&inner));
}

async fn look_around(inner: &Arc<Inner>) {
    let mut draining = inner.draining.subscribe();
    let pause = Duration::from_millis(inner.settings.sweep_ms);
    let mut round = BTreeSet::new();
    let mut usage = UsageCounter::default();
    let (mut retention, mut bytes) = (RetentionSweep::default(), BytesCounter::default());
    let mut all_at = tokio::time::Instant::now();
    loop {
        // In this order whenever several are ready: a simulation of the engine is the same every time.
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            () = inner.room.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        let now = tokio::time::Instant::now();
        let looks_at_all = now >= all_at;
        if looks_at_all {
            all_at = now + pause;
        }
        match pass(inner, &mut round, looks_at_all).await {
            Ok(()) => inner.meter.record(Fact::Swept),
            Err(error) => tracing::warn!(%error, "a pass of the sweep failed; the next one tries again"),
        }
        repeats::expire(inner);
        // Before anything is erased: a run that was in memory alone is gone then.
        if let Err(error) = usage.count(inner).await {
            tracing::warn!(%error, "the usage of ended runs could not be added up; the next pass tries again");
        }
        if let Err(error) = erase(inner).await {
            tracing::warn!(%error, "runs that are not kept could not be listed; the next pass tries again");
        }
        // Workers that leave bring the sweep back early, and these two must not read more often for it.
        if looks_at_all && let Err(error) = retention.pass(inner).await {
            tracing::warn!(%error, "runs that are older than `retention` could not be listed; the next round tries again");
        }
        if looks_at_all && let Err(error) = bytes.count(inner).await {
            tracing::warn!(%error, "stored bytes could not be counted; the next pass tries again");
        }
        if looks_at_all && let Err(error) = inner.store.empty_log(inner.clock.now()).await {
            tracing::warn!(%error, "the log of the store could not be emptied of what was erased; the next pass tries again");
        }
    }
}

/// Has everything looked at that is due. Some agents stay due, such as one whose retried model call takes its time; a pass
/// looks past them, so that they hide nobody. A round takes several passes if there is no room for all: the next one goes on with
/// those who were turned away.
///
/// A tenant that has as many workers as it may have hides no other tenant. To look past it costs a look at everything it has
/// waiting, so that is done with every pause of the sweep, and not whenever a worker leaves.
async fn pass(inner: &Arc<Inner>, round: &mut BTreeSet<AgentKey>, looks_at_all: bool) -> Result<(), StoreError> {
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
            // Without room the rest stays due, and the next worker to leave brings the sweep back.
            match inner.look(&agent) {
                true => drop(round.insert(agent)),
                false if looks_at_all && inner.workers.count() < inner.settings.workers_max => drop(full.insert(agent.tenant)),
                false => return Ok(()),
            }
        }
        if is_last {
            // Who has been turned away goes on with its round; the others begin anew.
            round.retain(|agent| full.contains(&agent.tenant));
            return Ok(());
        }
        page = page.saturating_mul(2);
    }
}

/// Erases what was not to be kept, a page of it. Runs that cannot be erased stay the oldest there are: a pass looks past them, so
/// that they keep nobody else's content.
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
            inner.crash.before_commit(CommitKind::Erase);
            match inner.store.erase(tenant.clone(), run).await {
                Ok(()) => inner.crash.after_commit(CommitKind::Erase),
                Err(error) => {
                    tracing::warn!(%tenant, %run, %error, "a run that is not kept could not be erased; the next pass tries again");
                    failed.insert((tenant, run));
                }
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

/// Takes over what lost owners left, at start and whenever one is lost. Who has left nothing is buried, so that nobody looks for
/// it again; not before a whole pass has found nothing, for what is only told to a worker may fail to be done.
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
            let told = news.borrow_and_update().clone();
            if !told.is_empty() {
                break told;
            }
        };
        if let Err(error) = repeats::load(inner).await {
            tracing::warn!(%error, "the open requests of lost servers could not be read; the next heartbeat tries again");
        }
    }
}

/// One pass over what lost owners left. Returns how many agents there were.
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
            // A run that was in the middle of something waits for nobody: room is waited for.
            inner.tell_when_room(&agent, Note::Look).await;
        }
    }
}
