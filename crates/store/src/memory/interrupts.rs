//! Interrupts in memory.

use std::collections::BTreeMap;

use windlass_kernel::{Cause, RunId, Tenant};
use windlass_ports::{ClosedInterrupt, InterruptId, InterruptScan, InterruptView, StoreTotals};

use super::writes::{MemoryRows, must};
use crate::rows::{InterruptChange, InterruptReads, InterruptRows, Result, missing_row};

/// Whether a scan lists an interrupt.
fn is_listed(row: &InterruptView, scan: &InterruptScan) -> bool {
    let agent = row.agent_name.as_ref().unwrap_or(&row.agent.agent);
    (scan.with_closed || row.closed.is_none())
        && scan.cause.is_none_or(|cause| row.interrupt.cause == cause)
        && scan.agent.as_ref().is_none_or(|wanted| wanted == agent)
        && scan.run.is_none_or(|run| row.run == run)
        && scan.after.is_none_or(|after| (row.created_at, row.id()) > after)
}

impl InterruptReads for MemoryRows {
    fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>> {
        let listed = self.interrupts.range(..).map(|(_, row)| row).filter(|row| row.agent.tenant == *tenant && is_listed(row, scan));
        let mut listed: Vec<&InterruptView> = listed.collect();
        listed.sort_unstable_by_key(|row| (row.created_at, row.id()));
        Ok(listed.into_iter().take(scan.limit).cloned().collect())
    }

    fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>> {
        Ok(self.interrupts.get(&id).filter(|row| row.agent.tenant == *tenant).cloned())
    }
}

impl InterruptRows for MemoryRows {
    fn insert_interrupt(&mut self, row: &InterruptView) -> Result<()> {
        must(self.interrupts.insert(row.id(), row.clone()), "an interrupt")
    }

    fn change_interrupt(&mut self, id: InterruptId, change: &InterruptChange) -> Result<()> {
        let open = self.interrupts.get(&id).filter(|row| row.closed.is_none()).cloned();
        let mut row = open.ok_or_else(|| missing_row("an interrupt that changes"))?;
        change.apply(&mut row);
        self.interrupts.put(id, row);
        Ok(())
    }

    fn close_interrupts(&mut self, run: RunId, closed: &ClosedInterrupt) -> Result<()> {
        let open: Vec<InterruptView> = self.interrupts_of(run).filter(|row| row.closed.is_none()).cloned().collect();
        for row in open {
            self.interrupts.put(row.id(), InterruptView { closed: Some(closed.clone()), ..row });
        }
        Ok(())
    }
}

impl MemoryRows {
    fn interrupts_of(&self, run: RunId) -> impl Iterator<Item = &InterruptView> {
        let ids = InterruptId { run, number: 0 }..=InterruptId { run, number: u64::MAX };
        self.interrupts.range(ids).map(|(_, row)| row)
    }

    /// Deletes the interrupts of a run.
    pub(super) fn erase_interrupts(&mut self, run: RunId) {
        let ids: Vec<InterruptId> = self.interrupts_of(run).map(InterruptView::id).collect();
        ids.iter().for_each(|id| self.interrupts.remove(id));
    }

    /// The open interrupts. The other numbers are those of databases.
    pub(super) fn totals(&self) -> StoreTotals {
        let open = self.interrupts.range(..).map(|(_, row)| row).filter(|row| row.closed.is_none());
        let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
        let mut oldest = None;
        for row in open {
            *causes.entry(row.interrupt.cause).or_default() += 1;
            oldest = Some(oldest.map_or(row.created_at, |at| row.created_at.min(at)));
        }
        StoreTotals { open_interrupts: causes.into_iter().collect(), oldest_interrupt: oldest, ..StoreTotals::default() }
    }
}
