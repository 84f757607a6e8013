//! The statements for lists, in PostgreSQL.

use bytes::Bytes;
use tokio_postgres::types::ToSql;
use windlass_kernel::{BoxId, RunId, Tenant};
use windlass_ports::{AgentSummary, RUNS_COUNTED_MAX, RunScan, RunSet};

use super::{
    columns::{Columns, Text, limit as as_limit},
    fetch::{Answered, first, keyed, rows},
    overlay::TransactionOverlay,
    question::{Answer, Question},
    session::Session,
};
use crate::{
    listing::RUNS_AT_ONCE_MAX,
    rows::{ListReads, Result, RunRow},
};

/// Greater than every id of a run.
const NO_BOUND: [u8; 17] = [0xff; 17];

/// Each name of `runs_named` is looked up as the next one in the index: what lies between two names is not read. Runs are counted for the
/// names of the page only.
pub(super) const AGENT_NAMES: &str = "WITH RECURSIVE others(name) AS (
            (SELECT r.agent_name FROM runs r WHERE NOT r.unlisted AND r.agent_name <> r.agent AND r.tenant = $1 AND r.agent_name > $2
             ORDER BY r.tenant, r.agent_name, r.run LIMIT 1)
            UNION ALL
            SELECT next.agent_name FROM others CROSS JOIN LATERAL (
                SELECT r.agent_name FROM runs r
                WHERE NOT r.unlisted AND r.agent_name <> r.agent AND r.tenant = $1 AND r.agent_name > others.name
                ORDER BY r.tenant, r.agent_name, r.run LIMIT 1) AS next
        ), names(name) AS (
            (SELECT name FROM others LIMIT $3)
            UNION
            (SELECT h.agent FROM heads h WHERE h.tenant = $1 AND h.agent > $2 AND h.agent !~ '^(run|conv)_[0-9a-fA-F]{32}$'
                AND EXISTS (SELECT 1 FROM (
                    SELECT r.unlisted FROM runs r WHERE (r.tenant, r.agent, r.ordinal) >= ($1, h.agent, 0)
                        AND (r.tenant, r.agent) <= ($1, h.agent)
                    ORDER BY r.tenant DESC, r.agent DESC, r.ordinal DESC LIMIT $4) AS t WHERE NOT t.unlisted)
             ORDER BY h.tenant, h.agent LIMIT $3)
            ORDER BY 1 LIMIT $3
        ), counted(name, runs, newest) AS (
            SELECT n.name, own.runs + least(o.runs, $4), greatest(own.newest, o.newest) FROM names n
            CROSS JOIN LATERAL (SELECT count(*) AS runs, max(t.created_at) AS newest FROM (
                SELECT r.created_at FROM runs r WHERE NOT r.unlisted AND r.agent_name <> r.agent
                    AND (r.tenant, r.agent_name, r.run) >= ($1, n.name, ''::bytea) AND (r.tenant, r.agent_name) <= ($1, n.name)
                ORDER BY r.tenant DESC, r.agent_name DESC, r.run DESC LIMIT $4) AS t) AS own
            CROSS JOIN LATERAL (SELECT count(*) AS runs, max(t.created_at) AS newest FROM (
                SELECT r.created_at, r.unlisted FROM runs r WHERE (r.tenant, r.agent, r.ordinal) >= ($1, n.name, 0)
                    AND (r.tenant, r.agent) <= ($1, n.name)
                ORDER BY r.tenant DESC, r.agent DESC, r.ordinal DESC LIMIT $4) AS t WHERE NOT t.unlisted) AS o
        ) SELECT name, least(runs, $4), newest FROM counted ORDER BY name";

impl ListReads for TransactionOverlay<'_> {
    fn scan_runs(&self, tenant: &Tenant, scan: &RunScan) -> Result<Vec<RunRow>> {
        self.ask(Question::Runs(tenant.clone(), scan.clone()))?.runs()
    }

    fn agent_names(&self, tenant: &Tenant, after: &str, limit: usize) -> Result<Vec<AgentSummary>> {
        self.ask(Question::AgentNames { tenant: tenant.clone(), after: after.to_owned(), limit })?.agent_names()
    }

    fn instruction(&self, tenant: &Tenant, id: BoxId) -> Result<Option<Bytes>> {
        self.ask(Question::Instruction(tenant.clone(), id))?.instruction()
    }
}

pub(super) async fn runs(session: &Session, kind: Vec<Question>) -> Answered {
    let mut answered = Vec::with_capacity(kind.len());
    for question in kind {
        let Question::Runs(tenant, scan) = &question else { continue };
        let below = scan.below.as_ref().map_or(NO_BOUND.as_slice(), |run| RunId::as_bytes(run));
        let (whose, limit) = (Text(tenant.as_str()), as_limit(scan.limit));
        let params: [&(dyn ToSql + Sync); 3] = [&whose, &below, &limit];
        let found = match &scan.set {
            RunSet::All => rows(session, &session.statements.listed_runs, &params, Columns::run).await?,
            RunSet::Open => rows(session, &session.statements.unended_runs, &params, Columns::run).await?,
            RunSet::Children(parent) => {
                let parent = parent.as_bytes().as_slice();
                let params: [&(dyn ToSql + Sync); 4] = [&whose, &below, &limit, &parent];
                rows(session, &session.statements.child_runs, &params, Columns::run).await?
            }
            RunSet::Named(name) => {
                let name = Text(name.as_str());
                let params: [&(dyn ToSql + Sync); 5] = [&whose, &below, &limit, &name, &RUNS_AT_ONCE_MAX];
                rows(session, &session.statements.named_runs, &params, Columns::run).await?
            }
        };
        answered.push((question, Answer::Runs(found)));
    }
    Ok(answered)
}

pub(super) async fn agent_names(session: &Session, kind: Vec<Question>) -> Answered {
    let mut answered = Vec::with_capacity(kind.len());
    for question in kind {
        let Question::AgentNames { tenant, after, limit } = &question else { continue };
        let (whose, after) = (Text(tenant.as_str()), Text(after));
        let params: [&(dyn ToSql + Sync); 4] = [&whose, &after, &as_limit(*limit), &as_limit(RUNS_COUNTED_MAX)];
        let found = rows(session, &session.statements.agent_names, &params, Columns::agent_summary).await?;
        answered.push((question, Answer::AgentNames(found)));
    }
    Ok(answered)
}

pub(super) async fn instructions(session: &Session, kind: Vec<Question>) -> Answered {
    let (mut tenants, mut boxes) = (Vec::with_capacity(kind.len()), Vec::with_capacity(kind.len()));
    for question in &kind {
        if let Question::Instruction(tenant, id) = question {
            tenants.push(Text(tenant.as_str()));
            boxes.push(id.as_bytes().as_slice());
        }
    }
    let found = keyed(session, &session.statements.instructions, &[&tenants, &boxes], kind.len(), Columns::content).await?;
    first(kind, found, Answer::Instruction)
}
