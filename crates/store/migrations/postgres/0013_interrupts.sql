-- What waits for a person, and what people decided: `n` is the number of the journal event that opened the interrupt, `head` is the key of
-- the run's head, and `approvals` is a JSON list of names, in which a NUL is escaped as JSON does it. The rows go with their run.
CREATE DOMAIN interrupt_cause AS text
    CHECK (VALUE IN ('approval', 'question', 'unknown_outcome', 'ratify', 'budget', 'owners_lost', 'panicked', 'paused'));
CREATE DOMAIN interrupt_timeout AS text CHECK (VALUE IN ('reject', 'approve', 'end', 'tell', 'never'));
CREATE DOMAIN interrupt_verdict AS text
    CHECK (VALUE IN ('approved', 'rejected', 'answered', 'recorded', 'released', 'reported_to_model', 'raised', 'resumed', 'ended',
        'timed_out', 'reported', 'stopped'));

CREATE TABLE interrupts (
    tenant      text COLLATE "C" NOT NULL,
    run         bytea NOT NULL,
    n           bigint NOT NULL,
    head        text COLLATE "C" NOT NULL,
    agent_name  text COLLATE "C",
    cause       interrupt_cause NOT NULL,
    call        bigint,
    shows       bytea,
    created_at  bigint NOT NULL,
    until       bigint,
    on_timeout  interrupt_timeout NOT NULL,
    needs       bigint NOT NULL CHECK (needs > 0),
    approvals   text NOT NULL,
    verdict     interrupt_verdict,
    by_name     text,
    answered_at bigint,
    PRIMARY KEY (run, n),
    CHECK ((verdict IS NULL) = (answered_at IS NULL)),
    CHECK (verdict IS NOT NULL OR by_name IS NULL)
) WITH (fillfactor = 80, autovacuum_analyze_threshold = 1000000);
CREATE INDEX interrupts_open ON interrupts (tenant, created_at, run, n) WHERE verdict IS NULL;
CREATE INDEX interrupts_listed ON interrupts (tenant, created_at, run, n);
-- For metrics, which count all tenants together.
CREATE INDEX interrupts_causes ON interrupts (cause, created_at) WHERE verdict IS NULL;

-- Whether an open interrupt holds the whole run: then none of its calls is handed out. The server that migrates stores the interrupts of
-- earlier versions, which are only in journals, and sets this for their heads.
ALTER TABLE heads ADD COLUMN held boolean NOT NULL DEFAULT false;
