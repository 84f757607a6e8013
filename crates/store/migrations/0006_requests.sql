-- Create requests whose client has no answer on record: what decides whether a repeated request joins the run of the first one.
-- `hash` is the SHA-256 of the canonical body and of the token. `node` is the server process that the client reads from. `left_at` is
-- when the client closed its connection without an answer. A row goes when the client has its answer, so the table stays small.
CREATE TABLE requests (
    tenant  TEXT NOT NULL,
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    run     BLOB NOT NULL,
    node    INTEGER NOT NULL,
    left_at INTEGER,
    PRIMARY KEY (tenant, hash, run)
) WITHOUT ROWID;
