//! Erasing a whole tenant. In memory one batch is enough.

use windlass_kernel::Tenant;
use windlass_ports::{RunStatus, TenantErasure};

use super::{table::Table, writes::MemoryRows};
use crate::rows::{Reads, Result};

/// Removes the rows of a tenant. Returns how many there were.
fn clear<K: Ord + Clone, V: Clone>(table: &mut Table<K, V>, is_own: impl Fn(&K, &V) -> bool) -> u64 {
    let keys: Vec<K> = table.range(..).filter(|(key, value)| is_own(key, value)).map(|(key, _)| key.clone()).collect();
    keys.iter().for_each(|key| table.remove(key));
    keys.len() as u64
}

impl MemoryRows {
    pub(super) fn erase_tenant(&mut self, tenant: &Tenant) -> Result<TenantErasure> {
        let open = self.open_runs(tenant)?;
        if open > 0 {
            return Ok(TenantErasure::OpenRuns(open));
        }
        let of_tenant = self.runs.range(..).filter(|(_, row)| row.brief.agent.tenant == *tenant && row.brief.status == RunStatus::Ended);
        let runs: Vec<_> = of_tenant.map(|(_, row)| row.clone()).collect();
        runs.iter().for_each(|row| self.forget(row));
        let mut rows = runs.len() as u64;
        for run in runs.iter().map(|row| row.brief.run) {
            self.uncounted.remove(&run);
        }
        let items: Vec<_> = self.items.range(..).filter(|(_, (whose, _))| whose == tenant).map(|(id, _)| *id).collect();
        items.iter().for_each(|item| self.remove_item(item));
        rows += items.len() as u64;
        let boxes: Vec<_> = self.boxes.range(..).filter(|(_, row)| row.tenant == *tenant).map(|(id, _)| *id).collect();
        for id in &boxes {
            self.box_keys(*id).iter().for_each(|(key, _)| self.box_rows.remove(key));
            self.boxes.remove(id);
            self.children.remove(id);
            self.ownerless.remove(id);
        }
        rows += boxes.len() as u64;
        let ended: Vec<_> = self.conversations.range(..).filter(|(_, row)| row.tenant == *tenant).map(|(id, _)| *id).collect();
        rows += clear(&mut self.conversation_parts, |(id, _), _| ended.contains(id));
        rows += clear(&mut self.conversations, |_, row| row.tenant == *tenant);
        rows += clear(&mut self.heads, |agent, _| agent.tenant == *tenant);
        rows += clear(&mut self.inbox, |(agent, _), _| agent.tenant == *tenant);
        rows += clear(&mut self.pending, |(agent, _), _| agent.tenant == *tenant);
        rows += clear(&mut self.takers, |(whose, _), _| whose == tenant);
        rows += clear(&mut self.manifests, |(whose, _), _| whose == tenant);
        rows += clear(&mut self.pinned, |(whose, _), _| whose == tenant);
        rows += clear(&mut self.answers, |(whose, _), _| whose == tenant);
        rows += clear(&mut self.answers_of, |(_, whose, _), _| whose == tenant);
        rows += clear(&mut self.requests, |(whose, ..), _| whose == tenant);
        rows += clear(&mut self.outbox, |_, row| row.agent.tenant == *tenant);
        rows += clear(&mut self.usage, |key, _| key.tenant == *tenant);
        rows += clear(&mut self.open_runs, |whose, _| whose == tenant);
        Ok(TenantErasure::Erased { rows, next: None })
    }
}
