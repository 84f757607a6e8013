//! The statements about interrupts.

use std::sync::Arc;

use windlass_kernel::{ItemId, RunId, Tenant};
use windlass_ports::{ClosedInterrupt, InterruptId, InterruptScan, InterruptView, StoreError};

use super::Result;

/// What changes an open interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterruptChange {
    /// The item with other arguments, if a person changed them. What was approved before counts no more.
    pub shows: Option<ItemId>,
    /// The people who approved.
    pub approvals: Vec<Arc<str>>,
    /// How it is closed, if it is.
    pub closed: Option<ClosedInterrupt>,
}

impl InterruptChange {
    /// Applies the change to a row.
    pub fn apply(&self, row: &mut InterruptView) {
        if self.shows.is_some() {
            row.interrupt.shows = self.shows;
            row.interrupt.approvals.clear();
        }
        row.interrupt.approvals.extend(self.approvals.iter().cloned());
        if self.closed.is_some() {
            row.closed.clone_from(&self.closed);
        }
    }

    /// Adds a later change.
    pub fn merge(&mut self, later: InterruptChange) {
        if later.shows.is_some() {
            self.shows = later.shows;
            self.approvals.clear();
        }
        self.approvals.extend(later.approvals);
        self.closed = later.closed.or(self.closed.take());
    }
}

/// Encodes the names of people as a database keeps them: a JSON list.
pub fn pack_names(names: &[Arc<str>]) -> String {
    serde_json::Value::from_iter(names.iter().map(|name| &**name)).to_string()
}

/// Decodes what `pack_names` made.
pub fn unpack_names(list: &str) -> Result<Vec<Arc<str>>> {
    let names: Result<Vec<String>, _> = serde_json::from_str(list);
    let names = names.map_err(|error| StoreError::Corrupt(format!("the approvals of an interrupt cannot be read: {error}").into()))?;
    Ok(names.into_iter().map(Arc::from).collect())
}

/// The reads of interrupts.
pub trait InterruptReads {
    /// Interrupts of a tenant in the order in which they were opened, at most `scan.limit`.
    fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>>;
    /// One interrupt of a tenant.
    fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>>;
}

/// The writes of interrupts.
pub trait InterruptRows: InterruptReads {
    /// Stores an interrupt.
    fn insert_interrupt(&mut self, row: &InterruptView) -> Result<()>;
    /// Changes an open interrupt, which must exist.
    fn change_interrupt(&mut self, id: InterruptId, change: &InterruptChange) -> Result<()>;
    /// Closes all open interrupts of a run, if it has any.
    fn close_interrupts(&mut self, run: RunId, closed: &ClosedInterrupt) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_were() {
        for names in [vec![], vec!["a"], vec!["a", "", "\"b\\\0", "\u{1F980}"]] {
            let names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
            let list = pack_names(&names);
            assert!(!list.contains('\0'));
            assert_eq!(unpack_names(&list).unwrap(), names);
        }
        assert!(matches!(unpack_names("[1]"), Err(StoreError::Corrupt(_))));
    }
}
