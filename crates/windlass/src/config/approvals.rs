//! `approvals`: the rules by which calls wait for a person's approval.

use windlass_kernel::{Gate, OnTimeout};

use super::{
    error::ConfigError,
    reader::{Field, Keys},
    sections::{EFFECTS, elements},
};

pub(super) const APPROVAL: Keys = Keys { known: &["tool", "server", "effect", "tainted", "until", "on_timeout", "approvers"], later: &[] };

/// The most people that one rule can demand.
const APPROVERS_MAX: u8 = 16;

pub(super) fn read_approvals(field: Option<Field>) -> Result<Vec<Gate>, ConfigError> {
    elements(field)?.into_iter().map(read_gate).collect()
}

fn read_gate(field: Field) -> Result<Gate, ConfigError> {
    let empty = field.fail("a rule needs a condition: tool, server, effect or tainted; to hold every call, write `tool: \"*\"`");
    let mut section = field.section(&APPROVAL)?;
    let timeouts = [("reject", OnTimeout::Reject), ("approve", OnTimeout::Approve), ("end", OnTimeout::End)];
    let until = section.read("until", Field::duration)?;
    let on_timeout = section.take("on_timeout");
    if let (Some(field), None) = (&on_timeout, until) {
        return Err(field.fail("says what happens at the deadline, but the rule has no `until`"));
    }
    let gate = Gate {
        tool: section.read("tool", Field::some_text)?,
        server: section.read("server", Field::some_text)?,
        effect: section.read("effect", |field| field.choice("effect", &EFFECTS, &[]))?,
        tainted: section.read("tainted", Field::flag)?,
        until_ms: until.map(|until| u64::try_from(until.as_millis()).unwrap_or(u64::MAX)),
        on_timeout: on_timeout.map_or(Ok(OnTimeout::Reject), |field| field.choice("on_timeout", &timeouts, &[]))?,
        approvers: section.read_or("approvers", 1, read_approvers)?,
    };
    let has_condition = gate.tool.is_some() || gate.server.is_some() || gate.effect.is_some() || gate.tainted.is_some();
    if has_condition { Ok(gate) } else { Err(empty) }
}

fn read_approvers(field: &Field) -> Result<u8, ConfigError> {
    let wanted = format!("a whole number from 1 to {APPROVERS_MAX}");
    field.whole::<u8>(1).ok().filter(|approvers| *approvers <= APPROVERS_MAX).ok_or_else(|| field.expected(&wanted))
}
