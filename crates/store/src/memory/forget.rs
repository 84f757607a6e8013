//! Forgetting runs without a trace: where memory has no other runs, it must not grow with every run that ever existed.

use std::collections::BTreeSet;

use windlass_kernel::{AgentKey, BoxId, ItemId, RunId, Tenant, Timestamp};
use windlass_ports::{MessageId, RunStatus};

use super::{
    MemoryStore,
    writes::{MemoryRows, count},
};
use crate::rows::{NO_MANIFEST, Result, Rows, RunRow};

impl MemoryStore {
    /// Deletes an ended run with its skeleton. Content that other runs read stays until they are forgotten, too.
    pub(crate) fn forget(&self, tenant: &Tenant, run: RunId) -> Result<()> {
        self.change(|rows| match rows.runs.get(&run).cloned() {
            Some(row) if row.brief.agent.tenant == *tenant && row.brief.status == RunStatus::Ended => {
                rows.forget(&row);
                Ok(())
            }
            Some(_) | None => Ok(()),
        })
    }

    /// Whether a run exists.
    pub(crate) fn has_run(&self, run: RunId) -> Result<bool> {
        self.look(|rows| Ok(rows.runs.get(&run).is_some()))
    }

    /// Whether a run exists and belongs to the agent.
    pub(crate) fn has_run_of(&self, run: RunId, agent: &AgentKey) -> Result<bool> {
        self.look(|rows| Ok(rows.runs.get(&run).is_some_and(|row| row.brief.agent == *agent)))
    }

    /// Whether a box exists.
    pub(crate) fn has_box(&self, id: BoxId) -> Result<bool> {
        self.look(|rows| Ok(rows.boxes.get(&id).is_some()))
    }

    /// The bytes of all content.
    pub(crate) fn bytes(&self) -> Result<u64> {
        self.look(|rows| Ok(rows.bytes))
    }

    /// The number of rows in all tables.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.change(|rows| Ok(rows.count())).unwrap()
    }

    /// Records that a run of another store inherits the calls of a run here. If a run has inherited them before, it is returned.
    pub(crate) fn give_calls(&self, tenant: &Tenant, abandoned: RunId, to: RunId) -> Result<Option<RunId>> {
        self.change(|rows| {
            let key = (tenant.clone(), abandoned);
            if let Some(taker) = rows.takers.get(&key).filter(|taker| **taker != to) {
                return Ok(Some(*taker));
            }
            rows.takers.put(key, to);
            Ok(None)
        })
    }

    /// Undoes `give_calls`, because the run that was to inherit the calls was not recorded.
    pub(crate) fn undo_give_calls(&self, tenant: &Tenant, abandoned: RunId) -> Result<()> {
        self.change(|rows| {
            rows.takers.remove(&(tenant.clone(), abandoned));
            Ok(())
        })
    }

    /// Records that the follow-up of a run has ended, in this store or another one.
    pub(crate) fn release(&self, tenant: &Tenant, run: RunId, now: Timestamp) -> Result<()> {
        self.change(|rows| rows.release_run(tenant, run, now))
    }

    /// The run that inherited a run's calls, in this store or another one.
    pub(crate) fn taker(&self, tenant: &Tenant, abandoned: RunId) -> Result<Option<RunId>> {
        self.look(|rows| Ok(rows.takers.get(&(tenant.clone(), abandoned)).copied()))
    }
}

impl MemoryRows {
    pub(super) fn forget(&mut self, row: &RunRow) {
        let (run, agent) = (row.brief.run, &row.brief.agent);
        self.forget_rows(row);
        let mut items: BTreeSet<ItemId> = self.erase_calls(run).into_iter().collect();
        let messages = self.inbox.range((agent.clone(), MessageId(0))..=(agent.clone(), MessageId(u64::MAX)));
        let messages: Vec<_> = messages.map(|(key, message)| (key.clone(), message.clone())).collect();
        for (key, message) in messages {
            self.inbox.remove(&key);
            self.pending.remove(&key);
            items.extend(message.item);
            message.call.into_iter().for_each(|call| self.reports.remove(&(run, call, message.kind, message.retry)));
        }
        for id in [row.output, row.context] {
            self.ownerless.put(id, ());
        }
        self.drop_free_boxes(row.output);
        let kept = [row.output, row.context].into_iter().flat_map(|id| self.box_keys(id));
        let kept: BTreeSet<ItemId> = kept.map(|(_, item)| item).collect();
        items.difference(&kept).for_each(|item| self.remove_item(item));
    }

    fn forget_rows(&mut self, row: &RunRow) {
        let (run, agent, tenant) = (row.brief.run, &row.brief.agent, &row.brief.agent.tenant);
        self.change_run(run, |row| row.erase_ms = None).ok();
        self.runs.remove(&run);
        self.ordinals.remove(&(agent.clone(), row.brief.ordinal));
        self.heads.remove(agent);
        self.takers.remove(&(tenant.clone(), run));
        row.takes.into_iter().for_each(|abandoned| self.takers.remove(&(tenant.clone(), abandoned)));
        if let Some(key) = &row.dedupe {
            self.dedupes.remove(&(tenant.clone(), key.clone()));
        }
        self.erase_interrupts(run);
        self.erase_answers(run, tenant);
        let numbers: Vec<_> = self.journal.range((run, 0)..=(run, u64::MAX)).map(|(key, _)| *key).collect();
        numbers.iter().for_each(|key| self.journal.remove(key));
        let batches: Vec<_> = self.deltas.range((run, 0)..=(run, u32::MAX)).map(|(key, _)| *key).collect();
        batches.iter().for_each(|key| self.deltas.remove(key));
        if row.manifest != NO_MANIFEST {
            self.release_manifest(tenant, row.manifest);
        }
    }

    /// Deletes a box that belongs to no run and that no box is made from. Then the same for its parent.
    fn drop_free_boxes(&mut self, from: BoxId) {
        let mut next = Some(from);
        while let Some(id) = next.take() {
            if self.children.get(&id).is_some() || self.ownerless.get(&id).is_none() {
                return;
            }
            for (key, item) in self.box_keys(id) {
                self.box_rows.remove(&key);
                if key.1 >= 0 {
                    self.remove_item(&item);
                }
            }
            next = self.boxes.get(&id).and_then(|row| row.parent).map(|parent| parent.id);
            self.boxes.remove(&id);
            self.ownerless.remove(&id);
            if let Some(parent) = next {
                count(&mut self.children, parent, -1);
            }
        }
    }
}
