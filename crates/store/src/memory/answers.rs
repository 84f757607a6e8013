//! Recorded answers to requests with a key, in memory.

use windlass_kernel::{RunId, Tenant};

use super::writes::{MemoryRows, must};
use crate::rows::{AnswerReads, AnswerRow, AnswerRows, Result};

impl AnswerReads for MemoryRows {
    fn answer(&self, tenant: &Tenant, key: &str) -> Result<Option<AnswerRow>> {
        Ok(self.answers.get(&(tenant.clone(), key.to_owned())).cloned())
    }
}

impl AnswerRows for MemoryRows {
    fn insert_answer(&mut self, row: &AnswerRow) -> Result<()> {
        self.answers_of.put((row.run, row.tenant.clone(), row.key.clone()), ());
        must(self.answers.insert((row.tenant.clone(), row.key.clone()), row.clone()), "an answer")
    }
}

impl MemoryRows {
    /// Deletes the recorded answers about a run.
    pub(super) fn erase_answers(&mut self, run: RunId, tenant: &Tenant) {
        let first = (run, tenant.clone(), String::new());
        let keys: Vec<_> = self.answers_of.range(first..).take_while(|((of, ..), ())| *of == run).map(|(key, ())| key.clone()).collect();
        for key in keys {
            self.answers_of.remove(&key);
            self.answers.remove(&(key.1, key.2));
        }
    }
}
