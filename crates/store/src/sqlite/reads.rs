//! The statements that read.

use std::sync::Arc;

use rusqlite::{Row, params};
use windlass_kernel::{
    AgentKey, BoxId, BoxRange, CallNumber, Epoch, HeadStatus, ItemId, ItemKind, Manifest, ParentCall, RunId, Seq, TaskStatus, Tenant,
    Timestamp, ToolName,
};
use windlass_ports::{CallStatus, Lineage, MessageId, MessageKind, MessageStatus, NodeId, OutboxRow, Page, RunStatus, codec};

use super::{
    columns::{
        agent, bytes, count, id, int, limit as as_limit, maybe_call, maybe_epoch, maybe_id, maybe_time, maybe_variant, small, time, variant,
    },
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::{
    journal_batch::{JournalBatch, unpack},
    rows::{BoxRow, CallRow, DeltaRow, HeadRow, ItemRow, JournalRow, MessageRow, Reads, Result, RunBrief, RunRow, Segment},
    spelling,
};

macro_rules! brief_columns {
    () => {
        "run, tenant, agent, ordinal, status, epoch, message, agent_name"
    };
}

/// The columns that `run` reads.
macro_rules! run_columns {
    () => {
        concat!(
            brief_columns!(),
            ", kind, dedupe, manifest, context, output, state_version, state, iteration, trace, parent_step, source, depth,
              deliverable, created_at, ended_at, note, takes, erase_ms, held_ms, follows, unlisted, parent, parent_agent, parent_call"
        )
    };
}

pub(super) use {brief_columns, run_columns};

macro_rules! message_columns {
    () => {
        "i.n, i.kind, i.status, i.run, i.epoch, i.call, i.item, i.outcome, i.after_execution, i.source, i.reason, i.created_at, i.processed_at,
         i.below, i.retry"
    };
}

macro_rules! call_columns {
    () => {
        "c.tenant, c.agent, c.run, c.call, c.iteration, c.tool, c.route, c.effect, c.status, c.created_at, c.deadline, c.item, c.result,
         c.worker, c.lease_until, c.attempt, c.claim_key, c.retry"
    };
}

fn head(row: &Row<'_>) -> rusqlite::Result<HeadRow> {
    Ok(HeadRow {
        status: variant(row, 0, HeadStatus::parse)?,
        epoch: Epoch(count(row, 1)?),
        seq: Seq(count(row, 2)?),
        run: maybe_id(row, 3, RunId::from_slice)?,
        owner: row.get::<_, Option<i64>>(4)?.map(|node| NodeId(node.unsigned_abs())),
        waiting: small(row, 5)?,
        deadline: maybe_time(row, 6)?,
        wake_at: maybe_time(row, 7)?,
        pending: small(row, 8)?,
        queued: small(row, 9)?,
        runs: count(row, 10)?,
        local: small(row, 11)?,
        quarantined: row.get(12)?,
        held: row.get(13)?,
    })
}

fn brief(row: &Row<'_>) -> rusqlite::Result<RunBrief> {
    Ok(RunBrief {
        run: id(row, 0, RunId::from_slice)?,
        agent: agent(row, 1)?,
        agent_name: maybe_variant(row, 7, |text| Some(text.into()))?,
        ordinal: count(row, 3)?,
        status: variant(row, 4, RunStatus::parse)?,
        epoch: maybe_epoch(row, 5)?,
        message: MessageId(count(row, 6)?),
    })
}

pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        brief: brief(row)?,
        kind: variant(row, 8, MessageKind::parse)?,
        dedupe: row.get(9)?,
        manifest: bytes(row, 10)?,
        context: id(row, 11, BoxId::from_slice)?,
        output: id(row, 12, BoxId::from_slice)?,
        state_version: row.get(13)?,
        state: row.get::<_, Vec<u8>>(14)?.into(),
        iteration: small(row, 15)?,
        lineage: lineage(row, 16)?,
        deliverable: maybe_id(row, 20, ItemId::from_slice)?,
        created_at: time(row, 21)?,
        ended_at: maybe_time(row, 22)?,
        note: row.get::<_, Option<Vec<u8>>>(23)?.map(Into::into),
        takes: maybe_id(row, 24, RunId::from_slice)?,
        erase_ms: row.get::<_, Option<i64>>(25)?.map(i64::unsigned_abs),
        held_ms: count(row, 26)?,
        follows: maybe_id(row, 27, RunId::from_slice)?,
        unlisted: row.get(28)?,
        parent: parent(row, 29)?,
    })
}

/// Columns from `at` on: the run, the key of its head and the call that a child run answers.
fn parent(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<ParentCall>> {
    let Some(run) = maybe_id(row, at, RunId::from_slice)? else { return Ok(None) };
    let (head, call) = (variant(row, at + 1, |text| Some(text.into()))?, CallNumber(small(row, at + 2)?));
    Ok(Some(ParentCall { run, head, call, tainted: false }))
}

/// Columns from `at` on: trace, parent step, source, depth.
fn lineage(row: &Row<'_>, at: usize) -> rusqlite::Result<Lineage> {
    let trace = bytes(row, at)?;
    Ok(Lineage { trace, caller: None, parent_step: row.get(at + 1)?, source: row.get(at + 2)?, depth: small(row, at + 3)? })
}

fn message(row: &Row<'_>) -> rusqlite::Result<(MessageId, MessageRow)> {
    let message = MessageRow {
        kind: variant(row, 1, MessageKind::parse)?,
        status: variant(row, 2, MessageStatus::parse)?,
        run: maybe_id(row, 3, RunId::from_slice)?,
        epoch: maybe_epoch(row, 4)?,
        call: maybe_call(row, 5)?,
        item: maybe_id(row, 6, ItemId::from_slice)?,
        outcome: maybe_variant(row, 7, TaskStatus::parse)?,
        after: maybe_variant(row, 8, spelling::parse_after)?,
        source: row.get(9)?,
        reason: row.get(10)?,
        retry: small(row, 14)?,
        below: maybe_variant(row, 13, codec::decode_below)?,
        created_at: time(row, 11)?,
        processed_at: maybe_time(row, 12)?,
    };
    Ok((MessageId(count(row, 0)?), message))
}

fn call(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        agent: agent(row, 0)?,
        run: id(row, 2, RunId::from_slice)?,
        call: CallNumber(small(row, 3)?),
        iteration: small(row, 4)?,
        tool: variant(row, 5, |text| Some(text.into()))?,
        route: variant(row, 6, spelling::parse_route)?,
        effect: variant(row, 7, spelling::parse_effect)?,
        status: variant(row, 8, CallStatus::parse)?,
        created_at: time(row, 9)?,
        deadline: time(row, 10)?,
        item: id(row, 11, ItemId::from_slice)?,
        result: maybe_id(row, 12, ItemId::from_slice)?,
        worker: row.get(13)?,
        lease_until: maybe_time(row, 14)?,
        attempt: small(row, 15)?,
        claim_key: row.get(16)?,
        retry: small(row, 17)?,
    })
}

/// Columns from `at` on: item, kind, hash, content, header.
fn item(row: &Row<'_>, at: usize) -> rusqlite::Result<ItemRow> {
    Ok(ItemRow {
        id: id(row, at, ItemId::from_slice)?,
        kind: variant(row, at + 1, ItemKind::parse)?,
        hash: bytes(row, at + 2)?,
        content: row.get::<_, Vec<u8>>(at + 3)?.into(),
        header: row.get::<_, Option<Vec<u8>>>(at + 4)?.map(Into::into),
    })
}

fn found_box(row: &Row<'_>) -> rusqlite::Result<BoxRow> {
    let parent = maybe_id(row, 2, BoxId::from_slice)?;
    let length: Option<u32> = row.get(3)?;
    Ok(BoxRow {
        id: id(row, 0, BoxId::from_slice)?,
        tenant: variant(row, 1, |text| Some(text.into()))?,
        parent: parent.zip(length).map(|(id, length)| BoxRange { id, length }),
        depth: small(row, 4)?,
        inherited: small(row, 5)?,
        shared: row.get(6)?,
    })
}

fn packed(row: &Row<'_>) -> rusqlite::Result<(JournalBatch, String)> {
    let journal_batch = JournalBatch { first: count(row, 0)?, epoch: maybe_epoch(row, 1)?, at: time(row, 2)?, version: row.get(3)? };
    Ok((journal_batch, row.get(4)?))
}

impl<P: Prepared> Reads for SqliteRows<P> {
    fn head(&self, agent: &AgentKey) -> Result<Option<HeadRow>> {
        let sql = "SELECT status, epoch, seq, run, owner, waiting, deadline, wake_at, pending, queued, runs, local, quarantined, held
                   FROM heads WHERE tenant = ?1 AND agent = ?2";
        self.one(sql, params![agent.tenant.as_str(), agent.agent.as_str()], head)
    }

    fn run(&self, id: RunId) -> Result<Option<RunRow>> {
        self.one(concat!("SELECT ", run_columns!(), " FROM runs WHERE run = ?1"), [id.as_bytes()], run)
    }

    fn run_brief(&self, id: RunId) -> Result<Option<RunBrief>> {
        self.one(concat!("SELECT ", brief_columns!(), " FROM runs WHERE run = ?1"), [id.as_bytes()], brief)
    }

    fn run_by_dedupe(&self, tenant: &Tenant, key: &str) -> Result<Option<RunBrief>> {
        let sql = concat!("SELECT ", brief_columns!(), " FROM runs WHERE tenant = ?1 AND dedupe = ?2");
        self.one(sql, params![tenant.as_str(), key], brief)
    }

    fn inheriting_run(&self, tenant: &Tenant, run: RunId) -> Result<Option<RunBrief>> {
        let sql = concat!("SELECT ", brief_columns!(), " FROM runs WHERE tenant = ?1 AND takes = ?2");
        self.one(sql, params![tenant.as_str(), run.as_bytes()], brief)
    }

    fn run_from(&self, agent: &AgentKey, ordinal: u64) -> Result<Option<RunRow>> {
        let sql =
            concat!("SELECT ", run_columns!(), " FROM runs WHERE tenant = ?1 AND agent = ?2 AND ordinal >= ?3 ORDER BY ordinal LIMIT 1");
        self.one(sql, params![agent.tenant.as_str(), agent.agent.as_str(), int(ordinal)], run)
    }

    fn next_queued(&self, agent: &AgentKey, above: u64) -> Result<Option<RunBrief>> {
        let sql = concat!(
            "SELECT ",
            brief_columns!(),
            " FROM runs WHERE tenant = ?1 AND agent = ?2 AND ordinal > ?3 AND status = 'queued' ORDER BY ordinal LIMIT 1"
        );
        self.one(sql, params![agent.tenant.as_str(), agent.agent.as_str(), int(above)], brief)
    }

    fn lineage(&self, run: RunId) -> Result<Option<Lineage>> {
        let sql = "SELECT trace, parent_step, source, depth FROM runs WHERE run = ?1";
        self.one(sql, [run.as_bytes()], |row| lineage(row, 0))
    }

    fn manifest(&self, tenant: &Tenant, hash: &[u8; 32]) -> Result<Option<Arc<Manifest>>> {
        if let Some(known) = self.decoded(hash) {
            return Ok(Some(known));
        }
        let sql = "SELECT body FROM manifests WHERE tenant = ?1 AND hash = ?2";
        let Some(body) = self.one(sql, params![tenant.as_str(), hash], |row| row.get::<_, Vec<u8>>(0))? else {
            return Ok(None);
        };
        let manifest = Arc::new(codec::decode_manifest(&body)?);
        self.keep_decoded(hash, &manifest);
        Ok(Some(manifest))
    }

    fn open_runs(&self, tenant: &Tenant) -> Result<u32> {
        let found = self.one("SELECT open FROM tenants WHERE tenant = ?1", [tenant.as_str()], |row| small(row, 0))?;
        Ok(found.unwrap_or(0).saturating_add_signed(self.opened(tenant)))
    }

    fn journal(&self, run: RunId, from: u64, limit: usize) -> Result<Vec<JournalRow>> {
        // The first batch of events may begin before the first event of the page.
        let sql = "SELECT first, epoch, at, version, events FROM stretches
                   WHERE run = ?1 AND first >= coalesce((SELECT max(first) FROM stretches WHERE run = ?1 AND first <= ?2), ?2)
                   ORDER BY first LIMIT ?3";
        let journal_batches = self.all(sql, params![run.as_bytes(), int(from), as_limit(limit)], packed)?;
        let mut events = Vec::with_capacity(journal_batches.len() * 2);
        for (journal_batch, list) in journal_batches {
            events.extend(unpack(&journal_batch, &list)?.into_iter().filter(|row| row.number >= from));
        }
        events.truncate(limit);
        Ok(events)
    }

    fn deltas(&self, run: RunId) -> Result<Vec<DeltaRow>> {
        self.read_deltas(run)
    }

    fn message(&self, agent: &AgentKey, id: MessageId) -> Result<Option<MessageRow>> {
        let sql = concat!("SELECT ", message_columns!(), " FROM inbox i WHERE n = ?3 AND tenant = ?1 AND agent = ?2");
        let found = self.one(sql, params![agent.tenant.as_str(), agent.agent.as_str(), int(id.0)], message)?;
        Ok(found.map(|(_, row)| row))
    }

    fn report(&self, run: RunId, call: CallNumber, kind: MessageKind, retry: u32) -> Result<Option<MessageId>> {
        let sql = "SELECT n FROM inbox WHERE run = ?1 AND call = ?2 AND kind = ?3 AND retry = ?4";
        self.one(sql, params![run.as_bytes(), call.0, kind.as_str(), retry], |row| Ok(MessageId(count(row, 0)?)))
    }

    fn last_message(&self, agent: &AgentKey, run: RunId, kind: MessageKind, call: Option<CallNumber>) -> Result<Option<MessageId>> {
        let sql = "SELECT n FROM inbox INDEXED BY inbox_run
                   WHERE tenant = ?1 AND agent = ?2 AND run = ?3 AND kind = ?4 AND call IS ?5 ORDER BY n DESC LIMIT 1";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), run.as_bytes(), kind.as_str(), call.map(|call| call.0)];
        self.one(sql, params, |row| Ok(MessageId(count(row, 0)?)))
    }

    fn pending(&self, agent: &AgentKey) -> Result<Vec<(MessageId, MessageRow)>> {
        let sql = concat!(
            "SELECT ",
            message_columns!(),
            " FROM inbox i INDEXED BY inbox_pending WHERE tenant = ?1 AND agent = ?2 AND status = 'pending' ORDER BY n"
        );
        self.all(sql, params![agent.tenant.as_str(), agent.agent.as_str()], message)
    }

    fn inbox(&self, agent: &AgentKey, page: Page) -> Result<Vec<(MessageId, MessageRow)>> {
        let key = (agent.tenant.as_str(), agent.agent.as_str());
        let sql = "SELECT r.ordinal FROM inbox i JOIN runs r ON r.run = i.run WHERE i.n = ?3 AND i.tenant = ?1 AND i.agent = ?2";
        let ordinal = self.one(sql, params![key.0, key.1, int(page.after)], |row| row.get::<_, i64>(0))?;
        let mut found = Vec::new();
        if ordinal.is_none() {
            let sql = concat!(
                "SELECT ",
                message_columns!(),
                " FROM inbox i INDEXED BY inbox_strays WHERE tenant = ?1 AND agent = ?2 AND run IS NULL AND n > ?3 ORDER BY n LIMIT ?4"
            );
            found = self.all(sql, params![key.0, key.1, int(page.after), as_limit(page.limit)], message)?;
        }
        // Read run by run, in the order of the runs: then every page is a scan of two indexes.
        let sql = concat!(
            "SELECT ",
            message_columns!(),
            " FROM runs r JOIN inbox i INDEXED BY inbox_run ON i.run = r.run
              WHERE r.tenant = ?1 AND r.agent = ?2 AND r.ordinal >= ?5 AND (r.ordinal > ?5 OR i.n > ?3)
              ORDER BY r.ordinal, i.n LIMIT ?4"
        );
        let left = page.limit.saturating_sub(found.len());
        let params = params![key.0, key.1, int(page.after), as_limit(left), ordinal.unwrap_or(0)];
        found.extend(self.all(sql, params, message)?);
        Ok(found)
    }

    fn call(&self, run: RunId, number: CallNumber) -> Result<Option<CallRow>> {
        let sql = concat!("SELECT ", call_columns!(), " FROM calls AS c WHERE c.run = ?1 AND c.call = ?2");
        self.one(sql, params![run.as_bytes(), number.0], call)
    }

    fn calls(&self, run: RunId, from: CallNumber, limit: usize) -> Result<Vec<CallRow>> {
        let sql = concat!("SELECT ", call_columns!(), " FROM calls AS c WHERE c.run = ?1 AND c.call >= ?2 ORDER BY c.call LIMIT ?3");
        self.all(sql, params![run.as_bytes(), from.0, as_limit(limit)], call)
    }

    fn open_calls(&self, run: RunId) -> Result<Vec<CallNumber>> {
        let sql = "SELECT call FROM calls WHERE run = ?1 AND status <> 'applied' AND status <> 'expired' AND status <> 'dropped'";
        self.all(sql, [run.as_bytes()], |row| Ok(CallNumber(small(row, 0)?)))
    }

    fn claims(&self, run: RunId) -> Result<Vec<(CallNumber, Timestamp)>> {
        // A long run has many calls, of which few are claimed.
        let sql = "SELECT call, lease_until FROM calls INDEXED BY calls_claimed WHERE run = ?1 AND status = 'claimed' ORDER BY call";
        self.all(sql, [run.as_bytes()], |row| Ok((CallNumber(small(row, 0)?), time(row, 1)?)))
    }

    fn waiting_calls(&self, tenant: &Tenant, tool: &ToolName, now: Timestamp, limit: usize) -> Result<Vec<CallRow>> {
        // CROSS JOIN keeps the order of the loops: the waiting calls in their order first, then the head of each one.
        let sql = concat!(
            "SELECT ",
            call_columns!(),
            " FROM calls AS c INDEXED BY calls_waiting CROSS JOIN heads AS h ON h.tenant = c.tenant AND h.agent = c.agent
              WHERE c.tenant = ?1 AND c.tool = ?2 AND c.status = 'waiting' AND c.deadline > ?3
                AND h.run = c.run AND h.held = 0 AND h.quarantined IS NULL
              ORDER BY c.created_at, c.run, c.call LIMIT ?4"
        );
        self.all(sql, params![tenant.as_str(), tool.as_str(), now.0, as_limit(limit)], call)
    }

    fn calls_by_key(&self, tenant: &Tenant, key: &str) -> Result<Vec<CallRow>> {
        let sql = concat!("SELECT ", call_columns!(), " FROM calls AS c WHERE c.tenant = ?1 AND c.claim_key = ?2 ORDER BY c.run, c.call");
        self.all(sql, params![tenant.as_str(), key], call)
    }

    fn item(&self, tenant: &Tenant, id: ItemId) -> Result<Option<ItemRow>> {
        let sql = "SELECT item, kind, hash, content, header FROM items WHERE item = ?1 AND tenant = ?2";
        self.one(sql, params![id.as_bytes(), tenant.as_str()], |row| item(row, 0))
    }

    fn find_box(&self, id: BoxId) -> Result<Option<BoxRow>> {
        let sql = "SELECT box, tenant, parent, parent_length, depth, inherited, shared FROM boxes WHERE box = ?1";
        self.one(sql, [id.as_bytes()], found_box)
    }

    fn box_length(&self, id: BoxId) -> Result<u32> {
        let sql = "SELECT max(position) + 1 FROM box_rows WHERE box = ?1 AND position >= 0";
        let found = self.one(sql, [id.as_bytes()], |row| row.get::<_, Option<u32>>(0))?;
        Ok(found.flatten().unwrap_or(0))
    }

    fn box_item_ids(&self, id: BoxId, below: u32) -> Result<Vec<ItemId>> {
        let sql = "SELECT item FROM box_rows WHERE box = ?1 AND position < ?2 ORDER BY position";
        self.all(sql, params![id.as_bytes(), below], |row| super::columns::id(row, 0, ItemId::from_slice))
    }

    fn content_bytes(&self, segments: &[Segment]) -> Result<u64> {
        let sql = "SELECT coalesce(sum(length(i.content)), 0) FROM box_rows AS r JOIN items AS i ON i.item = r.item
                   WHERE r.box = ?1 AND r.position >= ?2 AND r.position < ?3";
        let mut bytes = 0;
        for Segment { id, from, below } in segments {
            bytes += self.one(sql, params![id.as_bytes(), from, below], |row| row.get::<_, i64>(0))?.unwrap_or(0).unsigned_abs();
        }
        Ok(bytes)
    }

    fn box_items(&self, id: BoxId, from: i64, below: i64, limit: usize) -> Result<Vec<(i64, ItemRow)>> {
        // A left join, so that a missing item is an error and not a gap.
        let sql = "SELECT r.position, i.item, i.kind, i.hash, i.content, i.header
                   FROM box_rows AS r LEFT JOIN items AS i ON i.item = r.item
                   WHERE r.box = ?1 AND r.position >= ?2 AND r.position < ?3 ORDER BY r.position LIMIT ?4";
        self.all(sql, params![id.as_bytes(), from, below, as_limit(limit)], |row| Ok((row.get(0)?, item(row, 1)?)))
    }

    fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<AgentKey>> {
        let sql = "SELECT tenant, agent FROM heads INDEXED BY heads_due WHERE wake_at <= ?1 ORDER BY wake_at, tenant, agent LIMIT ?2";
        self.all(sql, params![now.0, as_limit(limit)], |row| agent(row, 0))
    }

    fn lives(&self, node: NodeId) -> Result<bool> {
        Ok(node == self.node)
    }

    fn orphans(&self, node: NodeId, after: Option<&AgentKey>, limit: usize) -> Result<Vec<AgentKey>> {
        // No agent has an empty name, so that the first page begins after the empty name.
        let (tenant, name) = after.map_or(("", ""), |after| (after.tenant.as_str(), after.agent.as_str()));
        let sql = "SELECT tenant, agent FROM heads
                   WHERE (tenant, agent) > (?1, ?2) AND quarantined IS NULL AND owner IS NOT ?3
                     AND (status IN ('dispatched', 'running') OR (status = 'suspended' AND local > 0))
                   ORDER BY tenant, agent LIMIT ?4";
        self.all(sql, params![tenant, name, int(node.0), as_limit(limit)], |row| agent(row, 0))
    }

    fn outbox(&self, limit: usize) -> Result<Vec<OutboxRow>> {
        let sql = "SELECT n, tenant, agent, run, first, count FROM outbox ORDER BY n LIMIT ?1";
        self.all(sql, [as_limit(limit)], |row| {
            Ok(OutboxRow {
                n: count(row, 0)?,
                agent: agent(row, 1)?,
                run: id(row, 3, RunId::from_slice)?,
                first: count(row, 4)?,
                count: small(row, 5)?,
            })
        })
    }
}
