//! The scan for runs that are old enough to be erased, in PostgreSQL. It happens once a minute, so that no connection keeps its statements
//! prepared.

use std::collections::BTreeSet;

use windlass_kernel::{ConversationId, RunId, Tenant, Timestamp};
use windlass_ports::{AgedPage, AgedScan};

use super::{
    columns::{Columns, Text, limit as as_limit},
    pg_error::PgError,
    session::Session,
};
use crate::aging::{ListedRun, OldRuns};

const LISTED: &str = "SELECT r.run, r.agent, r.created_at, r.ended_at, coalesce(octet_length(r.note), 0)::bigint FROM runs r
    WHERE r.tenant = $1::text AND NOT r.unlisted AND r.run > $2::bytea ORDER BY r.run LIMIT $3::bigint";

const EXISTING: &str = "SELECT c.conversation FROM conversations c WHERE c.conversation = ANY($1::bytea[])";

/// The runs that open runs continue, or whose calls they inherit.
const NEEDED: &str = "WITH open AS (
        SELECT r.follows, r.takes FROM heads h JOIN runs r ON r.run = h.run WHERE h.tenant = $1::text AND h.run IS NOT NULL
        UNION ALL SELECT r.follows, r.takes FROM runs r WHERE r.tenant = $1 AND r.epoch IS NULL AND r.status = 'queued')
    SELECT follows FROM open WHERE follows IS NOT NULL UNION SELECT takes FROM open WHERE takes IS NOT NULL";

/// Ended runs of a tenant that are old enough to be erased and that nothing needs.
pub(super) async fn aged(session: &Session, scan: &AgedScan) -> Result<AgedPage, PgError> {
    let after: &[u8] = scan.after.as_ref().map_or(&[], |run| RunId::as_bytes(run));
    let rows = session.client.query(LISTED, &[&Text(scan.tenant.as_str()), &after, &as_limit(scan.looks)]).await?;
    let listed = rows.into_iter().map(|row| listed(&Columns::of(row))).collect::<Result<Vec<_>, PgError>>()?;
    let old = OldRuns::of(scan, &listed);
    if old.is_empty() {
        return Ok(old.page(&BTreeSet::new(), &BTreeSet::new()));
    }
    let existing = existing(session, &old.conversations()).await?;
    Ok(old.page(&needed(session, &scan.tenant).await?, &existing))
}

fn listed(columns: &Columns) -> Result<ListedRun, PgError> {
    let (run, agent) = (columns.id(RunId::from_slice)?, columns.text()?);
    let (created_at, ended_at) = (Timestamp(columns.number()?), columns.maybe_number()?.map(Timestamp));
    Ok(ListedRun { run, agent, created_at, ended_at, note_bytes: columns.count()? })
}

async fn existing(session: &Session, asked: &BTreeSet<ConversationId>) -> Result<BTreeSet<ConversationId>, PgError> {
    if asked.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids: Vec<&[u8]> = asked.iter().map(|id| id.as_bytes().as_slice()).collect();
    let rows = session.client.query(EXISTING, &[&ids]).await?;
    rows.into_iter().map(|row| Ok(Columns::of(row).id(ConversationId::from_slice)?)).collect()
}

async fn needed(session: &Session, tenant: &Tenant) -> Result<BTreeSet<RunId>, PgError> {
    let rows = session.client.query(NEEDED, &[&Text(tenant.as_str())]).await?;
    rows.into_iter().map(|row| Ok(Columns::of(row).id(RunId::from_slice)?)).collect()
}
