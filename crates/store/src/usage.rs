//! The usage that is counted of an ended run, the same for all databases.

use windlass_kernel::{RunId, Tenant};
use windlass_ports::{Day, NodeId, RunUsage, RunView, StoreError, UsageKey, UsageSums};

use crate::{
    reading,
    rows::{Reads, Result},
};

/// An ended run that is in no sum, with the bytes of its content.
#[derive(Clone, Debug)]
pub(crate) struct Uncounted {
    pub tenant: Tenant,
    pub run: RunId,
    pub bytes: u64,
    /// The model, if the run's manifest was erased.
    pub model: Option<String>,
}

/// The most that one run adds to a sum. Nothing checks what providers report, and a sum that overflowed could not be read any more.
const RUN_MAX: u64 = 1 << 48;

/// What each listed run adds to the sums. All reads are made before any of them may fail, so that a remote database can answer them in one
/// batch. A run that can't be read counts as a run, so that it does not stay on the list.
pub(crate) fn usage_of<R: Reads + ?Sized>(rows: &R, node: NodeId, listed: &[Uncounted]) -> Result<Vec<RunUsage>> {
    let found: Vec<Result<Option<RunView>>> = listed.iter().map(|row| reading::run(rows, &row.tenant, row.run)).collect();
    let counted = listed.iter().zip(found).map(|(row, found)| match found {
        Ok(view) => Ok(run_usage(node, row, view.as_ref())),
        Err(StoreError::Corrupt(_)) => Ok(run_usage(node, row, None)),
        Err(error) => Err(error),
    });
    counted.collect()
}

fn run_usage(node: NodeId, row: &Uncounted, view: Option<&RunView>) -> RunUsage {
    let tenant = row.tenant.clone();
    let Some(view) = view else {
        let key = UsageKey { tenant, day: Day::default(), agent: String::new(), model: String::new(), node };
        return RunUsage { run: row.run, key, sums: UsageSums { runs: 1, bytes: row.bytes, ..UsageSums::default() } };
    };
    let key = UsageKey {
        tenant,
        day: Day::of(view.ended_at.unwrap_or(view.created_at)),
        agent: view.agent_name.as_ref().map(ToString::to_string).unwrap_or_default(),
        model: row.model.clone().unwrap_or_else(|| view.manifest.model.clone()),
        node,
    };
    let usage = view.state.usage;
    let sums = UsageSums {
        input: usage.tokens_in.min(RUN_MAX),
        cached: usage.cached.min(RUN_MAX),
        cache_written: usage.cache_written.min(RUN_MAX),
        output: usage.tokens_out.min(RUN_MAX),
        reasoning: usage.reasoning.min(RUN_MAX),
        lost: view.state.lost.min(RUN_MAX),
        runs: 1,
        calls: view.state.calls_used.into(),
        bytes: row.bytes,
    };
    RunUsage { run: row.run, key, sums }
}
