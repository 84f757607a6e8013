//! Erasing a whole tenant, in batches. These statements are used so rarely that no connection keeps them prepared.
//!
//! A run may begin while a batch is deleted. The deleted boxes and items are those of one snapshot, and none if that snapshot has an open
//! run; a run that begins after a box that is deleted fails because of the missing box.

use windlass_kernel::Tenant;
use windlass_ports::{TenantCursor, TenantErasure};

use super::{
    columns::{Text, limit as as_limit},
    member::pin,
    pg_error::PgError,
    session::Session,
};

/// The number of a tenant's runs that have not ended: active and queued ones.
const OPEN: &str = "SELECT (SELECT count(*) FROM heads h WHERE h.tenant = $1::text AND h.run IS NOT NULL)
    + (SELECT count(*) FROM runs r WHERE r.tenant = $1 AND r.epoch IS NULL AND r.status = 'queued')";

const RUNS: &str = "WITH gone AS MATERIALIZED (
        SELECT r.run FROM runs r WHERE r.tenant = $1::text AND r.status = 'ended' LIMIT $2::bigint FOR UPDATE
    ), journal AS (DELETE FROM stretches t USING gone WHERE t.run = gone.run
    ), calls AS (DELETE FROM calls t USING gone WHERE t.run = gone.run
    ), interrupts AS (DELETE FROM interrupts t USING gone WHERE t.run = gone.run
    ), inbox AS (DELETE FROM inbox t USING gone WHERE t.run = gone.run
    ), answers AS (DELETE FROM answers t USING gone WHERE t.run = gone.run
    ), uncounted AS (DELETE FROM usage_uncounted t USING gone WHERE t.run = gone.run
    ), deltas AS (DELETE FROM deltas t USING gone WHERE t.run = gone.run
    ), runs AS (DELETE FROM runs t USING gone WHERE t.run = gone.run RETURNING 1
    ) SELECT count(*) FROM runs";

/// The tenant's rows in a page of a table, with what belongs to them, and the last key of the page.
macro_rules! page {
    ($table:literal, $key:literal, $others:literal) => {
        concat!(
            "WITH page AS MATERIALIZED (SELECT t.",
            $key,
            " AS key, t.tenant FROM ",
            $table,
            " t WHERE t.",
            $key,
            " > $2::bytea ORDER BY t.",
            $key,
            " LIMIT $3::bigint), own AS MATERIALIZED (SELECT page.key FROM page WHERE page.tenant = $1::text
                AND NOT EXISTS (SELECT 1 FROM heads h WHERE h.tenant = $1 AND h.run IS NOT NULL)
                AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = $1 AND r.epoch IS NULL AND r.status = 'queued')), ",
            $others,
            "gone AS (DELETE FROM ",
            $table,
            " t USING own WHERE t.",
            $key,
            " = own.key RETURNING 1)
            SELECT (SELECT count(*) FROM gone), (SELECT page.key FROM page ORDER BY page.key DESC LIMIT 1)"
        )
    };
}

const PAGES: [&str; 3] = [
    page!("conversations", "conversation", "parts AS (DELETE FROM conversation_parts p USING own WHERE p.conversation = own.key), "),
    page!("boxes", "box", "rows AS (DELETE FROM box_rows b USING own WHERE b.box = own.key), "),
    page!("items", "item", ""),
];

/// Tables that are found by the tenant: at most this many rows of each. A head or a count that changed meanwhile stays.
const BY_TENANT: [&str; 7] = [
    "DELETE FROM inbox t WHERE t.n IN (SELECT n FROM inbox WHERE tenant = $1::text AND run IS NULL LIMIT $2::bigint)",
    "DELETE FROM answers t WHERE t.tenant = $1::text AND t.key IN (SELECT key FROM answers WHERE tenant = $1 LIMIT $2::bigint)",
    "DELETE FROM requests t WHERE t.tenant = $1::text AND t.hash IN (SELECT hash FROM requests WHERE tenant = $1 LIMIT $2::bigint)",
    "DELETE FROM outbox t WHERE t.n IN (SELECT n FROM outbox WHERE tenant = $1::text LIMIT $2::bigint)",
    "DELETE FROM usage t WHERE t.tenant = $1::text AND t.day IN (SELECT day FROM usage WHERE tenant = $1 LIMIT $2::bigint)",
    "DELETE FROM heads t WHERE t.tenant = $1::text AND t.run IS NULL AND t.queued = 0
        AND t.agent IN (SELECT agent FROM heads WHERE tenant = $1 AND run IS NULL AND queued = 0 LIMIT $2::bigint)",
    // Slots can be below zero: only their sum is a count.
    "WITH own AS MATERIALIZED (SELECT o.slot, o.open FROM tenants o WHERE o.tenant = $1::text FOR UPDATE)
     DELETE FROM tenants t USING own
     WHERE t.tenant = $1 AND t.slot = own.slot AND (SELECT sum(open) FROM own) = 0 AND $2::bigint > 0",
];

/// Erases a batch of a tenant's rows.
pub(super) async fn erase_tenant(session: &Session, tenant: &Tenant, from: &TenantCursor, limit: usize) -> Result<TenantErasure, PgError> {
    let whose = Text(tenant.as_str());
    let open: i64 = session.client.query_one(OPEN, &[&whose]).await?.try_get(0)?;
    if open > 0 {
        return Ok(TenantErasure::OpenRuns(u32::try_from(open).unwrap_or(u32::MAX)));
    }
    let most = as_limit(limit.max(1));
    let (rows, next) = match (from.stage, PAGES.get(usize::from(from.stage).wrapping_sub(1))) {
        (0, _) => {
            let rows: i64 = session.client.query_one(RUNS, &[&whose, &most]).await?.try_get(0)?;
            (rows.unsigned_abs(), Some(if rows == 0 { from.next_stage() } else { from.clone() }))
        }
        (_, Some(page)) => {
            let row = session.client.query_one(*page, &[&whose, &from.after, &most]).await?;
            let after: Option<Vec<u8>> = row.try_get(1)?;
            let next = after.map_or_else(|| from.next_stage(), |after| TenantCursor { stage: from.stage, after });
            (row.try_get::<_, i64>(0)?.unsigned_abs(), Some(next))
        }
        (_, None) => {
            let mut rows = drop_manifests(session, tenant, most).await?;
            for sql in BY_TENANT {
                rows += session.client.execute(sql, &[&whose, &most]).await?;
            }
            (rows, (rows > 0).then(|| from.clone()))
        }
    };
    Ok(TenantErasure::Erased { rows, next })
}

/// Takes the locks that keep a manifest for a run that begins with it.
async fn drop_manifests(session: &Session, tenant: &Tenant, most: i64) -> Result<u64, PgError> {
    let whose = Text(tenant.as_str());
    let sql = "SELECT m.hash FROM manifests m WHERE m.tenant = $1::text LIMIT $2::bigint";
    let mut dropped = 0;
    for row in session.client.query(sql, &[&whose, &most]).await? {
        let hash: Vec<u8> = row.try_get(0)?;
        if let Ok(hash) = <&[u8; 32]>::try_from(hash.as_slice()) {
            let pin = pin(tenant, hash);
            let no_run: &[u8] = &[];
            session.client.execute(&session.statements.drop_manifest, &[&whose, &hash.as_slice(), &no_run, &!pin, &pin]).await?;
            dropped += 1;
        }
    }
    Ok(dropped)
}
