-- Ids are sixteen bytes, times are milliseconds since the Unix epoch, content is bytes. Every status and kind is checked:
-- the database refuses nonsense, whoever writes it. The lists are spelled with OR, the commonest words first: an IN of more than
-- two words builds a temporary tree in every statement, which made a commit about twice as dear when it was measured.

-- One row per start of a server process. Leases belong to it.
CREATE TABLE nodes (
    node       INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at INTEGER NOT NULL
);

-- `open` counts the tenant's runs that have not ended.
CREATE TABLE tenants (
    tenant TEXT PRIMARY KEY,
    open   INTEGER NOT NULL CHECK (open >= 0)
) WITHOUT ROWID;

CREATE TABLE manifests (
    hash BLOB PRIMARY KEY,
    body BLOB NOT NULL
);

CREATE TABLE heads (
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status = 'running' OR status = 'suspended' OR status = 'idle' OR status = 'dispatched'),
    epoch       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    run         BLOB,
    owner       INTEGER,
    waiting     INTEGER NOT NULL,
    deadline    INTEGER,
    wake_at     INTEGER,
    -- Pending messages of the active run, or of no run; a run's own turn is not among them.
    pending     INTEGER NOT NULL CHECK (pending >= 0),
    queued      INTEGER NOT NULL CHECK (queued >= 0),
    -- The last ordinal given to a run.
    runs        INTEGER NOT NULL,
    -- Effects the owner owes the run.
    local       INTEGER NOT NULL,
    quarantined TEXT,
    PRIMARY KEY (tenant, agent),
    CHECK ((status = 'idle') = (run IS NULL))
) WITHOUT ROWID;
CREATE INDEX heads_due ON heads (wake_at) WHERE wake_at IS NOT NULL;

-- A table with row numbers: what the doors note makes rows long, and a key tree compares a long row only after reading all of it.
CREATE TABLE runs (
    run           BLOB NOT NULL PRIMARY KEY,
    tenant        TEXT NOT NULL,
    agent         TEXT NOT NULL,
    ordinal       INTEGER NOT NULL,
    status        TEXT NOT NULL CHECK (status = 'active' OR status = 'ended' OR status = 'queued'),
    kind          TEXT NOT NULL CHECK (kind IN ('turn', 'ui_action')),
    epoch         INTEGER,
    -- The turn's inbox row.
    message       INTEGER NOT NULL,
    dedupe        TEXT,
    manifest      BLOB NOT NULL,
    context       BLOB NOT NULL,
    output        BLOB NOT NULL,
    state_version INTEGER NOT NULL,
    state         BLOB NOT NULL,
    iteration     INTEGER NOT NULL,
    trace         BLOB NOT NULL,
    parent_step   TEXT,
    source        TEXT,
    depth         INTEGER NOT NULL,
    deliverable   BLOB,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    -- What the door that took it wants to know again.
    note          BLOB,
    -- The earlier run whose calls it takes over.
    takes         BLOB,
    -- How long after its end it is erased. An end that a follow-up may need makes it longer; once it is erased there is none.
    erase_ms      INTEGER,
    erase_at      INTEGER GENERATED ALWAYS AS (ended_at + erase_ms) VIRTUAL,
    CHECK ((status = 'ended') = (ended_at IS NOT NULL))
);
CREATE UNIQUE INDEX runs_ordinal ON runs (tenant, agent, ordinal);
CREATE UNIQUE INDEX runs_dedupe ON runs (tenant, dedupe) WHERE dedupe IS NOT NULL;
CREATE UNIQUE INDEX runs_takes ON runs (tenant, takes) WHERE takes IS NOT NULL;
CREATE INDEX runs_erasable ON runs (erase_at, run) WHERE erase_at IS NOT NULL;

CREATE TABLE inbox (
    n               INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent           TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind = 'tool_result' OR kind = 'turn' OR kind = 'timeout' OR kind = 'stop'
                    OR kind = 'answer' OR kind = 'ui_action'),
    status          TEXT NOT NULL
                    CHECK (status = 'consumed' OR status = 'pending' OR status = 'queued' OR status = 'processing'
                    OR status = 'error' OR status = 'skipped' OR status = 'deferred'),
    run             BLOB,
    epoch           INTEGER,
    call            INTEGER,
    item            BLOB,
    outcome         TEXT CHECK (outcome = 'success' OR outcome = 'failed' OR outcome = 'canceled' OR outcome = 'timeout'
                    OR outcome = 'partial'),
    after_execution TEXT CHECK (after_execution IN ('suspend', 'terminate')),
    source          TEXT,
    reason          TEXT,
    created_at      INTEGER NOT NULL,
    processed_at    INTEGER
);
-- A call has at most one report of each kind; messages that are about no call are never alike. An agent's inbox is read run by
-- run over this index: one by agent would touch another page for every agent in every commit.
CREATE UNIQUE INDEX inbox_run ON inbox (run, call, kind);
CREATE INDEX inbox_pending ON inbox (tenant, agent) WHERE status = 'pending';
CREATE INDEX inbox_strays ON inbox (tenant, agent) WHERE run IS NULL;

CREATE TABLE calls (
    run         BLOB NOT NULL,
    call        INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    iteration   INTEGER NOT NULL,
    tool        TEXT NOT NULL,
    route       TEXT NOT NULL CHECK (route = 'in_process' OR route = 'external' OR route = 'client'),
    effect      TEXT NOT NULL CHECK (effect = 'read' OR effect = 'idempotent' OR effect = 'write'),
    status      TEXT NOT NULL
                CHECK (status = 'applied' OR status = 'waiting' OR status = 'started' OR status = 'claimed'
                    OR status = 'received' OR status = 'expired' OR status = 'parked' OR status = 'dropped'),
    created_at  INTEGER NOT NULL,
    deadline    INTEGER NOT NULL,
    item        BLOB NOT NULL,
    result      BLOB,
    worker      TEXT,
    lease_until INTEGER,
    attempt     INTEGER NOT NULL,
    claim_key   TEXT,
    PRIMARY KEY (run, call),
    CHECK (status <> 'claimed' OR (worker IS NOT NULL AND lease_until IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX calls_waiting ON calls (tenant, tool, created_at) WHERE status = 'waiting';
CREATE INDEX calls_claimed ON calls (run, call, lease_until) WHERE status = 'claimed';
CREATE INDEX calls_keys ON calls (tenant, claim_key) WHERE claim_key IS NOT NULL;

-- What one commit wrote of a run's journal: `events` is a list of [kind, body], numbered from `first` on. A row for every event
-- would repeat run, fence and time, and most commits write two or three.
CREATE TABLE stretches (
    run     BLOB NOT NULL,
    first   INTEGER NOT NULL,
    epoch   INTEGER,
    at      INTEGER NOT NULL,
    version INTEGER NOT NULL,
    events  TEXT NOT NULL,
    PRIMARY KEY (run, first)
) WITHOUT ROWID;

-- The journal, event by event, for whoever reads the database.
CREATE VIEW journal (run, number, epoch, kind, version, at, body) AS
    SELECT s.run, s.first + e.key, s.epoch, e.value ->> 0, s.version, s.at, e.value -> 1 FROM stretches AS s, json_each(s.events) AS e;

-- Words that were announced and stand in no item yet: a log, one row per run and batch, `first` of which says how many pieces came
-- before it; a row without it says that what stands before of its run is settled, and all that is swept out some time later. No other
-- key: rows in the order of their runs would dirty a page for every stream in every commit. Whoever has the database keeps an index
-- in memory.
CREATE TABLE deltas (
    n      INTEGER PRIMARY KEY,
    run    BLOB NOT NULL,
    first  INTEGER,
    pieces TEXT NOT NULL,
    text   BLOB NOT NULL
);

-- A table with row numbers: content can be megabytes, and a key tree would spill it early.
CREATE TABLE items (
    item    BLOB PRIMARY KEY,
    tenant  TEXT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind = 'tool.result' OR kind = 'tool.call' OR kind = 'agent.thought' OR kind = 'task.instruction'
                    OR kind = 'task.deliverable' OR kind = 'task.result_fields'),
    hash    BLOB NOT NULL,
    content BLOB NOT NULL
);

CREATE TABLE boxes (
    box           BLOB PRIMARY KEY,
    tenant        TEXT NOT NULL,
    parent        BLOB,
    parent_length INTEGER,
    depth         INTEGER NOT NULL,
    -- So many of the parents' items were copied here, at positions below zero; then no parent is read.
    inherited     INTEGER NOT NULL,
    -- Whether another run's box, or a packed one, was made from it: what others read is not erased with its run.
    shared        INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1)),
    CHECK ((parent IS NULL) = (parent_length IS NULL))
) WITHOUT ROWID;

CREATE TABLE box_rows (
    box      BLOB NOT NULL,
    position INTEGER NOT NULL,
    item     BLOB NOT NULL,
    PRIMARY KEY (box, position)
) WITHOUT ROWID;

CREATE TABLE outbox (
    n      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    agent  TEXT NOT NULL,
    run    BLOB NOT NULL,
    first  INTEGER NOT NULL,
    count  INTEGER NOT NULL
);
