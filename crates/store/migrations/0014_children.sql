-- Runs of runs, and the words of everything else that stores learn together, because a check can't be altered: `calls` and `inbox` are
-- rebuilt once. `retry` counts the repetitions of a call after a reported failure, and `below` is what a child run used. The kinds
-- `steer`, `budget_request`, `budget_raise` and `pause`, the routes `person` and `timer` and the status `held` are written by later versions.
ALTER TABLE inbox RENAME TO old_inbox;
CREATE TABLE inbox (
    n               INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent           TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind = 'tool_result' OR kind = 'turn' OR kind = 'timeout' OR kind = 'stop'
                    OR kind = 'answer' OR kind = 'ui_action' OR kind = 'steer' OR kind = 'budget_request' OR kind = 'budget_raise'
                    OR kind = 'pause'),
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
    processed_at    INTEGER,
    retry           INTEGER NOT NULL DEFAULT 0 CHECK (retry >= 0),
    below           TEXT
);
INSERT INTO inbox (n, tenant, agent, kind, status, run, epoch, call, item, outcome, after_execution, source, reason, created_at,
                   processed_at)
    SELECT n, tenant, agent, kind, status, run, epoch, call, item, outcome, after_execution, source, reason, created_at, processed_at
    FROM old_inbox;
DROP TABLE old_inbox;
-- A call has at most one report of each kind for each of its repetitions; messages that are about no call are never alike. An agent's inbox
-- is read run by run over this index: one by agent would touch another page for every agent in every commit.
CREATE UNIQUE INDEX inbox_run ON inbox (run, call, kind, retry);
CREATE INDEX inbox_pending ON inbox (tenant, agent) WHERE status = 'pending';
CREATE INDEX inbox_strays ON inbox (tenant, agent) WHERE run IS NULL;

ALTER TABLE calls RENAME TO old_calls;
CREATE TABLE calls (
    run         BLOB NOT NULL,
    call        INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    iteration   INTEGER NOT NULL,
    tool        TEXT NOT NULL,
    route       TEXT NOT NULL CHECK (route = 'in_process' OR route = 'external' OR route = 'client' OR route = 'child'
                OR route = 'person' OR route = 'timer'),
    effect      TEXT NOT NULL CHECK (effect = 'read' OR effect = 'idempotent' OR effect = 'write'),
    status      TEXT NOT NULL
                CHECK (status = 'applied' OR status = 'waiting' OR status = 'started' OR status = 'claimed'
                    OR status = 'received' OR status = 'expired' OR status = 'parked' OR status = 'dropped'
                    OR status = 'begun' OR status = 'held'),
    created_at  INTEGER NOT NULL,
    deadline    INTEGER NOT NULL,
    item        BLOB NOT NULL,
    result      BLOB,
    worker      TEXT,
    lease_until INTEGER,
    attempt     INTEGER NOT NULL,
    claim_key   TEXT,
    retry       INTEGER NOT NULL DEFAULT 0 CHECK (retry >= 0),
    PRIMARY KEY (run, call),
    CHECK (status <> 'claimed' OR (worker IS NOT NULL AND lease_until IS NOT NULL))
) WITHOUT ROWID;
INSERT INTO calls (run, call, tenant, agent, iteration, tool, route, effect, status, created_at, deadline, item, result, worker,
                   lease_until, attempt, claim_key)
    SELECT run, call, tenant, agent, iteration, tool, route, effect, status, created_at, deadline, item, result, worker, lease_until,
           attempt, claim_key
    FROM old_calls;
DROP TABLE old_calls;
CREATE INDEX calls_waiting ON calls (tenant, tool, created_at) WHERE status = 'waiting';
CREATE INDEX calls_claimed ON calls (run, call, lease_until) WHERE status = 'claimed';
CREATE INDEX calls_keys ON calls (tenant, claim_key) WHERE claim_key IS NOT NULL;

-- The run, the head and the call that a child run reports to. Other runs are not in the index.
ALTER TABLE runs ADD COLUMN parent BLOB;
ALTER TABLE runs ADD COLUMN parent_agent TEXT;
ALTER TABLE runs ADD COLUMN parent_call INTEGER;
CREATE UNIQUE INDEX runs_children ON runs (tenant, parent, parent_call) WHERE parent IS NOT NULL;
