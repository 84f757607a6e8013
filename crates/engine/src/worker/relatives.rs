//! The other runs of the same tree that a commit has news for.

use windlass_kernel::{AgentKey, Tenant};
use windlass_ports::{Commit, child_head, parent_head};

/// The heads in whose inbox a commit put a message: that of the parent, which gets a result, and those of children that are stopped.
pub(super) fn relatives(tenant: &Tenant, commit: &Commit) -> Vec<AgentKey> {
    let parent = commit.report.iter().map(|report| parent_head(tenant, &report.parent));
    parent.chain(commit.stops.iter().map(|child| child_head(tenant, *child))).collect()
}
