//! Every SQL text, prepared once per connection.
//!
//! A statement asks or tells for many keys at once: arrays come in, and `i` says which key a row answers. Each lookup is a
//! `LATERAL` subquery that cannot be merged into the rest, so that the only plan there is walks the keys and looks each one up
//! in an index, whatever the planner believes about the size of a table; so it is with changes, which find the place of each row
//! first: it is theirs while they hold the head. Where an order would tempt it into walking another index, we sort. A change that must find its rows divides by zero if it
//! does not: the commit is on its way already, and an error is what turns it into a rollback.

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Statement};

macro_rules! head_columns {
    () => {
        "h.status, h.epoch, h.seq, h.run, h.owner, h.waiting, h.deadline, h.wake_at, h.pending, h.queued, h.runs, h.local, h.quarantined"
    };
}

macro_rules! brief_columns {
    () => {
        "r.run, r.tenant, r.agent, r.ordinal, r.status, r.epoch, r.message"
    };
}

macro_rules! run_columns {
    () => {
        concat!(
            brief_columns!(),
            ", r.kind, r.dedupe, r.manifest, r.context, r.output, r.state_version, r.state, r.iteration, r.trace, r.parent_step, r.source,
               r.depth, r.deliverable, r.created_at, r.ended_at"
        )
    };
}

macro_rules! message_columns {
    () => {
        "m.n, m.kind, m.status, m.run, m.epoch, m.call, m.item, m.outcome, m.after_execution, m.source, m.reason, m.created_at,
         m.processed_at"
    };
}

macro_rules! call_columns {
    () => {
        "c.tenant, c.agent, c.run, c.call, c.iteration, c.tool, c.route, c.effect, c.status, c.created_at, c.deadline, c.item, c.result,
         c.worker, c.lease_until, c.attempt, c.claim_key"
    };
}

/// Keys that are one column and one that are two, numbered.
macro_rules! by {
    ($a:literal) => {
        concat!("unnest($1::", $a, "[]) WITH ORDINALITY AS q(a, i)")
    };
    ($a:literal, $b:literal) => {
        concat!("unnest($1::", $a, "[], $2::", $b, "[]) WITH ORDINALITY AS q(a, b, i)")
    };
    ($a:literal, $b:literal, $c:literal) => {
        concat!("unnest($1::", $a, "[], $2::", $b, "[], $3::", $c, "[]) WITH ORDINALITY AS q(a, b, c, i)")
    };
}

/// For each key, the rows of a subquery.
macro_rules! each {
    ($keys:expr, $rows:expr) => {
        concat!("SELECT q.i, found.* FROM ", $keys, " CROSS JOIN LATERAL (", $rows, ") AS found")
    };
}

/// A change that must change as many rows as there are keys in the first array.
macro_rules! all_of {
    ($type:literal, $change:expr) => {
        concat!("WITH changed AS (", $change, " RETURNING 1) SELECT 1 / (count(*) = cardinality($1::", $type, "[]))::int FROM changed")
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $sql:expr;)+) => {
        /// The prepared statements of one connection.
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: Statement,)+
        }

        impl Statements {
            /// All of them, by name.
            pub(super) const ALL: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $sql)),+];

            /// Prepares all of them, in one go.
            pub(super) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
                let prepared = try_join_all(Self::ALL.iter().map(|(_, sql)| client.prepare(sql))).await?;
                let mut prepared = prepared.into_iter();
                let mut next = || prepared.next().expect("there is one for each");
                Ok(Statements { $($name: next()),+ })
            }
        }
    };
}

statements! {
    /// Heads, locked in the order of the keys: whoever sorts them never waits in a circle.
    lock_heads: each!(by!("text", "text"), concat!("SELECT ", head_columns!(),
        " FROM heads h WHERE h.tenant = q.a AND h.agent = q.b FOR UPDATE"));
    numbers: "SELECT nextval('inbox_numbers') FROM generate_series(1, $1::bigint)";

    heads: each!(by!("text", "text"), concat!("SELECT ", head_columns!(), " FROM heads h WHERE h.tenant = q.a AND h.agent = q.b LIMIT 1"));
    briefs: each!(by!("bytea"), concat!("SELECT ", brief_columns!(), " FROM runs r WHERE r.run = q.a LIMIT 1"));
    runs_by_dedupe: each!(by!("text", "text"), concat!("SELECT ", brief_columns!(),
        " FROM runs r WHERE r.tenant = q.a AND r.dedupe = q.b LIMIT 1"));
    next_queued: each!(by!("text", "text", "bigint"), concat!("SELECT ", brief_columns!(),
        " FROM runs r WHERE r.tenant = q.a AND r.agent = q.b AND r.ordinal > q.c AND r.status = 'queued' ORDER BY r.ordinal LIMIT 1"));
    open_runs: "SELECT q.i, (SELECT coalesce(sum(t.open), 0)::bigint FROM tenants t WHERE t.tenant = q.a) \
                FROM unnest($1::text[]) WITH ORDINALITY AS q(a, i)";
    messages: each!(by!("text", "text", "bigint"), concat!("SELECT ", message_columns!(),
        " FROM inbox m WHERE m.n = q.c AND m.tenant = q.a AND m.agent = q.b LIMIT 1"));
    reports: each!(by!("bytea", "bigint", "text"),
        "SELECT m.n FROM inbox m WHERE m.run = q.a AND m.call = q.b AND m.kind = q.c LIMIT 1");
    pending: each!(by!("text", "text"), concat!("SELECT ", message_columns!(),
        " FROM inbox m WHERE m.tenant = q.a AND m.agent = q.b AND m.status = 'pending' OFFSET 0"));
    call: each!(by!("bytea", "bigint"), concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.run = q.a AND c.call = q.b LIMIT 1"));
    open_calls: each!(by!("bytea"), concat!("SELECT ", call_columns!(),
        " FROM calls c WHERE c.run = q.a AND c.status NOT IN ('applied', 'expired', 'dropped') OFFSET 0"));
    claims: each!(by!("bytea"), concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.run = q.a AND c.status = 'claimed' OFFSET 0"));
    items: each!(by!("text", "bytea"),
        "SELECT t.item, t.kind, t.hash, t.content FROM items t WHERE t.item = q.b AND t.tenant = q.a LIMIT 1");
    boxes: each!(by!("bytea"), "SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited FROM boxes b WHERE b.box = q.a LIMIT 1");
    /// Boxes with all that must be read before them.
    box_chains: "WITH RECURSIVE chain AS (
            SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited
            FROM unnest($1::bytea[]) AS q(a) CROSS JOIN LATERAL (SELECT * FROM boxes b WHERE b.box = q.a LIMIT 1) AS b
            UNION ALL
            SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited
            FROM chain CROSS JOIN LATERAL (SELECT * FROM boxes b WHERE b.box = chain.parent LIMIT 1) AS b WHERE chain.inherited = 0
        ) SELECT * FROM chain";
    box_lengths: "SELECT q.i, coalesce((SELECT max(b.position) + 1 FROM box_rows b WHERE b.box = q.a AND b.position >= 0), 0) \
                  FROM unnest($1::bytea[]) WITH ORDINALITY AS q(a, i)";
    box_item_ids: each!(by!("bytea", "bigint"),
        "SELECT b.item FROM box_rows b WHERE b.box = q.a AND b.position < q.b ORDER BY b.position OFFSET 0");
    lives: "SELECT q.i, EXISTS (SELECT 1 FROM nodes n WHERE n.node = q.a AND n.alive_until > clock_timestamp()) \
            FROM unnest($1::bigint[]) WITH ORDINALITY AS q(a, i)";
    runs: each!(by!("bytea"), concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.run = q.a LIMIT 1"));
    lineages: each!(by!("bytea"), "SELECT r.trace, r.parent_step, r.source, r.depth FROM runs r WHERE r.run = q.a LIMIT 1");
    manifests: each!(by!("bytea"), "SELECT f.body FROM manifests f WHERE f.hash = q.a LIMIT 1");

    run_from: concat!("SELECT ", run_columns!(),
        " FROM runs r WHERE r.tenant = $1 AND r.agent = $2 AND r.ordinal >= $3 ORDER BY r.ordinal LIMIT 1");
    /// The first stretch may have begun before.
    journal: "SELECT s.first, s.epoch, s.at, s.version, s.events FROM stretches s
        WHERE s.run = $1 AND s.first >= coalesce((SELECT max(b.first) FROM stretches b WHERE b.run = $1 AND b.first <= $2), $2)
        ORDER BY s.first LIMIT $3";
    last_message: "SELECT m.n FROM inbox m WHERE m.run = $3 AND m.kind = $4 AND m.call IS NOT DISTINCT FROM $5::bigint \
                   AND m.tenant = $1 AND m.agent = $2 ORDER BY m.n + 0 DESC LIMIT 1";
    /// Messages of no run first, then run by run in the order of the runs.
    inbox: concat!("WITH after AS MATERIALIZED (
            SELECT r.ordinal FROM runs r WHERE r.run = (SELECT m.run FROM inbox m WHERE m.n = $3 AND m.tenant = $1 AND m.agent = $2)
        ) (SELECT ", message_columns!(), " FROM inbox m
           WHERE NOT EXISTS (SELECT 1 FROM after) AND m.tenant = $1 AND m.agent = $2 AND m.run IS NULL AND m.n + 0 > $3
           ORDER BY m.n + 0 LIMIT $4)
        UNION ALL
          (SELECT ", message_columns!(), " FROM runs r CROSS JOIN LATERAL (SELECT * FROM inbox m WHERE m.run = r.run OFFSET 0) AS m
           WHERE r.tenant = $1 AND r.agent = $2 AND r.ordinal >= coalesce((SELECT ordinal FROM after), 0)
             AND (r.ordinal > coalesce((SELECT ordinal FROM after), 0) OR m.n > $3)
           ORDER BY r.ordinal, m.n LIMIT $4)
        LIMIT $4");
    calls: concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.run = $1 AND c.call >= $2 ORDER BY c.call LIMIT $3");
    waiting_calls: concat!("SELECT ", call_columns!(), " FROM calls c CROSS JOIN LATERAL (
            SELECT 1 FROM heads h WHERE h.tenant = c.tenant AND h.agent = c.agent AND h.run = c.run AND h.quarantined IS NULL LIMIT 1
        ) AS head
        WHERE c.tenant = $1 AND c.tool = $2 AND c.status = 'waiting' AND c.deadline > $3 ORDER BY c.created_at, c.run, c.call LIMIT $4");
    calls_by_key: concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.tenant = $1 AND c.claim_key = $2");
    /// A left join, so that an item that is gone is an error and not a gap.
    box_items: "SELECT b.position, t.item, t.kind, t.hash, t.content
        FROM box_rows b LEFT JOIN LATERAL (SELECT * FROM items t WHERE t.item = b.item LIMIT 1) AS t ON true
        WHERE b.box = $1 AND b.position >= $2 AND b.position < $3 ORDER BY b.position LIMIT $4";
    due: "SELECT h.tenant, h.agent FROM heads h WHERE h.wake_at <= $1 ORDER BY h.wake_at, h.tenant, h.agent LIMIT $2";
    orphans: "SELECT h.tenant, h.agent FROM heads h
        WHERE (h.tenant, h.agent) > ($1, $2) AND h.quarantined IS NULL AND h.owner IS DISTINCT FROM $3
          AND (h.status IN ('dispatched', 'running') OR (h.status = 'suspended' AND h.local > 0))
          AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.node = h.owner AND n.alive_until > clock_timestamp())
        ORDER BY h.tenant, h.agent LIMIT $4";
    outbox: "SELECT o.n, o.tenant, o.agent, o.run, o.first, o.count FROM outbox o ORDER BY o.n LIMIT $1";

    /// Two servers may make the same head at once: then one of them finds fewer rows than it made, and starts over.
    insert_heads: all_of!("text", "INSERT INTO heads (tenant, agent, status, epoch, seq, run, owner, waiting, deadline, wake_at, pending,
            queued, runs, local, quarantined)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[])
        ON CONFLICT (tenant, agent) DO NOTHING");
    /// They stand and are locked. Said as an insert, because that looks each one up without any plan to go wrong.
    update_heads: "INSERT INTO heads (tenant, agent, status, epoch, seq, run, owner, waiting, deadline, wake_at, pending,
            queued, runs, local, quarantined)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[])
        ON CONFLICT (tenant, agent) DO UPDATE SET status = excluded.status, epoch = excluded.epoch, seq = excluded.seq, run = excluded.run,
            owner = excluded.owner, waiting = excluded.waiting, deadline = excluded.deadline, wake_at = excluded.wake_at,
            pending = excluded.pending, queued = excluded.queued, runs = excluded.runs, local = excluded.local,
            quarantined = excluded.quarantined";
    insert_runs: "INSERT INTO runs (run, tenant, agent, ordinal, status, epoch, message, kind, dedupe, manifest, context, output,
            state_version, state, iteration, trace, parent_step, source, depth, deliverable, created_at, ended_at)
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],
            $9::text[], $10::bytea[], $11::bytea[], $12::bytea[], $13::bigint[], $14::bytea[], $15::bigint[], $16::bytea[], $17::text[],
            $18::text[], $19::bigint[], $20::bytea[], $21::bigint[], $22::bigint[])";
    update_runs: all_of!("bytea", "UPDATE runs r SET status = q.status, epoch = q.epoch, state_version = q.state_version, state = q.state,
            iteration = q.iteration, deliverable = q.deliverable, ended_at = q.ended_at
        FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bytea[], $8::bigint[])
            AS q(run, status, epoch, state_version, state, iteration, deliverable, ended_at)
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run LIMIT 1) AS found WHERE r.ctid = found.ctid");
    activate_runs: all_of!("bytea", "UPDATE runs r SET status = 'active', epoch = q.epoch
        FROM unnest($1::bytea[], $2::bigint[]) AS q(run, epoch)
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run LIMIT 1) AS found WHERE r.ctid = found.ctid");
    insert_manifests: "INSERT INTO manifests (hash, body) SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT (hash) DO NOTHING";
    add_open_runs: "INSERT INTO tenants (tenant, slot, open) SELECT q.a, $2::bigint, q.b FROM unnest($1::text[], $3::bigint[]) AS q(a, b)
        ON CONFLICT (tenant, slot) DO UPDATE SET open = tenants.open + excluded.open";
    insert_stretches: "INSERT INTO stretches (run, first, epoch, at, version, events)
        SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])";
    insert_messages: "INSERT INTO inbox (n, tenant, agent, kind, status, run, epoch, call, item, outcome, after_execution, source, reason,
            created_at, processed_at)
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::bigint[], $8::bigint[],
            $9::bytea[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[])";
    update_messages: all_of!("bigint", "UPDATE inbox m SET status = q.status, epoch = coalesce(q.epoch, m.epoch),
            processed_at = coalesce(q.processed_at, m.processed_at), reason = coalesce(q.reason, m.reason)
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[])
            AS q(n, tenant, agent, status, epoch, processed_at, reason)
        CROSS JOIN LATERAL (SELECT t.ctid FROM inbox t WHERE t.n = q.n AND t.tenant = q.tenant AND t.agent = q.agent LIMIT 1) AS found
        WHERE m.ctid = found.ctid");
    insert_calls: "INSERT INTO calls (tenant, agent, run, call, iteration, tool, route, effect, status, created_at, deadline, item, result,
            worker, lease_until, attempt, claim_key)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::text[], $15::bigint[], $16::bigint[], $17::text[])";
    update_calls: all_of!("bytea", "UPDATE calls c SET status = q.status, deadline = q.deadline, result = q.result, worker = q.worker,
            lease_until = q.lease_until, attempt = q.attempt, claim_key = q.claim_key
        FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::bigint[], $5::bytea[], $6::text[], $7::bigint[], $8::bigint[], $9::text[])
            AS q(run, call, status, deadline, result, worker, lease_until, attempt, claim_key)
        CROSS JOIN LATERAL (SELECT t.ctid FROM calls t WHERE t.run = q.run AND t.call = q.call LIMIT 1) AS found WHERE c.ctid = found.ctid");
    move_calls: all_of!("bytea", "UPDATE calls c SET status = q.status, result = coalesce(q.result, c.result),
            deadline = coalesce(q.deadline, c.deadline), lease_until = NULL, claim_key = NULL,
            worker = CASE WHEN q.status = 'waiting' THEN NULL ELSE c.worker END
        FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::bytea[], $5::bigint[]) AS q(run, call, status, result, deadline)
        CROSS JOIN LATERAL (SELECT t.ctid FROM calls t WHERE t.run = q.run AND t.call = q.call LIMIT 1) AS found WHERE c.ctid = found.ctid");
    insert_items: "INSERT INTO items (item, tenant, kind, hash, content)
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[], $5::bytea[])";
    insert_boxes: "INSERT INTO boxes (box, tenant, parent, parent_length, depth, inherited)
        SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[])";
    insert_box_rows: "INSERT INTO box_rows (box, position, item) SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[])";
    insert_outbox: "INSERT INTO outbox (tenant, agent, run, first, count)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])";
    /// A lock per schema, as the tables are.
    lock_outbox: "SELECT pg_try_advisory_lock(hashtextextended('windlass outbox in ' || current_schema(), 0))";
    forget_outbox: "DELETE FROM outbox WHERE n = ANY($1::bigint[])";
    beat: "INSERT INTO nodes (node, alive_until) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond')
        ON CONFLICT (node) DO UPDATE SET alive_until = excluded.alive_until
        RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    lost_nodes: "SELECT n.node FROM nodes n WHERE n.alive_until <= clock_timestamp() ORDER BY n.node";
    bury: "DELETE FROM nodes WHERE node = ANY($1::bigint[]) AND alive_until <= clock_timestamp()";
}
