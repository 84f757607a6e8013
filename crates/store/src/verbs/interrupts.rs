//! What a commit does to the rows of interrupts.

use std::collections::BTreeMap;

use windlass_kernel::{AgentKey, Interrupt, InterruptUpdate};
use windlass_ports::{ClosedInterrupt, Commit, InterruptId, InterruptView};

use crate::rows::{InterruptChange, Result, Rows, missing_row};

/// Writes the changes of a commit's interrupts. Changes of one interrupt are merged to one statement.
pub(super) fn write_interrupts<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, commit: &Commit) -> Result<()> {
    let mut opened: BTreeMap<u64, InterruptView> = BTreeMap::new();
    let mut changes: BTreeMap<u64, InterruptChange> = BTreeMap::new();
    for update in &commit.interrupts {
        let (number, change) = match update {
            InterruptUpdate::Opened(interrupt) => {
                let run = rows.run_brief(commit.run)?.ok_or_else(|| missing_row("the run of an interrupt"))?;
                // The budget that a run waits for is in its state only.
                let (agent, interrupt) = (agent.clone(), Interrupt { budget: None, at: None, ..interrupt.clone() });
                let number = interrupt.number;
                let (created_at, closed) = (commit.now, None);
                opened.insert(number, InterruptView { run: commit.run, agent, agent_name: run.agent_name, interrupt, created_at, closed });
                continue;
            }
            InterruptUpdate::Approved { interrupt, by } => {
                (interrupt, InterruptChange { approvals: vec![by.clone()], ..InterruptChange::default() })
            }
            InterruptUpdate::Edited { interrupt, shows, by } => {
                (interrupt, InterruptChange { shows: Some(*shows), approvals: vec![by.clone()], closed: None })
            }
            InterruptUpdate::Closed { interrupt, verdict, by } => {
                let closed = ClosedInterrupt { verdict: *verdict, by: by.clone(), at: commit.now };
                (interrupt, InterruptChange { closed: Some(closed), ..InterruptChange::default() })
            }
        };
        match opened.get_mut(number) {
            Some(row) => change.apply(row),
            None => changes.entry(*number).or_default().merge(change),
        }
    }
    opened.values().try_for_each(|row| rows.insert_interrupt(row))?;
    changes.iter().try_for_each(|(number, change)| rows.change_interrupt(InterruptId { run: commit.run, number: *number }, change))
}
