-- Idempotency keys and keys of claims are stored as hashes: a key can be content of its request, and equality is all that is needed. The
-- server that migrates hashes the keys of `runs`, `answers` and `calls` in the same transaction. A hash of one key can be spelled like
-- another key, so that `answers` is copied from the table with the clear keys.
ALTER TABLE answers RENAME TO clear_answers;
ALTER INDEX answers_pkey RENAME TO clear_answers_pkey;
DROP INDEX answers_run;
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
