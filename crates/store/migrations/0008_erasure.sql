-- Idempotency keys and keys of claims are stored as hashes: a key can be content of its request, and equality is all that is needed. The
-- server that migrates hashes the keys of `runs`, `answers` and `calls` in the same transaction. A hash of one key can be spelled like
-- another key, so that `answers` is copied from the table with the clear keys.
ALTER TABLE answers RENAME TO clear_answers;
DROP INDEX answers_run;
CREATE TABLE answers (
    tenant  TEXT NOT NULL,
    key     TEXT NOT NULL,
    asked   BLOB NOT NULL CHECK (length(asked) = 16),
    run     BLOB NOT NULL,
    message INTEGER,
    lost    BLOB NOT NULL CHECK (length(lost) % 20 = 0),
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX answers_run ON answers (run);
