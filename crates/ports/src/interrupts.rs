//! Interrupts as stores list them: what waits for a person, and what people decided.

use std::{fmt, str::FromStr, sync::Arc};

use windlass_kernel::{AgentKey, AgentName, BadId, Cause, Interrupt, RunId, Timestamp, Verdict};

/// The identity of an interrupt: its run and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterruptId {
    /// The run that waits.
    pub run: RunId,
    /// The number of the interrupt in that run.
    pub number: u64,
}

impl fmt::Display for InterruptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "int_{}_{}", self.run.0.simple(), self.number)
    }
}

impl FromStr for InterruptId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let (run, number) = text.strip_prefix("int_")?.split_once('_')?;
            let is_canonical = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
            let run = format!("run_{run}").parse().ok().filter(|_| is_canonical)?;
            Some(InterruptId { run, number: number.parse().ok()? })
        };
        parse().ok_or(BadId { prefix: "int_" })
    }
}

/// Which interrupts a list has. They are in the order in which they were opened; a field that is not set excludes none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterruptScan {
    /// Whether closed interrupts are listed too.
    pub with_closed: bool,
    /// Only interrupts with this cause.
    pub cause: Option<Cause>,
    /// Only interrupts of runs of this agent: its name, or the key of the head if the run has no named agent.
    pub agent: Option<AgentName>,
    /// Only interrupts of this run.
    pub run: Option<RunId>,
    /// Only interrupts that come after this one.
    pub after: Option<(Timestamp, InterruptId)>,
    /// The number of interrupts that are read at most.
    pub limit: usize,
}

/// A stored interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptView {
    /// The run that waits.
    pub run: RunId,
    /// The head of the run.
    pub agent: AgentKey,
    /// The name of the run's agent, if the run has a named one.
    pub agent_name: Option<AgentName>,
    /// The interrupt as it was opened, with the approvals so far. Its budget and its time are left out: they are in
    /// the state of the run.
    pub interrupt: Interrupt,
    /// When it was opened.
    pub created_at: Timestamp,
    /// How it was closed. `None` while it is open.
    pub closed: Option<ClosedInterrupt>,
}

impl InterruptView {
    /// The identity of the interrupt.
    pub fn id(&self) -> InterruptId {
        InterruptId { run: self.run, number: self.interrupt.number }
    }
}

/// How an interrupt was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedInterrupt {
    /// The verdict.
    pub verdict: Verdict,
    /// Who decided, if a person did.
    pub by: Option<Arc<str>>,
    /// When it was closed.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_as_it_is_spelled_and_nothing_else_is() {
        let id = InterruptId { run: RunId(uuid::Uuid::from_u128(7)), number: 12 };
        assert_eq!(id.to_string().parse(), Ok(id));
        let run = "00000000000000000000000000000007";
        for text in [format!("int_{run}"), format!("int_{run}_"), format!("int_{run}_01"), format!("int_{run}_+1"), format!("call_{run}_1")]
        {
            assert!(text.parse::<InterruptId>().is_err(), "{text}");
        }
    }
}
