//! What is erased from the tables, and when.

use std::collections::BTreeSet;

use windlass_kernel::{BoxId, CallNumber, ItemId, RunId, Tenant, Timestamp};
use windlass_ports::MessageId;

use super::writes::MemoryRows;
use crate::rows::{CallRow, Erasure, NO_MANIFEST, Result};

impl MemoryRows {
    /// Runs whose time to be erased has passed, oldest first.
    pub(super) fn erasable(&self, now: Timestamp, limit: usize) -> Result<Vec<(Tenant, RunId)>> {
        let due = self.erasable.range(..).take_while(|((at, _), _)| *at <= now).take(limit);
        Ok(due.map(|((_, run), tenant)| (tenant.clone(), *run)).collect())
    }

    pub(super) fn erase(&mut self, erasure: &Erasure) -> Result<()> {
        let run = erasure.run;
        let mut items = self.erase_boxes(&erasure.gone);
        items.extend(self.erase_calls(run));
        items.extend(self.erase_messages(erasure)?);
        let kept: BTreeSet<ItemId> = erasure.kept.iter().flat_map(|id| self.box_keys(*id)).map(|(_, item)| item).collect();
        items.difference(&kept).for_each(|item| self.remove_item(item));
        let numbers: Vec<_> = self.journal.range((run, 0)..=(run, u64::MAX)).map(|(key, _)| *key).collect();
        numbers.iter().for_each(|key| self.journal.remove(key));
        if let (Some((tenant, _)), Some(model)) = (self.uncounted.get(&run).cloned(), &erasure.model) {
            self.uncounted.put(run, (tenant, Some(model.clone())));
        }
        self.erase_interrupts(run);
        self.erase_answers(run, &erasure.agent.tenant);
        erasure.manifest.into_iter().for_each(|hash| self.release_manifest(&erasure.agent.tenant, hash));
        self.change_run(run, |row| {
            (row.note, row.deliverable, row.erase_ms, row.lineage.parent_step) = (None, None, None, None);
            row.manifest = NO_MANIFEST;
            row.unlisted = true;
        })
    }

    pub(super) fn box_keys(&self, id: BoxId) -> Vec<((BoxId, i64), ItemId)> {
        self.box_rows.range((id, i64::MIN)..=(id, i64::MAX)).map(|(key, item)| (*key, *item)).collect()
    }

    /// Returns the items that belonged to the boxes. Items at positions below zero are copies from the parents.
    pub(super) fn erase_boxes(&mut self, gone: &[BoxId]) -> BTreeSet<ItemId> {
        let mut items = BTreeSet::new();
        for id in gone {
            for (key, item) in self.box_keys(*id) {
                self.box_rows.remove(&key);
                items.extend(Some(item).filter(|_| key.1 >= 0));
            }
            self.boxes.remove(id);
        }
        items
    }

    pub(super) fn erase_calls(&mut self, run: RunId) -> Vec<ItemId> {
        let calls = self.calls.range((run, CallNumber(0))..=(run, CallNumber(u32::MAX)));
        let calls: Vec<CallRow> = calls.map(|(_, row)| row.clone()).collect();
        for row in &calls {
            self.unindex_call(row);
            self.calls.remove(&(run, row.call));
        }
        calls.into_iter().flat_map(|row| [Some(row.item), row.result]).flatten().collect()
    }

    fn erase_messages(&mut self, erasure: &Erasure) -> Result<Vec<ItemId>> {
        let agent = &erasure.agent;
        let all = self.inbox.range((agent.clone(), MessageId(0))..=(agent.clone(), MessageId(u64::MAX)));
        let of_run: Vec<(MessageId, Option<ItemId>)> =
            all.filter(|(_, row)| row.run == Some(erasure.run)).map(|((_, id), row)| (*id, row.item)).collect();
        of_run.iter().try_for_each(|(id, _)| self.change_message(agent, *id, |row| (row.item, row.reason) = (None, None)))?;
        Ok(of_run.into_iter().filter_map(|(_, item)| item).collect())
    }
}
