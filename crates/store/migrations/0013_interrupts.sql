-- What waits for a person, and what people decided: `n` is the number of the journal event that opened the interrupt, `head` is the key of
-- the run's head, and `approvals` is a JSON list of names. The rows go with their run. The words of causes and verdicts that no version
-- writes yet are there because a check can't be changed later.
CREATE TABLE interrupts (
    tenant      TEXT NOT NULL,
    run         BLOB NOT NULL,
    n           INTEGER NOT NULL,
    head        TEXT NOT NULL,
    agent_name  TEXT,
    cause       TEXT NOT NULL CHECK (cause IN ('approval', 'question', 'unknown_outcome', 'ratify', 'budget', 'owners_lost', 'panicked',
                'paused')),
    call        INTEGER,
    shows       BLOB,
    created_at  INTEGER NOT NULL,
    until       INTEGER,
    on_timeout  TEXT NOT NULL CHECK (on_timeout IN ('reject', 'approve', 'end', 'tell', 'never')),
    needs       INTEGER NOT NULL CHECK (needs > 0),
    approvals   TEXT NOT NULL,
    verdict     TEXT CHECK (verdict IN ('approved', 'rejected', 'answered', 'recorded', 'released', 'reported_to_model', 'raised',
                'resumed', 'ended', 'timed_out', 'reported', 'stopped')),
    by_name     TEXT,
    answered_at INTEGER,
    PRIMARY KEY (run, n),
    CHECK ((verdict IS NULL) = (answered_at IS NULL)),
    CHECK (verdict IS NOT NULL OR by_name IS NULL)
) WITHOUT ROWID;
CREATE INDEX interrupts_open ON interrupts (tenant, created_at, run, n) WHERE verdict IS NULL;
CREATE INDEX interrupts_listed ON interrupts (tenant, created_at, run, n);
-- For metrics, which count all tenants together.
CREATE INDEX interrupts_causes ON interrupts (cause, created_at) WHERE verdict IS NULL;

-- Whether an open interrupt holds the whole run: then none of its calls is handed out. The server that migrates stores the interrupts of
-- earlier versions, which are only in journals, and sets this for their heads.
ALTER TABLE heads ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
