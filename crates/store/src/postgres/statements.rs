//! Every SQL text. Each is prepared once per connection.
//!
//! A statement reads or writes many keys at once: arrays come in, and `i` says which key a row answers. Each lookup is a `LATERAL` subquery
//! that can't be merged into the rest, so that the only possible plan scans the keys and looks each one up in an index, whatever the
//! planner assumes about the size of a table. Changes work in the same way: they find the position of each row first, which stays valid
//! while the transaction has the head locked. Where an `ORDER BY` would tempt the planner into scanning another index, the code sorts. A
//! change that must find its rows divides by zero if it does not: the commit is already sent behind it, and only an error turns that into a
//! rollback.
//!
//! What many commits write together is one statement for several tables, because each statement costs the server a message and a start,
//! which for a group of ten rows is more than the rows. Arrays are unnested side by side in a select list, which streams their rows; in a
//! `FROM` each array would be stored first.

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Statement};

use super::new_heads::put_heads;

macro_rules! head_columns {
    () => {
        "h.status, h.epoch, h.seq, h.run, h.owner, h.waiting, h.deadline, h.wake_at, h.pending, h.queued, h.runs, h.local, h.quarantined,
         h.held"
    };
}

macro_rules! brief_columns {
    () => {
        "r.run, r.tenant, r.agent, r.ordinal, r.status, r.epoch, r.message, r.agent_name"
    };
}

macro_rules! run_columns {
    () => {
        concat!(
            brief_columns!(),
            ", r.kind, r.dedupe, r.manifest, r.context, r.output, r.state_version, r.state, r.iteration, r.trace, r.parent_step, r.source,
               r.depth, r.deliverable, r.created_at, r.ended_at, r.note, r.takes, r.erase_ms,
               r.held_ms, r.follows, r.unlisted, r.parent, r.parent_agent, r.parent_call"
        )
    };
}

macro_rules! message_columns {
    () => {
        "m.n, m.kind, m.status, m.run, m.epoch, m.call, m.item, m.outcome, m.after_execution, m.source, m.reason, m.created_at,
         m.processed_at, m.below, m.retry"
    };
}

macro_rules! call_columns {
    () => {
        "c.tenant, c.agent, c.run, c.call, c.iteration, c.tool, c.route, c.effect, c.status, c.created_at, c.deadline, c.item, c.result,
         c.worker, c.lease_until, c.attempt, c.claim_key, c.retry"
    };
}

macro_rules! interrupt_columns {
    () => {
        "i.tenant, i.head, i.run, i.n, i.agent_name, i.cause, i.call, i.shows, i.created_at, i.until, i.on_timeout, i.needs, i.approvals,
         i.verdict, i.by_name, i.answered_at"
    };
}

/// A page of interrupts, with the filters.
macro_rules! list_interrupts {
    ($from:literal) => {
        concat!(
            "SELECT ",
            interrupt_columns!(),
            " FROM ",
            $from,
            " AND ($5::text IS NULL OR i.cause = $5)
            AND ($6::text IS NULL OR coalesce(i.agent_name, i.head) = $6) ORDER BY i.created_at, i.run, i.n LIMIT $7"
        )
    };
}

/// Numbered keys of one column, and of two.
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
    ($a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!("unnest($1::", $a, "[], $2::", $b, "[], $3::", $c, "[], $4::", $d, "[]) WITH ORDINALITY AS q(a, b, c, d, i)")
    };
}

/// For each key, the rows of a subquery.
macro_rules! each {
    ($keys:expr, $rows:expr) => {
        concat!("SELECT q.i, found.* FROM ", $keys, " CROSS JOIN LATERAL (", $rows, ") AS found")
    };
}

/// A change that must change as many rows as the first array has keys.
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
            /// All statements, by name.
            pub(super) const ALL: &'static [(&'static str, &'static str)] = &[$((stringify!($name), $sql)),+];

            /// Prepares all statements in one batch.
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
    /// Heads, locked in the order of the keys. The callers sort the keys, so that they can't deadlock.
    lock_heads: each!(by!("text", "text"), concat!("SELECT ", head_columns!(),
        " FROM heads h WHERE h.tenant = q.a AND h.agent = q.b FOR UPDATE"));
    numbers: "WITH pinned AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(pin) FROM unnest($2::bigint[]) AS pin)
        SELECT nextval('inbox_numbers') FROM (SELECT count(*) FROM pinned) AS locked, generate_series(1, $1::bigint)";

    heads: each!(by!("text", "text"), concat!("SELECT ", head_columns!(), " FROM heads h WHERE h.tenant = q.a AND h.agent = q.b LIMIT 1"));
    briefs: each!(by!("bytea"), concat!("SELECT ", brief_columns!(), " FROM runs r WHERE r.run = q.a LIMIT 1"));
    runs_by_dedupe: each!(by!("text", "text"), concat!("SELECT ", brief_columns!(),
        " FROM runs r WHERE r.tenant = q.a AND r.dedupe = q.b LIMIT 1"));
    runs_taking: each!(by!("text", "bytea"), concat!("SELECT ", brief_columns!(),
        " FROM runs r WHERE r.tenant = q.a AND r.takes = q.b LIMIT 1"));
    next_queued: each!(by!("text", "text", "bigint"), concat!("SELECT ", brief_columns!(),
        " FROM runs r WHERE r.tenant = q.a AND r.agent = q.b AND r.ordinal > q.c AND r.status = 'queued' ORDER BY r.ordinal LIMIT 1"));
    open_runs: "SELECT q.i, (SELECT coalesce(sum(t.open), 0)::bigint FROM tenants t WHERE t.tenant = q.a) \
                FROM unnest($1::text[]) WITH ORDINALITY AS q(a, i)";
    messages: each!(by!("text", "text", "bigint"), concat!("SELECT ", message_columns!(),
        " FROM inbox m WHERE m.n = q.c AND m.tenant = q.a AND m.agent = q.b LIMIT 1"));
    reports: each!(by!("bytea", "bigint", "text", "bigint"),
        "SELECT m.n FROM inbox m WHERE m.run = q.a AND m.call = q.b AND m.kind = q.c AND m.retry = q.d LIMIT 1");
    pending: each!(by!("text", "text"), concat!("SELECT ", message_columns!(),
        " FROM inbox m WHERE m.tenant = q.a AND m.agent = q.b AND m.status = 'pending' OFFSET 0"));
    call: each!(by!("bytea", "bigint"), concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.run = q.a AND c.call = q.b LIMIT 1"));
    open_calls: each!(by!("bytea"), concat!("SELECT ", call_columns!(),
        " FROM calls c WHERE c.run = q.a AND c.status NOT IN ('applied', 'expired', 'dropped') OFFSET 0"));
    claims: each!(by!("bytea"), concat!("SELECT ", call_columns!(),
        " FROM calls c WHERE c.run = q.a AND c.status = 'claimed' OFFSET 0"));
    items: each!(by!("text", "bytea"),
        "SELECT t.item, t.kind, t.hash, t.content, t.header FROM items t WHERE t.item = q.b AND t.tenant = q.a LIMIT 1");
    boxes: each!(by!("bytea"), "SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited, b.shared FROM boxes b WHERE b.box = q.a LIMIT 1");
    /// Boxes with all boxes that must be read before them.
    box_chains: "WITH RECURSIVE chain AS (
            SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited, b.shared
            FROM unnest($1::bytea[]) AS q(a) CROSS JOIN LATERAL (SELECT * FROM boxes b WHERE b.box = q.a LIMIT 1) AS b
            UNION ALL
            SELECT b.box, b.tenant, b.parent, b.parent_length, b.depth, b.inherited, b.shared
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
    manifests: each!(by!("text", "bytea"), "SELECT f.body FROM manifests f WHERE f.tenant = q.a AND f.hash = q.b LIMIT 1");

    run_from: concat!("SELECT ", run_columns!(),
        " FROM runs r WHERE r.tenant = $1 AND r.agent = $2 AND r.ordinal >= $3 ORDER BY r.ordinal LIMIT 1");
    /// The first batch of events may begin before the first event of the page.
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
            SELECT 1 FROM heads h WHERE h.tenant = c.tenant AND h.agent = c.agent AND h.run = c.run AND NOT h.held
              AND h.quarantined IS NULL LIMIT 1
        ) AS head
        WHERE c.tenant = $1 AND c.tool = $2 AND c.status = 'waiting' AND c.deadline > $3
        ORDER BY c.created_at, c.run, c.call LIMIT $4");
    calls_by_key: concat!("SELECT ", call_columns!(), " FROM calls c WHERE c.tenant = $1 AND c.claim_key = $2");
    /// A left join, so that a missing item is an error and not a gap.
    box_items: "SELECT b.position, t.item, t.kind, t.hash, t.content, t.header
        FROM box_rows b LEFT JOIN LATERAL (SELECT * FROM items t WHERE t.item = b.item LIMIT 1) AS t ON true
        WHERE b.box = $1 AND b.position >= $2 AND b.position < $3 ORDER BY b.position LIMIT $4";
    /// The length is read without the content.
    content_bytes: "SELECT coalesce(sum(t.bytes), 0)::bigint
        FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS q(a, b, c)
        CROSS JOIN LATERAL (SELECT b.item FROM box_rows b WHERE b.box = q.a AND b.position >= q.b AND b.position < q.c OFFSET 0) AS r
        CROSS JOIN LATERAL (SELECT octet_length(t.content) AS bytes FROM items t WHERE t.item = r.item LIMIT 1) AS t";
    due: "SELECT h.tenant, h.agent FROM heads h WHERE h.wake_at <= $1 ORDER BY h.wake_at, h.tenant, h.agent LIMIT $2";
    orphans: "SELECT h.tenant, h.agent FROM heads h
        WHERE (h.tenant, h.agent) > ($1, $2) AND h.quarantined IS NULL AND h.owner IS DISTINCT FROM $3
          AND (h.status IN ('dispatched', 'running') OR (h.status = 'suspended' AND h.local > 0))
          AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.node = h.owner AND n.alive_until > clock_timestamp())
        ORDER BY h.tenant, h.agent LIMIT $4";
    /// In the order of an index that begins with the tenant, so that no other index is scanned.
    listed_runs: concat!("SELECT ", run_columns!(), " FROM runs r WHERE NOT r.unlisted
        AND (r.tenant, r.run) < ($1, $2) AND (r.tenant, r.run) >= ($1, ''::bytea) ORDER BY r.tenant DESC, r.run DESC LIMIT $3");
    /// Ordinals and ids of one head have the same order but for runs that were accepted at the same moment. Reading some rows more keeps
    /// such runs on one page.
    named_runs: concat!("SELECT ", run_columns!(), " FROM (
            (SELECT t.run FROM runs t WHERE NOT t.unlisted AND t.agent_name <> t.agent
                AND (t.tenant, t.agent_name, t.run) < ($1, $4, $2) AND (t.tenant, t.agent_name, t.run) >= ($1, $4, ''::bytea)
             ORDER BY t.tenant DESC, t.agent_name DESC, t.run DESC LIMIT $3)
            UNION ALL
            (SELECT w.run FROM runs w WHERE w.agent_name = $4 AND w.run < $2
                AND (w.tenant, w.agent, w.ordinal) < ($1, $4, $5 + coalesce(
                    (SELECT c.ordinal FROM runs c WHERE c.run = $2 AND c.tenant = $1 AND c.agent = $4), 1::bigint << 60))
                AND (w.tenant, w.agent, w.ordinal) >= ($1, $4, 0)
             ORDER BY w.tenant DESC, w.agent DESC, w.ordinal DESC LIMIT $3 + $5)
        ) AS o CROSS JOIN LATERAL (SELECT * FROM runs t WHERE t.run = o.run LIMIT 1) AS r ORDER BY r.run DESC LIMIT $3");
    /// The order is not that of an index, so that only the index over parents fits.
    child_runs: concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.parent IS NOT NULL AND r.tenant = $1 AND r.parent = $4
        AND r.run < $2 ORDER BY r.run || ''::bytea DESC LIMIT $3");
    unended_runs: concat!("SELECT ", run_columns!(), " FROM (
            (SELECT h.run FROM heads h WHERE h.tenant = $1 AND h.run < $2 ORDER BY h.run DESC LIMIT $3)
            UNION ALL
            (SELECT w.run FROM runs w WHERE w.epoch IS NULL AND (w.tenant, w.run) < ($1, $2) AND (w.tenant, w.run) >= ($1, ''::bytea)
             ORDER BY w.tenant DESC, w.run DESC LIMIT $3)
        ) AS o CROSS JOIN LATERAL (SELECT * FROM runs t WHERE t.run = o.run LIMIT 1) AS r ORDER BY r.run DESC LIMIT $3");
    agent_names: super::lists::AGENT_NAMES;
    instructions: each!(by!("text", "bytea"), "SELECT substring(t.content FROM 1 FOR 2048)
        FROM (SELECT b.item, b.position FROM box_rows b WHERE b.box = q.b AND b.position >= 0 ORDER BY b.position DESC LIMIT 16) AS p
        CROSS JOIN LATERAL (SELECT * FROM items i WHERE i.item = p.item LIMIT 1) AS t
        WHERE t.kind = 'task.instruction' AND t.tenant = q.a ORDER BY p.position DESC LIMIT 1");
    outbox: "SELECT o.n, o.tenant, o.agent, o.run, o.first, o.count FROM outbox o ORDER BY o.n LIMIT $1";

    /// Two servers may make the same head at once: then one of them inserts fewer rows than it sent, and starts over.
    insert_heads: all_of!("text", concat!(put_heads!(), " ON CONFLICT (tenant, agent) DO NOTHING"));
    /// The rows exist and are locked.
    delete_heads: all_of!("text", "DELETE FROM heads h USING unnest($1::text[], $2::text[]) AS q(tenant, agent)
        CROSS JOIN LATERAL (SELECT t.ctid FROM heads t WHERE t.tenant = q.tenant AND t.agent = q.agent LIMIT 1) AS found
        WHERE h.ctid = found.ctid");
    /// A run that begins and one that ends. If a manifest is missing, because its last run was erased after this server stored it, the
    /// square root fails, and the manifest is stored again. The counts are written after the runs: a transaction that waits for a key holds
    /// no count that others need.
    write_ends: "WITH
        begun AS (INSERT INTO runs (run, tenant, agent, ordinal, status, epoch, message, kind, dedupe, manifest, context, output,
            state_version, state, iteration, trace, parent_step, source, depth, deliverable, created_at, ended_at, note, takes,
            erase_ms, held_ms, follows, agent_name, unlisted)
            SELECT unnest($1::bytea[]), unnest($2::text[]), unnest($3::text[]), unnest($4::bigint[]), unnest($5::text[]),
                unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::text[]), unnest($9::text[]), unnest($10::bytea[]),
                unnest($11::bytea[]), unnest($12::bytea[]), unnest($13::bigint[]), unnest($14::bytea[]), unnest($15::bigint[]),
                unnest($16::bytea[]), unnest($17::text[]), unnest($18::text[]), unnest($19::bigint[]), unnest($20::bytea[]),
                unnest($21::bigint[]), unnest($22::bigint[]), unnest($23::bytea[]), unnest($24::bytea[]), unnest($25::bigint[]),
                unnest($26::bigint[]), unnest($27::bytea[]), unnest($28::text[]), unnest($29::boolean[])
            RETURNING 1),
        changed AS (UPDATE runs r SET status = q.status, epoch = q.epoch, state_version = q.state_version, state = q.state,
                iteration = q.iteration, deliverable = q.deliverable, ended_at = q.ended_at
            FROM (SELECT unnest($30::bytea[]) AS run, unnest($31::text[]) AS status, unnest($32::bigint[]) AS epoch,
                unnest($33::bigint[]) AS state_version, unnest($34::bytea[]) AS state, unnest($35::bigint[]) AS iteration,
                unnest($36::bytea[]) AS deliverable, unnest($37::bigint[]) AS ended_at) AS q
            CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run LIMIT 1) AS found WHERE r.ctid = found.ctid RETURNING 1),
        made AS (INSERT INTO boxes (box, tenant, parent, parent_length, depth, inherited)
            SELECT unnest($38::bytea[]), unnest($39::text[]), unnest($40::bytea[]), unnest($41::bigint[]), unnest($42::bigint[]),
                unnest($43::bigint[])),
        counted AS (INSERT INTO tenants (tenant, slot, open)
            SELECT q.tenant, $46::bigint, q.change FROM (SELECT unnest($44::text[]) AS tenant, unnest($45::bigint[]) AS change) AS q
            WHERE (SELECT count(*) FROM begun) >= 0
            ON CONFLICT (tenant, slot) DO UPDATE SET open = tenants.open + excluded.open)
        SELECT 1 / ((SELECT count(*) FROM changed) = cardinality($30::bytea[]))::int, sqrt(-(SELECT count(*)
            FROM (SELECT DISTINCT p.tenant, p.hash FROM unnest($2::text[], $10::bytea[]) AS p(tenant, hash)) AS p
            WHERE NOT EXISTS (SELECT 1 FROM manifests m WHERE m.tenant = p.tenant AND m.hash = p.hash))::float8)";
    /// What almost every commit writes. The heads exist and are locked. They are written as an insert with a conflict clause, because that
    /// looks each one up whatever the planner assumes.
    write_iterations: concat!("WITH
        shown AS (", put_heads!(), "
            ON CONFLICT (tenant, agent) DO UPDATE SET status = excluded.status, epoch = excluded.epoch, seq = excluded.seq,
                run = excluded.run, owner = excluded.owner, waiting = excluded.waiting, deadline = excluded.deadline,
                wake_at = excluded.wake_at, pending = excluded.pending, queued = excluded.queued, runs = excluded.runs,
                local = excluded.local, quarantined = excluded.quarantined, held = excluded.held),
        journaled AS (INSERT INTO stretches (run, first, epoch, at, version, events)
            SELECT unnest($17::bytea[]), unnest($18::bigint[]), unnest($19::bigint[]), unnest($20::bigint[]), unnest($21::bigint[]),
                unnest($22::text[])),
        stored AS (INSERT INTO items (item, tenant, kind, hash, content, header)
            SELECT unnest($23::bytea[]), unnest($24::text[]), unnest($25::text[]), unnest($26::bytea[]), unnest($27::bytea[]),
                unnest($28::bytea[])),
        placed AS (INSERT INTO box_rows (box, position, item)
            SELECT unnest($29::bytea[]), unnest($30::bigint[]), unnest($31::bytea[])),
        sent AS (INSERT INTO inbox (n, tenant, agent, kind, status, run, epoch, call, item, outcome, after_execution, source,
            reason, created_at, processed_at, retry)
            SELECT unnest($32::bigint[]), unnest($33::text[]), unnest($34::text[]), unnest($35::text[]), unnest($36::text[]),
                unnest($37::bytea[]), unnest($38::bigint[]), unnest($39::bigint[]), unnest($40::bytea[]), unnest($41::text[]),
                unnest($42::text[]), unnest($43::text[]), unnest($44::text[]), unnest($45::bigint[]), unnest($46::bigint[]), unnest($70::bigint[])),
        called AS (INSERT INTO calls (tenant, agent, run, call, iteration, tool, route, effect, status, created_at, deadline, item,
            result, worker, lease_until, attempt, claim_key)
            SELECT unnest($47::text[]), unnest($48::text[]), unnest($49::bytea[]), unnest($50::bigint[]), unnest($51::bigint[]),
                unnest($52::text[]), unnest($53::text[]), unnest($54::text[]), unnest($55::text[]), unnest($56::bigint[]),
                unnest($57::bigint[]), unnest($58::bytea[]), unnest($59::bytea[]), unnest($60::text[]), unnest($61::bigint[]),
                unnest($62::bigint[]), unnest($63::text[])),
        moved AS (UPDATE calls c SET status = q.status, result = coalesce(q.result, c.result),
                deadline = coalesce(q.deadline, c.deadline), item = coalesce(q.item, c.item), lease_until = NULL, claim_key = NULL,
                worker = CASE WHEN q.status = 'waiting' THEN NULL ELSE c.worker END,
                attempt = c.attempt + (q.status = 'started')::int, retry = coalesce(q.retry, c.retry)
            FROM (SELECT unnest($64::bytea[]) AS run, unnest($65::bigint[]) AS call, unnest($66::text[]) AS status,
                unnest($67::bytea[]) AS result, unnest($68::bigint[]) AS deadline, unnest($69::bytea[]) AS item,
                unnest($71::bigint[]) AS retry) AS q
            CROSS JOIN LATERAL (SELECT t.ctid FROM calls t WHERE t.run = q.run AND t.call = q.call LIMIT 1) AS found
            WHERE c.ctid = found.ctid RETURNING 1)
        SELECT 1 / ((SELECT count(*) FROM moved) = cardinality($64::bytea[]))::int");
    /// Only child runs have parents, so that other runs pay nothing for these columns.
    mark_children: all_of!("bytea", "UPDATE runs r SET parent = q.parent, parent_agent = q.agent, parent_call = q.call
        FROM (SELECT unnest($1::bytea[]) AS run, unnest($2::bytea[]) AS parent, unnest($3::text[]) AS agent,
            unnest($4::bigint[]) AS call) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run LIMIT 1) AS found WHERE r.ctid = found.ctid");
    /// Only results of child runs say what those used.
    mark_below: all_of!("bigint", "UPDATE inbox m SET below = q.below FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::text[]) AS below) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM inbox t WHERE t.n = q.n LIMIT 1) AS found WHERE m.ctid = found.ctid");
    activate_runs: all_of!("bytea", "UPDATE runs r SET status = 'active', epoch = q.epoch
        FROM (SELECT unnest($1::bytea[]) AS run, unnest($2::bigint[]) AS epoch) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run LIMIT 1) AS found WHERE r.ctid = found.ctid");
    insert_manifests: "INSERT INTO manifests (tenant, hash, body) SELECT unnest($1::text[]), unnest($2::bytea[]), unnest($3::bytea[])
        ON CONFLICT (tenant, hash) DO NOTHING";
    drop_manifest: "SELECT drop_manifest($1::text, $2::bytea, $3::bytea, $4::bigint, $5::bigint)";
    update_messages: all_of!("bigint", "UPDATE inbox m SET status = q.status, epoch = coalesce(q.epoch, m.epoch),
            processed_at = coalesce(q.processed_at, m.processed_at), reason = coalesce(q.reason, m.reason)
        FROM (SELECT unnest($1::bigint[]) AS n, unnest($2::text[]) AS tenant, unnest($3::text[]) AS agent,
            unnest($4::text[]) AS status, unnest($5::bigint[]) AS epoch, unnest($6::bigint[]) AS processed_at,
            unnest($7::text[]) AS reason) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM inbox t WHERE t.n = q.n AND t.tenant = q.tenant AND t.agent = q.agent LIMIT 1) AS found
        WHERE m.ctid = found.ctid");
    update_calls: all_of!("bytea", "UPDATE calls c SET status = q.status, deadline = q.deadline, result = q.result, worker = q.worker,
            lease_until = q.lease_until, attempt = q.attempt, claim_key = q.claim_key
        FROM (SELECT unnest($1::bytea[]) AS run, unnest($2::bigint[]) AS call, unnest($3::text[]) AS status,
            unnest($4::bigint[]) AS deadline, unnest($5::bytea[]) AS result, unnest($6::text[]) AS worker,
            unnest($7::bigint[]) AS lease_until, unnest($8::bigint[]) AS attempt, unnest($9::text[]) AS claim_key) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM calls t WHERE t.run = q.run AND t.call = q.call LIMIT 1) AS found WHERE c.ctid = found.ctid");
    insert_outbox: "INSERT INTO outbox (tenant, agent, run, first, count)
        SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::bytea[]), unnest($4::bigint[]), unnest($5::bigint[])";
    /// Stores deltas that follow the stored ones of their run. The heads are locked with it, so that a transaction that raises an epoch
    /// comes after it or fences it. A head that changed during the wait for its lock is read in its new state.
    append_deltas: "WITH held AS MATERIALIZED (
            SELECT q.*, coalesce((SELECT d.first + d.count FROM deltas d WHERE d.run = q.run ORDER BY d.first DESC LIMIT 1), 0) AS standing
            FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::bytea[])
                WITH ORDINALITY AS q(tenant, agent, run, epoch, first, count, pieces, text, i)
            CROSS JOIN LATERAL (SELECT h.run, h.epoch FROM heads h WHERE h.tenant = q.tenant AND h.agent = q.agent FOR SHARE) AS head
            WHERE head.run = q.run AND head.epoch = q.epoch
        ), stored AS (
            INSERT INTO deltas (run, first, count, pieces, text)
            SELECT run, first, count, pieces, text FROM held WHERE standing = first AND count > 0
            ON CONFLICT (run, first) DO NOTHING RETURNING 1
        ) SELECT held.i, held.standing, (SELECT count(*) FROM stored) FROM held";
    deltas: "SELECT d.first, d.pieces, d.text FROM deltas d WHERE d.run = $1 ORDER BY d.first";
    forget_deltas: "DELETE FROM deltas d USING unnest($1::bytea[]) AS q(run)
        CROSS JOIN LATERAL (SELECT t.ctid FROM deltas t WHERE t.run = q.run OFFSET 0) AS found WHERE d.ctid = found.ctid";
    /// A lock per schema, because the tables are.
    lock_outbox: "SELECT pg_try_advisory_lock(hashtextextended('windlass outbox in ' || current_schema(), 0))";
    forget_outbox: "DELETE FROM outbox WHERE n = ANY($1::bigint[])";
    beat: "INSERT INTO nodes (node, alive_until) VALUES ($1, clock_timestamp() + $2::bigint * interval '1 millisecond')
        ON CONFLICT (node) DO UPDATE SET alive_until = excluded.alive_until
        RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    lost_nodes: "SELECT n.node FROM nodes n WHERE n.alive_until <= clock_timestamp() ORDER BY n.node";
    bury: "DELETE FROM nodes WHERE node = ANY($1::bigint[]) AND alive_until <= clock_timestamp()";

    conversations: each!(by!("bytea"), "SELECT c.conversation, c.tenant, c.created_at, c.metadata, c.version, c.items, c.tail, c.tail_length,
        c.gone FROM conversations c WHERE c.conversation = q.a LIMIT 1");
    conversation_parts: each!(by!("bytea"), "SELECT p.run, p.box FROM conversation_parts p WHERE p.conversation = q.a ORDER BY p.n OFFSET 0");
    insert_conversations: "INSERT INTO conversations (conversation, tenant, created_at, metadata, version, items, tail, tail_length, gone)
        SELECT unnest($1::bytea[]), unnest($2::text[]), unnest($3::bigint[]), unnest($4::bytea[]), unnest($5::bigint[]),
            unnest($6::bigint[]), unnest($7::bytea[]), unnest($8::bigint[]), unnest($9::bytea[])";
    update_conversations: all_of!("bytea", "UPDATE conversations c SET metadata = q.metadata, version = q.version, items = q.items,
            tail = q.tail, tail_length = q.tail_length, gone = q.gone
        FROM (SELECT unnest($1::bytea[]) AS conversation, unnest($2::bytea[]) AS metadata, unnest($3::bigint[]) AS version,
            unnest($4::bigint[]) AS items, unnest($5::bytea[]) AS tail, unnest($6::bigint[]) AS tail_length,
            unnest($7::bytea[]) AS gone) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM conversations t WHERE t.conversation = q.conversation LIMIT 1) AS found
        WHERE c.ctid = found.ctid");
    delete_conversations: "WITH parts AS (DELETE FROM conversation_parts p USING unnest($1::bytea[]) AS q(id)
            CROSS JOIN LATERAL (SELECT t.ctid FROM conversation_parts t WHERE t.conversation = q.id OFFSET 0) AS found
            WHERE p.ctid = found.ctid)
        DELETE FROM conversations c USING unnest($1::bytea[]) AS q(id)
        CROSS JOIN LATERAL (SELECT t.ctid FROM conversations t WHERE t.conversation = q.id LIMIT 1) AS found WHERE c.ctid = found.ctid";
    insert_parts: "INSERT INTO conversation_parts (conversation, n, run, box)
        SELECT unnest($1::bytea[]), unnest($2::bigint[]), unnest($3::bytea[]), unnest($4::bytea[])";
    bind_boxes: all_of!("bytea", "UPDATE boxes b SET parent = q.parent, parent_length = q.parent_length, depth = q.depth,
            inherited = q.inherited
        FROM (SELECT unnest($1::bytea[]) AS box, unnest($2::bytea[]) AS parent, unnest($3::bigint[]) AS parent_length,
            unnest($4::bigint[]) AS depth, unnest($5::bigint[]) AS inherited) AS q
        CROSS JOIN LATERAL (SELECT t.ctid FROM boxes t WHERE t.box = q.box LIMIT 1) AS found WHERE b.ctid = found.ctid");
    answers: each!(by!("text", "text"), "SELECT a.tenant, a.key, a.asked, a.run, a.message, a.lost FROM answers a
        WHERE a.tenant = q.a AND a.key = q.b LIMIT 1");
    insert_answers: "INSERT INTO answers (tenant, key, asked, run, message, lost)
        SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::bytea[]), unnest($4::bytea[]), unnest($5::bigint[]), unnest($6::bytea[])";

    interrupts: each!(by!("text", "bytea", "bigint"), concat!("SELECT ", interrupt_columns!(),
        " FROM interrupts i WHERE i.run = q.b AND i.n = q.c AND i.tenant = q.a LIMIT 1"));
    open_interrupts: list_interrupts!("interrupts i WHERE i.tenant = $1 AND i.verdict IS NULL
        AND (i.created_at, i.run, i.n) > ($2, $3, $4)");
    all_interrupts: list_interrupts!("interrupts i WHERE i.tenant = $1 AND (i.created_at, i.run, i.n) > ($2, $3, $4)");
    /// A run has few interrupts, which are sorted.
    interrupts_of_run: list_interrupts!("(SELECT * FROM interrupts t WHERE t.run = $8 OFFSET 0) AS i WHERE i.tenant = $1
        AND ($9::boolean OR i.verdict IS NULL) AND (i.created_at, i.run, i.n) > ($2, $3, $4)");
    insert_interrupts: "INSERT INTO interrupts (tenant, head, run, n, agent_name, cause, call, shows, created_at, until, on_timeout, needs,
            approvals, verdict, by_name, answered_at)
        SELECT unnest($1::text[]), unnest($2::text[]), unnest($3::bytea[]), unnest($4::bigint[]), unnest($5::text[]), unnest($6::text[]),
            unnest($7::bigint[]), unnest($8::bytea[]), unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::text[]),
            unnest($12::bigint[]), unnest($13::text[]), unnest($14::text[]), unnest($15::text[]), unnest($16::bigint[])";
    /// Two lists of names are joined as texts, because `jsonb` can't hold every name.
    change_interrupts: all_of!("bytea", "UPDATE interrupts i SET shows = coalesce(q.shows, i.shows), approvals = CASE
                WHEN q.shows IS NOT NULL OR i.approvals = '[]' THEN q.approvals WHEN q.approvals = '[]' THEN i.approvals
                ELSE left(i.approvals, -1) || ',' || substr(q.approvals, 2) END,
            verdict = q.verdict, by_name = q.by_name, answered_at = q.answered_at
        FROM (SELECT unnest($1::bytea[]) AS run, unnest($2::bigint[]) AS n, unnest($3::text[]) AS approvals, unnest($4::text[]) AS verdict,
            unnest($5::text[]) AS by_name, unnest($6::bigint[]) AS answered_at, unnest($7::bytea[]) AS shows) AS q
        CROSS JOIN LATERAL (SELECT t.ctid, t.verdict FROM interrupts t WHERE t.run = q.run AND t.n = q.n LIMIT 1) AS found
        WHERE i.ctid = found.ctid AND found.verdict IS NULL");
    close_interrupts: "UPDATE interrupts i SET verdict = q.verdict, by_name = q.by_name, answered_at = q.answered_at
        FROM (SELECT unnest($1::bytea[]) AS run, unnest($2::text[]) AS verdict, unnest($3::text[]) AS by_name,
            unnest($4::bigint[]) AS answered_at) AS q
        CROSS JOIN LATERAL (SELECT t.ctid, t.verdict FROM interrupts t WHERE t.run = q.run OFFSET 0) AS found
        WHERE i.ctid = found.ctid AND found.verdict IS NULL";

    open_requests: each!(by!("text", "bytea"), "SELECT o.tenant, o.hash, o.run, o.node, o.left_at FROM requests o
        WHERE o.tenant = q.a AND o.hash = q.b ORDER BY o.run OFFSET 0");
    insert_requests: "INSERT INTO requests (tenant, hash, run, node)
        SELECT unnest($1::text[]), unnest($2::bytea[]), unnest($3::bytea[]), unnest($4::bigint[])";
    close_requests: "DELETE FROM requests o USING unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[]) AS q(tenant, hash, run, node)
        CROSS JOIN LATERAL (SELECT t.ctid FROM requests t WHERE t.tenant = q.tenant AND t.hash = q.hash AND t.run = q.run
            AND t.node = q.node LIMIT 1) AS found WHERE o.ctid = found.ctid";
    leave_requests: "UPDATE requests o SET left_at = q.at
        FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) AS q(tenant, hash, run, node, at)
        CROSS JOIN LATERAL (SELECT t.ctid FROM requests t WHERE t.tenant = q.tenant AND t.hash = q.hash AND t.run = q.run
            AND t.node = q.node LIMIT 1) AS found WHERE o.ctid = found.ctid";
    adopt_request: "UPDATE requests o SET node = $5, left_at = NULL WHERE o.tenant = $1 AND o.hash = $2 AND o.run = $3 AND o.node = $4";
    /// A server was lost when its lease ended, or earlier; a server that was deleted was lost before now.
    lost_requests: "SELECT o.tenant, o.hash, o.run, o.node, o.left_at,
            (extract(epoch FROM least(coalesce(n.alive_until, clock_timestamp()), clock_timestamp())) * 1000)::bigint
        FROM requests o LEFT JOIN nodes n ON n.node = o.node
        WHERE o.node <> $1 AND (n.node IS NULL OR n.alive_until <= clock_timestamp())
        ORDER BY o.tenant, o.hash, o.run LIMIT $2";

    insert_uncounted: "INSERT INTO usage_uncounted (run, tenant) SELECT unnest($1::bytea[]), unnest($2::text[])";

    erasable: "SELECT r.tenant, r.agent, r.run FROM runs r WHERE r.erase_at <= $1 ORDER BY r.erase_at, r.run LIMIT $2";
    /// A run that ended and whose follow-up may need it is kept longer, if it is erased at all.
    keep_runs: "UPDATE runs r SET held_ms = q.ms FROM unnest($1::bytea[], $2::bigint[]) AS q(run, ms)
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run AND t.erase_ms < q.ms LIMIT 1) AS found
        WHERE r.ctid = found.ctid";
    /// The end of the follow-up makes the time shorter again. If one of the runs was erased meanwhile, nothing changes.
    release_runs: "UPDATE runs r SET held_ms = least(r.held_ms, greatest(q.now - r.ended_at, 0) + r.erase_ms)
        FROM unnest($1::bytea[], $2::text[], $3::bigint[]) AS q(run, tenant, now)
        CROSS JOIN LATERAL (SELECT t.ctid FROM runs t WHERE t.run = q.run AND t.tenant = q.tenant AND t.ended_at IS NOT NULL
            AND t.erase_ms IS NOT NULL LIMIT 1) AS found WHERE r.ctid = found.ctid";
    share_boxes: all_of!("bytea", "UPDATE boxes b SET shared = true WHERE b.box = ANY($1::bytea[])");
    erase_boxes: "WITH gone_items AS (
            DELETE FROM items i USING (SELECT DISTINCT b.item FROM box_rows b WHERE b.box = ANY($1::bytea[]) AND b.position >= 0) AS own
            CROSS JOIN LATERAL (SELECT t.ctid FROM items t WHERE t.item = own.item LIMIT 1) AS found WHERE i.ctid = found.ctid
        ), gone_rows AS (DELETE FROM box_rows b WHERE b.box = ANY($1)
        ), gone_boxes AS (DELETE FROM boxes b WHERE b.box = ANY($1) AND NOT b.shared RETURNING 1
        ) SELECT 1 / (count(*) = cardinality($1))::int FROM gone_boxes";
    /// All parts of the statement see the run as it was. Items at positions below zero are copies from the parents, and do not belong to
    /// the run.
    erase_run: "WITH own AS MATERIALIZED (
            SELECT m.item FROM inbox m WHERE m.run = $1::bytea AND m.item IS NOT NULL
            UNION SELECT c.item FROM calls c WHERE c.run = $1
            UNION SELECT c.result FROM calls c WHERE c.run = $1 AND c.result IS NOT NULL
            UNION SELECT b.item FROM box_rows b WHERE b.box = ANY($2::bytea[]) AND b.position >= 0
            EXCEPT SELECT b.item FROM box_rows b WHERE b.box = ANY($3::bytea[])
        ), gone_items AS (
            DELETE FROM items i USING own CROSS JOIN LATERAL (SELECT t.ctid FROM items t WHERE t.item = own.item LIMIT 1) AS found
            WHERE i.ctid = found.ctid
        ), gone_rows AS (DELETE FROM box_rows b WHERE b.box = ANY($2)
        ), gone_journal AS (DELETE FROM stretches s WHERE s.run = $1
        ), gone_calls AS (DELETE FROM calls c WHERE c.run = $1
        ), gone_interrupts AS (DELETE FROM interrupts i WHERE i.run = $1
        ), gone_answers AS (DELETE FROM answers a WHERE a.run = $1
        ), emptied AS (UPDATE inbox m SET item = NULL, reason = NULL WHERE m.run = $1
        ), skeleton AS (UPDATE runs r SET note = NULL, deliverable = NULL, erase_ms = NULL, unlisted = true, parent_step = NULL,
                manifest = $4 WHERE r.run = $1
        ), uncounted AS (UPDATE usage_uncounted u SET model = coalesce($5, u.model) WHERE u.run = $1
        ), gone_boxes AS (DELETE FROM boxes b WHERE b.box = ANY($2) AND NOT b.shared RETURNING 1
        ) SELECT 1 / (count(*) = cardinality($2))::int FROM gone_boxes";
}
