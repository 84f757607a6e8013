-- What requests were told that have a key: asked for again, they are told the same, and nothing is done. `asked` is a hash of the
-- request, so that another one under the same key is known; `message` is its inbox row; `lost` are the calls that a release could not
-- give back (a run of sixteen bytes and a number of four for each). A table of its own: whoever has no key pays nothing for it.
CREATE TABLE answers (
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    asked   bytea NOT NULL CHECK (length(asked) = 16),
    run     bytea NOT NULL,
    message bigint,
    lost    bytea NOT NULL CHECK (length(lost) % 20 = 0),
    PRIMARY KEY (tenant, key)
) WITH (autovacuum_analyze_threshold = 1000000);
CREATE INDEX answers_run ON answers (run);
