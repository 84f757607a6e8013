//! Interrupts in SQLite.

use rusqlite::{Row, params, types::Type};
use windlass_kernel::{AgentName, CallNumber, Cause, Interrupt, ItemId, OnTimeout, RunId, Tenant, Timestamp, Verdict};
use windlass_ports::{ClosedInterrupt, InterruptId, InterruptScan, InterruptView};

use super::{
    columns::{agent, count, id, int, limit as as_limit, maybe_call, maybe_id, maybe_time, maybe_variant, time, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{InterruptChange, InterruptReads, InterruptRows, Result, pack_names, unpack_names};

macro_rules! columns {
    () => {
        "tenant, head, run, n, agent_name, cause, call, shows, created_at, until, on_timeout, needs, approvals, verdict, by_name,
         answered_at"
    };
}

/// The columns of every list, the filters and the order. The first page begins before the lowest key.
macro_rules! list {
    ($from:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM interrupts ",
            $from,
            " AND (created_at, run, n) > (?2, ?3, ?4)
              AND (?5 IS NULL OR cause = ?5) AND (?6 IS NULL OR coalesce(agent_name, head) = ?6)
              ORDER BY created_at, run, n LIMIT ?7"
        )
    };
}

fn interrupt(row: &Row<'_>) -> rusqlite::Result<InterruptView> {
    let approvals = unpack_names(&row.get::<_, String>(12)?);
    let approvals = approvals.map_err(|error| rusqlite::Error::FromSqlConversionFailure(12, Type::Text, Box::new(error)))?;
    let closed = match (maybe_variant(row, 13, Verdict::parse)?, maybe_time(row, 15)?) {
        (Some(verdict), Some(at)) => Some(ClosedInterrupt { verdict, by: row.get::<_, Option<String>>(14)?.map(Into::into), at }),
        (Some(_), None) | (None, Some(_)) | (None, None) => None,
    };
    let interrupt = Interrupt {
        number: count(row, 3)?,
        cause: variant(row, 5, Cause::parse)?,
        call: maybe_call(row, 6)?,
        shows: maybe_id(row, 7, ItemId::from_slice)?,
        until: maybe_time(row, 9)?,
        on_timeout: variant(row, 10, OnTimeout::parse)?,
        needs: row.get(11)?,
        approvals,
        budget: None,
        at: None,
    };
    Ok(InterruptView {
        run: id(row, 2, RunId::from_slice)?,
        agent: agent(row, 0)?,
        agent_name: maybe_variant(row, 4, |text| Some(text.into()))?,
        interrupt,
        created_at: time(row, 8)?,
        closed,
    })
}

impl<P: Prepared> InterruptReads for SqliteRows<P> {
    fn interrupts(&self, tenant: &Tenant, scan: &InterruptScan) -> Result<Vec<InterruptView>> {
        let (at, run, number) = match &scan.after {
            None => (Timestamp(i64::MIN), [].as_slice(), 0),
            Some((at, id)) => (*at, id.run.as_bytes().as_slice(), int(id.number)),
        };
        let (cause, agent) = (scan.cause.map(Cause::as_str), scan.agent.as_ref().map(AgentName::as_str));
        let (tenant, limit) = (tenant.as_str(), as_limit(scan.limit));
        match (&scan.run, scan.with_closed) {
            (Some(wanted), with_closed) => {
                // The sign keeps SQLite from reading all interrupts of the tenant.
                let sql = list!("WHERE run = ?8 AND +tenant = ?1 AND (?9 OR verdict IS NULL)");
                self.all(sql, params![tenant, at.0, run, number, cause, agent, limit, wanted.as_bytes(), with_closed], interrupt)
            }
            (None, true) => {
                let sql = list!("INDEXED BY interrupts_listed WHERE tenant = ?1");
                self.all(sql, params![tenant, at.0, run, number, cause, agent, limit], interrupt)
            }
            (None, false) => {
                let sql = list!("INDEXED BY interrupts_open WHERE tenant = ?1 AND verdict IS NULL");
                self.all(sql, params![tenant, at.0, run, number, cause, agent, limit], interrupt)
            }
        }
    }

    fn interrupt(&self, tenant: &Tenant, id: InterruptId) -> Result<Option<InterruptView>> {
        let sql = concat!("SELECT ", columns!(), " FROM interrupts WHERE run = ?1 AND n = ?2 AND tenant = ?3");
        self.one(sql, params![id.run.as_bytes(), int(id.number), tenant.as_str()], interrupt)
    }
}

impl<P: Prepared> InterruptRows for SqliteRows<P> {
    fn insert_interrupt(&mut self, row: &InterruptView) -> Result<()> {
        let params = params![
            row.agent.tenant.as_str(),
            row.agent.agent.as_str(),
            row.run.as_bytes(),
            int(row.interrupt.number),
            row.agent_name.as_ref().map(AgentName::as_str),
            row.interrupt.cause.as_str(),
            row.interrupt.call.map(|CallNumber(call)| call),
            row.interrupt.shows.as_ref().map(ItemId::as_bytes),
            row.created_at.0,
            row.interrupt.until.map(|at| at.0),
            row.interrupt.on_timeout.as_str(),
            row.interrupt.needs,
            pack_names(&row.interrupt.approvals),
            row.closed.as_ref().map(|closed| closed.verdict.as_str()),
            row.closed.as_ref().and_then(|closed| closed.by.as_deref()),
            row.closed.as_ref().map(|closed| closed.at.0),
        ];
        self.change(INSERT, params).map(drop)
    }

    fn change_interrupt(&mut self, id: InterruptId, change: &InterruptChange) -> Result<()> {
        // The two lists are joined as texts, because JSON functions can't hold every name.
        let sql = "UPDATE interrupts SET
                       shows = coalesce(?7, shows),
                       approvals = CASE WHEN ?7 IS NOT NULL OR approvals = '[]' THEN ?3 WHEN ?3 = '[]' THEN approvals
                                   ELSE substr(approvals, 1, length(approvals) - 1) || ',' || substr(?3, 2) END,
                       verdict = ?4, by_name = ?5, answered_at = ?6
                   WHERE run = ?1 AND n = ?2 AND verdict IS NULL";
        let closed = change.closed.as_ref();
        let params = params![
            id.run.as_bytes(),
            int(id.number),
            pack_names(&change.approvals),
            closed.map(|closed| closed.verdict.as_str()),
            closed.and_then(|closed| closed.by.as_deref()),
            closed.map(|closed| closed.at.0),
            change.shows.as_ref().map(ItemId::as_bytes),
        ];
        self.change_one(sql, params, "an interrupt that changes")
    }

    fn close_interrupts(&mut self, run: RunId, closed: &ClosedInterrupt) -> Result<()> {
        let sql = "UPDATE interrupts SET verdict = ?2, by_name = ?3, answered_at = ?4 WHERE run = ?1 AND verdict IS NULL";
        self.change(sql, params![run.as_bytes(), closed.verdict.as_str(), closed.by.as_deref(), closed.at.0]).map(drop)
    }
}

const INSERT: &str =
    concat!("INSERT INTO interrupts (", columns!(), ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)");
