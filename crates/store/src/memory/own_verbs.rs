//! The verbs that memory has statements of its own for.

use std::time::Duration;

use tokio::time::Instant;
use windlass_ports::{NodeId, Verb, Written};

use super::writes::MemoryRows;
use crate::{rows::Result, verbs};

impl MemoryRows {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other verb is applied in the same way by all databases")]
    pub(super) fn apply_own(&mut self, verb: &Verb) -> Result<Written> {
        Ok(match verb {
            Verb::AppendDeltas(batch) => Written::AppendDeltas(verbs::append_deltas(self, batch)?),
            Verb::Beat(node, lease_ms) => Written::Beat(self.beat(*node, *lease_ms)),
            Verb::Bury(nodes) => {
                self.bury(nodes);
                Written::Bury(())
            }
            Verb::EraseTenant(tenant, ..) => Written::EraseTenant(self.erase_tenant(tenant)?),
            Verb::EmptyLog(_) => Written::EmptyLog(()),
            Verb::AdoptRequest(request, node) => Written::AdoptRequest(self.adopt_request(request, *node)),
            Verb::AddUsage(runs, rows) => Written::AddUsage(self.add_usage(runs, rows)),
            Verb::ForgetUsage(before) => {
                self.forget_usage(*before);
                Written::ForgetUsage(())
            }
            other => return Err(verbs::not_of_rows(other)),
        })
    }

    fn beat(&mut self, node: NodeId, lease_ms: u64) -> Vec<NodeId> {
        let now = Instant::now();
        self.nodes.insert(node, now + Duration::from_millis(lease_ms));
        self.nodes.iter().filter(|(_, until)| **until <= now).map(|(node, _)| *node).collect()
    }

    fn bury(&mut self, nodes: &[NodeId]) {
        let now = Instant::now();
        self.nodes.retain(|node, until| *until > now || !nodes.contains(node));
    }
}
