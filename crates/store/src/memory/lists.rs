//! The statements for lists, in memory: every table is sorted, and a list is a scan over the runs.

use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;
use windlass_kernel::{AgentName, BoxId, ItemKind, Tenant};
use windlass_ports::{AgentSummary, INSTRUCTION_BYTES_MAX, INSTRUCTION_ITEMS_MAX, RUNS_COUNTED_MAX, RunScan, RunSet, RunStatus};

use super::writes::MemoryRows;
use crate::rows::{ListReads, Result, RunRow};

impl ListReads for MemoryRows {
    fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<Vec<RunRow>> {
        let older = self.runs.range((Unbounded, scan.below.map_or(Unbounded, Excluded))).rev().map(|(_, row)| row);
        let is_in_set = |row: &&RunRow| match &scan.set {
            RunSet::All => !row.unlisted,
            RunSet::Open => row.brief.status != RunStatus::Ended,
            RunSet::Children(parent) => row.parent.as_ref().is_some_and(|call| call.run == *parent),
            RunSet::Named(name) => !row.unlisted && row.brief.agent_name.as_ref() == Some(name),
        };
        let wanted = older.filter(|row| row.brief.agent.tenant == *tenant).filter(is_in_set);
        Ok(wanted.take(scan.limit).cloned().collect())
    }

    fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>> {
        let listed = self.runs.range(..).map(|(_, row)| row).filter(|row| row.brief.agent.tenant == *tenant && !row.unlisted);
        let mut agents: std::collections::BTreeMap<&AgentName, AgentSummary> = std::collections::BTreeMap::new();
        for row in listed {
            let Some(name) = row.brief.agent_name.as_ref().filter(|name| name.as_str() > after) else { continue };
            let agent = agents.entry(name).or_insert_with(|| AgentSummary { name: name.clone(), runs: 0, last_run_at: row.created_at });
            agent.runs = (agent.runs + 1).min(RUNS_COUNTED_MAX as u64);
            agent.last_run_at = row.created_at;
        }
        Ok(agents.into_values().take(limit).collect())
    }

    fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>> {
        let last = self.box_rows.range((id, 0)..=(id, i64::MAX)).rev().take(INSTRUCTION_ITEMS_MAX);
        let mut items = last.filter_map(|(_, item)| self.items.get(item)).filter(|(whose, _)| whose == tenant).map(|(_, row)| row);
        let found = items.find(|row| row.kind == ItemKind::Instruction);
        Ok(found.map(|row| row.content.slice(..row.content.len().min(INSTRUCTION_BYTES_MAX))))
    }
}
