//! The statements that change rows.

use rusqlite::params;
use windlass_kernel::{AgentIdentity, AgentKey, AgentName, BoxId, CallNumber, Epoch, ItemId, NewItem, RunId, Tenant, Timestamp};
use windlass_ports::{Guard, MessageId, NodeId, PinnedManifest, codec};

use super::{columns::int, prepared::Prepared, statements::SqliteRows};
use crate::{
    journal_batch,
    rows::{BoxRow, CallMove, CallRow, Erasure, HeadRow, JournalRow, MessageRow, Result, Rows, RunChange, RunRow},
    spelling,
};

impl<P: Prepared> Rows for SqliteRows<P> {
    fn insert_head(&mut self, agent: &AgentKey, head: &HeadRow) -> Result<()> {
        let sql = "INSERT INTO heads (tenant, agent, status, epoch, seq, run, owner, waiting, deadline, wake_at, pending, queued, runs,
                                      local, quarantined, held, named)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
        let params = params![
            agent.tenant.as_str(),
            agent.agent.as_str(),
            head.status.as_str(),
            int(head.epoch.0),
            int(head.seq.0),
            head.run.as_ref().map(RunId::as_bytes),
            head.owner.map(|node| int(node.0)),
            head.waiting,
            head.deadline.map(|at| at.0),
            head.wake_at.map(|at| at.0),
            head.pending,
            head.queued,
            int(head.runs),
            head.local,
            head.quarantined,
            head.held,
            matches!(agent.agent.identity(), AgentIdentity::Named(_)),
        ];
        self.change(sql, params).map(drop)
    }

    fn update_head(&mut self, agent: &AgentKey, before: &HeadRow, after: &HeadRow) -> Result<bool> {
        if (before.run, before.epoch) != (after.run, after.epoch) {
            self.deltas.fence(before.run);
        }
        let sql = "UPDATE heads SET status = ?3, epoch = ?4, seq = ?5, run = ?6, owner = ?7, waiting = ?8, deadline = ?9, wake_at = ?10,
                          pending = ?11, queued = ?12, runs = ?13, local = ?14, quarantined = ?15, held = ?20
                   WHERE tenant = ?1 AND agent = ?2 AND status = ?16 AND epoch = ?17 AND run IS ?18 AND seq = ?19";
        let params = params![
            agent.tenant.as_str(),
            agent.agent.as_str(),
            after.status.as_str(),
            int(after.epoch.0),
            int(after.seq.0),
            after.run.as_ref().map(RunId::as_bytes),
            after.owner.map(|node| int(node.0)),
            after.waiting,
            after.deadline.map(|at| at.0),
            after.wake_at.map(|at| at.0),
            after.pending,
            after.queued,
            int(after.runs),
            after.local,
            after.quarantined,
            before.status.as_str(),
            int(before.epoch.0),
            before.run.as_ref().map(RunId::as_bytes),
            int(before.seq.0),
            after.held,
        ];
        Ok(self.change(sql, params)? > 0)
    }

    fn delete_head(&mut self, agent: &AgentKey, before: &HeadRow) -> Result<bool> {
        self.deltas.fence(before.run);
        let sql = "DELETE FROM heads WHERE tenant = ?1 AND agent = ?2 AND status = ?3 AND epoch = ?4 AND run IS ?5 AND seq = ?6";
        let params = params![
            agent.tenant.as_str(),
            agent.agent.as_str(),
            before.status.as_str(),
            int(before.epoch.0),
            before.run.as_ref().map(RunId::as_bytes),
            int(before.seq.0),
        ];
        Ok(self.change(sql, params)? > 0)
    }

    fn update_head_fast(&mut self, guard: &Guard, owner: NodeId, shown: &HeadRow) -> Result<bool> {
        let sql = "UPDATE heads SET status = ?3, seq = seq + 1, waiting = ?4, deadline = ?5, wake_at = ?6, local = ?7, held = ?13
                   WHERE tenant = ?1 AND agent = ?2 AND status = ?8 AND epoch = ?9 AND run = ?10 AND seq = ?11 AND owner = ?12
                     AND pending = 0 AND quarantined IS NULL";
        let params = params![
            guard.agent.tenant.as_str(),
            guard.agent.agent.as_str(),
            shown.status.as_str(),
            shown.waiting,
            shown.deadline.map(|at| at.0),
            shown.wake_at.map(|at| at.0),
            shown.local,
            guard.status.as_str(),
            int(guard.epoch.0),
            guard.run.as_bytes(),
            int(guard.seq.0),
            int(owner.0),
            shown.held,
        ];
        Ok(self.change(sql, params)? > 0)
    }

    fn insert_run(&mut self, run: &RunRow) -> Result<()> {
        let sql = "INSERT INTO runs (run, tenant, agent, ordinal, status, epoch, message, kind, dedupe, manifest, context, output,
                                     state_version, state, iteration, trace, parent_step, source, depth, deliverable, created_at, ended_at,
                                     note, takes, erase_ms, held_ms, follows, agent_name, unlisted, parent, parent_agent,
                                     parent_call)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
                           ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)";
        let parent = run.parent.as_ref();
        let params = params![
            run.brief.run.as_bytes(),
            run.brief.agent.tenant.as_str(),
            run.brief.agent.agent.as_str(),
            int(run.brief.ordinal),
            run.brief.status.as_str(),
            run.brief.epoch.map(|epoch| int(epoch.0)),
            int(run.brief.message.0),
            run.kind.as_str(),
            run.dedupe,
            run.manifest,
            run.context.as_bytes(),
            run.output.as_bytes(),
            run.state_version,
            run.state.as_ref(),
            run.iteration,
            run.lineage.trace,
            run.lineage.parent_step,
            run.lineage.source,
            run.lineage.depth,
            run.deliverable.as_ref().map(ItemId::as_bytes),
            run.created_at.0,
            run.ended_at.map(|at| at.0),
            run.note.as_deref(),
            run.takes.as_ref().map(RunId::as_bytes),
            run.erase_ms.map(int),
            int(run.held_ms),
            run.follows.as_ref().map(RunId::as_bytes),
            run.brief.agent_name.as_ref().map(AgentName::as_str),
            run.unlisted,
            parent.map(|parent| parent.run.as_bytes()),
            parent.map(|parent| parent.head.as_str()),
            parent.map(|parent| parent.call.0),
        ];
        self.change(sql, params)?;
        self.pin_manifest(&run.brief.agent.tenant, run.manifest);
        Ok(())
    }

    fn update_run(&mut self, change: &RunChange) -> Result<()> {
        let sql =
            "UPDATE runs SET status = ?2, epoch = ?3, state_version = ?4, state = ?5, iteration = ?6, deliverable = ?7, ended_at = ?8,
                          held_ms = ?9
                   WHERE run = ?1";
        let params = params![
            change.run.as_bytes(),
            change.status.as_str(),
            change.epoch.map(|epoch| int(epoch.0)),
            codec::VERSION,
            change.state.as_ref(),
            change.iteration,
            change.deliverable.as_ref().map(ItemId::as_bytes),
            change.ended_at.map(|at| at.0),
            int(change.held_ms),
        ];
        self.change_one(sql, params, "a run that changes")
    }

    fn release_run(&mut self, tenant: &Tenant, run: RunId, now: Timestamp) -> Result<()> {
        let sql = "UPDATE runs SET held_ms = min(held_ms, max(?3 - ended_at, 0) + erase_ms)
                   WHERE run = ?1 AND tenant = ?2 AND ended_at IS NOT NULL AND erase_ms IS NOT NULL";
        self.change(sql, params![run.as_bytes(), tenant.as_str(), now.0]).map(drop)
    }

    fn activate_run(&mut self, run: RunId, epoch: Epoch) -> Result<()> {
        let sql = "UPDATE runs SET status = 'active', epoch = ?2 WHERE run = ?1";
        self.change_one(sql, params![run.as_bytes(), int(epoch.0)], "a run that is leased")
    }

    fn keep_manifest(&mut self, tenant: &Tenant, manifest: &PinnedManifest) -> Result<()> {
        if !self.stage_manifest(tenant, &manifest.hash) {
            return Ok(());
        }
        let sql = "INSERT INTO manifests (tenant, hash, body) VALUES (?1, ?2, ?3) ON CONFLICT (tenant, hash) DO NOTHING";
        self.change(sql, params![tenant.as_str(), manifest.hash, manifest.body.as_ref()]).map(drop)
    }

    fn add_open_runs(&mut self, tenant: &Tenant, change: i32) -> Result<()> {
        self.open_runs_change(tenant, change);
        Ok(())
    }

    fn append_journal(&mut self, run: RunId, rows: &[JournalRow]) -> Result<()> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let sql = "INSERT INTO stretches (run, first, epoch, at, version, events) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let epoch = first.epoch.map(|epoch| int(epoch.0));
        self.change(sql, params![run.as_bytes(), int(first.number), epoch, first.at.0, first.version, journal_batch::pack(rows)?]).map(drop)
    }

    fn erase_run(&mut self, erasure: &Erasure) -> Result<()> {
        self.erase(erasure)
    }

    fn forget_deltas(&mut self, run: RunId) -> Result<()> {
        self.settle_deltas(run)
    }

    fn insert_message(&mut self, agent: &AgentKey, row: &MessageRow) -> Result<Option<MessageId>> {
        let sql = "INSERT INTO inbox (tenant, agent, kind, status, run, epoch, call, item, outcome, after_execution, source, reason,
                                      created_at, processed_at, below, retry)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
                   ON CONFLICT (run, call, kind, retry) DO NOTHING";
        let params = params![
            agent.tenant.as_str(),
            agent.agent.as_str(),
            row.kind.as_str(),
            row.status.as_str(),
            row.run.as_ref().map(RunId::as_bytes),
            row.epoch.map(|epoch| int(epoch.0)),
            row.call.map(|call| call.0),
            row.item.as_ref().map(ItemId::as_bytes),
            row.outcome.map(|outcome| outcome.as_str()),
            row.after.map(spelling::after),
            row.source,
            row.reason,
            row.created_at.0,
            row.processed_at.map(|at| at.0),
            row.below.as_ref().map(codec::encode_below),
            row.retry,
        ];
        let is_stored = self.change(sql, params)? > 0;
        Ok(is_stored.then(|| MessageId(self.last_number())))
    }

    fn consume_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch, now: Timestamp) -> Result<()> {
        let sql = "UPDATE inbox SET status = 'consumed', epoch = ?4, processed_at = ?5 WHERE n = ?3 AND tenant = ?1 AND agent = ?2";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), int(message.0), int(epoch.0), now.0];
        self.change_one(sql, params, "a consumed message")
    }

    fn lease_message(&mut self, agent: &AgentKey, message: MessageId, epoch: Epoch) -> Result<()> {
        let sql = "UPDATE inbox SET status = 'pending', epoch = ?4 WHERE n = ?3 AND tenant = ?1 AND agent = ?2";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), int(message.0), int(epoch.0)];
        self.change_one(sql, params, "a leased turn")
    }

    fn skip_message(&mut self, agent: &AgentKey, message: MessageId, now: Timestamp) -> Result<()> {
        let sql = "UPDATE inbox SET status = 'skipped', processed_at = ?4 WHERE n = ?3 AND tenant = ?1 AND agent = ?2";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), int(message.0), now.0];
        self.change_one(sql, params, "a skipped turn")
    }

    fn refuse_message(&mut self, agent: &AgentKey, message: MessageId, reason: &str) -> Result<()> {
        let sql = "UPDATE inbox SET status = 'error', reason = ?4 WHERE n = ?3 AND tenant = ?1 AND agent = ?2";
        let params = params![agent.tenant.as_str(), agent.agent.as_str(), int(message.0), reason];
        self.change_one(sql, params, "a refused message")
    }

    fn insert_call(&mut self, row: &CallRow) -> Result<()> {
        let sql = "INSERT INTO calls (run, call, tenant, agent, iteration, tool, route, effect, status, created_at, deadline, item, result,
                                      worker, lease_until, attempt, claim_key)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
        let params = params![
            row.run.as_bytes(),
            row.call.0,
            row.agent.tenant.as_str(),
            row.agent.agent.as_str(),
            row.iteration,
            row.tool.as_str(),
            spelling::route(row.route),
            spelling::effect(row.effect),
            row.status.as_str(),
            row.created_at.0,
            row.deadline.0,
            row.item.as_bytes(),
            row.result.as_ref().map(ItemId::as_bytes),
            row.worker,
            row.lease_until.map(|at| at.0),
            row.attempt,
            row.claim_key,
        ];
        self.change(sql, params).map(drop)
    }

    fn update_call(&mut self, row: &CallRow) -> Result<()> {
        let sql = "UPDATE calls SET status = ?3, deadline = ?4, result = ?5, worker = ?6, lease_until = ?7, attempt = ?8, claim_key = ?9
                   WHERE run = ?1 AND call = ?2";
        let params = params![
            row.run.as_bytes(),
            row.call.0,
            row.status.as_str(),
            row.deadline.0,
            row.result.as_ref().map(ItemId::as_bytes),
            row.worker,
            row.lease_until.map(|at| at.0),
            row.attempt,
            row.claim_key,
        ];
        self.change_one(sql, params, "a call that changes")
    }

    fn move_call(&mut self, run: RunId, call: CallNumber, moved: CallMove) -> Result<()> {
        let sql = "UPDATE calls SET status = ?3, result = coalesce(?4, result), deadline = coalesce(?5, deadline),
                          item = coalesce(?6, item), lease_until = NULL, claim_key = NULL,
                          worker = CASE WHEN ?3 = 'waiting' THEN NULL ELSE worker END, attempt = attempt + (?3 = 'started'),
                          retry = coalesce(?7, retry)
                   WHERE run = ?1 AND call = ?2";
        let result = moved.result.as_ref().map(ItemId::as_bytes);
        let item = moved.item.as_ref().map(ItemId::as_bytes);
        let params = params![run.as_bytes(), call.0, moved.status.as_str(), result, moved.deadline.map(|at| at.0), item, moved.retry];
        self.change_one(sql, params, "a call that moves")
    }

    fn insert_item(&mut self, tenant: &Tenant, item: &NewItem) -> Result<()> {
        let sql = "INSERT INTO items (item, tenant, kind, hash, content, header) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let hash = codec::content_hash(&item.content);
        let header = codec::encode_header(item.header.as_ref());
        let params = params![item.id.as_bytes(), tenant.as_str(), item.kind.as_str(), hash, item.content.as_ref(), header];
        self.change(sql, params).map(drop)
    }

    fn insert_box(&mut self, row: &BoxRow) -> Result<()> {
        let sql = "INSERT INTO boxes (box, tenant, parent, parent_length, depth, inherited) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let parent = row.parent.as_ref();
        let params = params![
            row.id.as_bytes(),
            row.tenant.as_str(),
            parent.map(|parent| parent.id.as_bytes()),
            parent.map(|parent| parent.length),
            row.depth,
            row.inherited,
        ];
        self.change(sql, params).map(drop)
    }

    fn share_box(&mut self, id: BoxId) -> Result<()> {
        self.change_one("UPDATE boxes SET shared = 1 WHERE box = ?1", [id.as_bytes()], "a box that is shared")
    }

    fn insert_box_row(&mut self, id: BoxId, position: i64, item: ItemId) -> Result<()> {
        let sql = "INSERT INTO box_rows (box, position, item) VALUES (?1, ?2, ?3)";
        self.change(sql, params![id.as_bytes(), position, item.as_bytes()]).map(drop)
    }

    fn insert_outbox(&mut self, agent: &AgentKey, run: RunId, first: u64, count: u32) -> Result<()> {
        let sql = "INSERT INTO outbox (tenant, agent, run, first, count) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.change(sql, params![agent.tenant.as_str(), agent.agent.as_str(), run.as_bytes(), int(first), count]).map(drop)
    }

    fn forget_outbox(&mut self, rows: &[u64]) -> Result<()> {
        rows.iter().try_for_each(|n| self.change("DELETE FROM outbox WHERE n = ?1", [int(*n)]).map(drop))
    }
}
