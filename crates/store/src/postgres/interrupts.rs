//! Interrupts in PostgreSQL: the questions, the writes to an overlay, and the statements that send these writes.

use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;
use windlass_kernel::{AgentName, Cause, RunId, Tenant, Timestamp};
use windlass_ports::{ClosedInterrupt, InterruptId, InterruptScan, InterruptView};

use super::{
    columns::{Columns, Text, int, limit as as_limit},
    fetch::{Answered, first, keyed, rows},
    flush::{Part, Sent, Writes, column},
    overlay::TransactionOverlay,
    question::{Answer, Question},
    session::Session,
};
use crate::rows::{InterruptChange, InterruptReads, InterruptRows, Result, existing_row, pack_names};

/// The interrupts that a verb writes.
#[derive(Default)]
pub(super) struct InterruptWrites {
    opened: BTreeMap<InterruptId, InterruptView>,
    changed: BTreeMap<InterruptId, InterruptChange>,
    /// Runs whose open interrupts are all closed.
    closed: BTreeMap<RunId, ClosedInterrupt>,
}

impl InterruptWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.changed.is_empty() && self.closed.is_empty()
    }
}

impl InterruptReads for TransactionOverlay<'_> {
    fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>> {
        self.ask(Question::Interrupts(tenant.clone(), scan.clone()))?.interrupts()
    }

    fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>> {
        Ok(self.ask(Question::Interrupt(tenant.clone(), id))?.interrupt()?.map(|row| *row))
    }
}

impl InterruptRows for TransactionOverlay<'_> {
    fn insert_interrupt(&mut self, row: &InterruptView) -> Result<()> {
        let before = self.write_set.interrupts.opened.insert(row.id(), row.clone());
        if before.is_some() { Err(existing_row("an interrupt")) } else { Ok(()) }
    }

    fn change_interrupt(&mut self, id: InterruptId, change: &InterruptChange) -> Result<()> {
        self.write_set.interrupts.changed.insert(id, change.clone());
        Ok(())
    }

    fn close_interrupts(&mut self, run: RunId, closed: &ClosedInterrupt) -> Result<()> {
        self.write_set.interrupts.closed.insert(run, closed.clone());
        Ok(())
    }
}

pub(super) async fn listed(session: &Session, kind: Vec<Question>) -> Answered {
    let mut answered = Vec::with_capacity(kind.len());
    for question in kind {
        let Question::Interrupts(tenant, scan) = &question else { continue };
        answered.push((question.clone(), Answer::Interrupts(list(session, tenant, scan).await?)));
    }
    Ok(answered)
}

/// The first page begins before the lowest key.
async fn list(session: &Session, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>, super::pg_error::PgError> {
    let (at, run, number) = match &scan.after {
        None => (Timestamp(i64::MIN), [].as_slice(), 0),
        Some((at, id)) => (*at, id.run.as_bytes().as_slice(), int(id.number)),
    };
    let (whose, limit) = (Text(tenant.as_str()), as_limit(scan.limit));
    let (cause, agent) = (scan.cause.map(Cause::as_str), scan.agent.as_ref().map(AgentName::as_str).map(Text));
    let params: [&(dyn ToSql + Sync); 7] = [&whose, &at.0, &run, &number, &cause, &agent, &limit];
    let statements = &session.statements;
    match (&scan.run, scan.with_closed) {
        (Some(wanted), with_closed) => {
            let wanted = wanted.as_bytes().as_slice();
            let params: [&(dyn ToSql + Sync); 9] = [&whose, &at.0, &run, &number, &cause, &agent, &limit, &wanted, &with_closed];
            rows(session, &statements.interrupts_of_run, &params, Columns::interrupt).await
        }
        (None, true) => rows(session, &statements.all_interrupts, &params, Columns::interrupt).await,
        (None, false) => rows(session, &statements.open_interrupts, &params, Columns::interrupt).await,
    }
}

pub(super) async fn by_id(session: &Session, kind: Vec<Question>) -> Answered {
    let (mut tenants, mut runs, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for question in &kind {
        if let Question::Interrupt(tenant, id) = question {
            tenants.push(Text(tenant.as_str()));
            runs.push(id.run.as_bytes().as_slice());
            numbers.push(int(id.number));
        }
    }
    let params: [&(dyn ToSql + Sync); 3] = [&tenants, &runs, &numbers];
    let found = keyed(session, &session.statements.interrupts, &params, kind.len(), Columns::interrupt).await?;
    first(kind, found, |row| Answer::Interrupt(row.map(Box::new)))
}

impl Writes<'_> {
    /// The statements that only commits with interrupts need.
    pub(super) fn interrupting(&self) -> Vec<Sent<'_>> {
        if self.write_sets.iter().all(|write_set| write_set.interrupts.is_empty()) {
            return Vec::new();
        }
        let statements = &self.session.statements;
        vec![
            self.send(&statements.insert_interrupts, [self.opened_interrupts()], None),
            self.send(&statements.change_interrupts, [self.changed_interrupts()], Some("an interrupt that changes")),
            self.send(&statements.close_interrupts, [self.closed_interrupts()], None),
        ]
    }

    fn opened_interrupts(&self) -> Part<'_> {
        let rows: Vec<&InterruptView> = self.all(|write_set| write_set.interrupts.opened.values());
        Part::of(
            &rows,
            [
                column(&rows, |row| Text(row.agent.tenant.as_str())),
                column(&rows, |row| Text(row.agent.agent.as_str())),
                column(&rows, |row| row.run.as_bytes().as_slice()),
                column(&rows, |row| int(row.interrupt.number)),
                column(&rows, |row| row.agent_name.as_ref().map(|name| Text(name.as_str()))),
                column(&rows, |row| row.interrupt.cause.as_str()),
                column(&rows, |row| row.interrupt.call.map(|call| i64::from(call.0))),
                column(&rows, |row| row.interrupt.shows.as_ref().map(|item| item.as_bytes().as_slice())),
                column(&rows, |row| row.created_at.0),
                column(&rows, |row| row.interrupt.until.map(|at| at.0)),
                column(&rows, |row| row.interrupt.on_timeout.as_str()),
                column(&rows, |row| i64::from(row.interrupt.needs)),
                column(&rows, |row| pack_names(&row.interrupt.approvals)),
                column(&rows, |row| row.closed.as_ref().map(|closed| closed.verdict.as_str())),
                column(&rows, |row| row.closed.as_ref().and_then(|closed| closed.by.as_deref()).map(Text)),
                column(&rows, |row| row.closed.as_ref().map(|closed| closed.at.0)),
            ],
        )
    }

    fn changed_interrupts(&self) -> Part<'_> {
        let rows: Vec<(&InterruptId, &InterruptChange)> = self.all(|write_set| &write_set.interrupts.changed);
        Part::of(
            &rows,
            [
                column(&rows, |(id, _)| id.run.as_bytes().as_slice()),
                column(&rows, |(id, _)| int(id.number)),
                column(&rows, |(_, change)| pack_names(&change.approvals)),
                column(&rows, |(_, change)| change.closed.as_ref().map(|closed| closed.verdict.as_str())),
                column(&rows, |(_, change)| change.closed.as_ref().and_then(|closed| closed.by.as_deref()).map(Text)),
                column(&rows, |(_, change)| change.closed.as_ref().map(|closed| closed.at.0)),
                column(&rows, |(_, change)| change.shows.as_ref().map(|item| item.as_bytes().as_slice())),
            ],
        )
    }

    fn closed_interrupts(&self) -> Part<'_> {
        let rows: Vec<(&RunId, &ClosedInterrupt)> = self.all(|write_set| &write_set.interrupts.closed);
        Part::of(
            &rows,
            [
                column(&rows, |(run, _)| run.as_bytes().as_slice()),
                column(&rows, |(_, closed)| closed.verdict.as_str()),
                column(&rows, |(_, closed)| closed.by.as_deref().map(Text)),
                column(&rows, |(_, closed)| closed.at.0),
            ],
        )
    }
}
