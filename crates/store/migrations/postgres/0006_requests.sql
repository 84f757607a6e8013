-- Create requests whose client has no answer on record: what decides whether a repeated request joins the run of the first one.
-- `hash` is the SHA-256 of the canonical body and of the token. `node` is the server process that the client reads from. `left_at` is
-- when the client closed its connection without an answer. A row goes when the client has its answer, so the table stays small.
CREATE TABLE requests (
    tenant  text COLLATE "C" NOT NULL,
    hash    bytea NOT NULL CHECK (length(hash) = 32),
    run     bytea NOT NULL,
    node    bigint NOT NULL,
    left_at bigint,
    PRIMARY KEY (tenant, hash, run)
) WITH (autovacuum_analyze_threshold = 1000000);
