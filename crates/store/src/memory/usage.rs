//! Usage in memory.

use std::collections::BTreeMap;

use windlass_kernel::{RunId, Tenant};
use windlass_ports::{Day, ItemBytes, ItemScan, NodeId, RunUsage, UsageGroup, UsageQuery, UsageRow, UsageSums};

use super::writes::{MemoryRows, must};
use crate::{
    rows::{Result, UsageRows},
    usage::{Uncounted, usage_of},
};

impl UsageRows for MemoryRows {
    fn insert_uncounted(&mut self, tenant: &Tenant, run: RunId) -> Result<()> {
        must(self.uncounted.insert(run, (tenant.clone(), None)), "a run that is not counted")
    }
}

impl MemoryRows {
    pub(super) fn uncounted_usage(&self, node: NodeId, limit: usize) -> Result<Vec<RunUsage>> {
        let listed = self.uncounted.range(..).take(limit);
        let listed = listed.map(|(run, (tenant, model))| {
            let bytes = self.run_bytes(*run);
            Uncounted { tenant: tenant.clone(), run: *run, bytes, model: model.clone() }
        });
        usage_of(self, node, &listed.collect::<Vec<_>>())
    }

    /// The bytes of a run's own items. Items at positions below zero are copies from the parents.
    fn run_bytes(&self, run: RunId) -> u64 {
        let boxes = self.runs.get(&run).map(|row| [row.context, row.output]);
        let keys = boxes.into_iter().flatten().flat_map(|id| self.box_keys(id));
        let items = keys.filter(|((_, position), _)| *position >= 0).filter_map(|(_, item)| self.items.get(&item));
        items.map(|(_, item)| item.content.len() as u64).sum()
    }

    pub(super) fn add_usage(&mut self, runs: &[RunId], rows: &[UsageRow]) -> bool {
        if runs.iter().any(|run| self.uncounted.get(run).is_none()) {
            return false;
        }
        runs.iter().for_each(|run| self.uncounted.remove(run));
        for row in rows {
            let mut sums = self.usage.get(&row.key).copied().unwrap_or_default();
            sums.add(&row.sums);
            self.usage.put(row.key.clone(), sums);
        }
        true
    }

    pub(super) fn forget_usage(&mut self, before: Day) {
        let old: Vec<_> = self.usage.range(..).filter(|(key, _)| key.day < before).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.usage.remove(key));
    }

    pub(super) fn usage(&self, tenant: &Tenant, query: &UsageQuery) -> Vec<UsageGroup> {
        let mut groups: BTreeMap<_, UsageSums> = BTreeMap::new();
        for (key, sums) in self.usage.range(..).filter(|(key, _)| key.tenant == *tenant && (query.from..=query.to).contains(&key.day)) {
            let day = query.by_day.then_some(key.day);
            let agent = query.by_agent.then(|| key.agent.clone());
            groups.entry((day, agent, query.by_model.then(|| key.model.clone()))).or_default().add(sums);
        }
        let groups = groups.into_iter().map(|((day, agent, model), sums)| UsageGroup { day, agent, model, sums });
        groups.take(query.limit).collect()
    }

    pub(super) fn tenants(&self) -> Vec<Tenant> {
        self.open_runs.range(..).map(|(tenant, _)| tenant.clone()).collect()
    }

    pub(super) fn item_bytes(&self, scan: &ItemScan) -> ItemBytes {
        let is_wanted = |id| scan.after.is_none_or(|after| id > after) && scan.up_to.is_none_or(|up_to| id <= up_to);
        let mut found = ItemBytes::default();
        let mut tenants: BTreeMap<Tenant, u64> = BTreeMap::new();
        for (id, (tenant, item)) in self.items.range(..).filter(|(id, _)| is_wanted(**id)).take(scan.limit) {
            *tenants.entry(tenant.clone()).or_default() += item.content.len() as u64;
            found.items += 1;
            found.last = Some(*id);
        }
        found.tenants = tenants.into_iter().collect();
        found
    }
}
