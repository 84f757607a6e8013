-- Ended runs whose usage is in no sum yet. The commit that ends a run leaves the row, if usage is counted at all; the sweep adds the run up and
-- deletes the row in the same transaction, so that each run is counted once.
CREATE TABLE usage_uncounted (
    run    BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL
) WITHOUT ROWID;

-- What runs used, by the day on which they ended (days since 1970-01-01, UTC), their agent, their model and the server that added them up.
-- `cached` and `cache_written` are parts of `input`, `reasoning` is a part of `output`.
CREATE TABLE usage (
    tenant        TEXT NOT NULL,
    day           INTEGER NOT NULL CHECK (day >= 0),
    agent         TEXT NOT NULL,
    model         TEXT NOT NULL,
    node          INTEGER NOT NULL,
    input         INTEGER NOT NULL CHECK (input >= 0),
    cached        INTEGER NOT NULL CHECK (cached >= 0),
    cache_written INTEGER NOT NULL CHECK (cache_written >= 0),
    output        INTEGER NOT NULL CHECK (output >= 0),
    reasoning     INTEGER NOT NULL CHECK (reasoning >= 0),
    lost          INTEGER NOT NULL CHECK (lost >= 0),
    runs          INTEGER NOT NULL CHECK (runs >= 0),
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    bytes         INTEGER NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (tenant, day, agent, model, node)
) WITHOUT ROWID;
