-- Ended runs whose usage is in no sum yet. The commit that ends a run leaves the row, if usage is counted at all; the sweep of one server adds
-- the run up and deletes the row in the same transaction, so that each run is counted once.
CREATE TABLE usage_uncounted (
    run    bytea PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL
) WITH (autovacuum_analyze_threshold = 1000000);

-- What runs used, by the day on which they ended (days since 1970-01-01, UTC), their agent, their model and the server that added them up.
-- `cached` and `cache_written` are parts of `input`, `reasoning` is a part of `output`.
CREATE TABLE usage (
    tenant        text COLLATE "C" NOT NULL,
    day           bigint NOT NULL CHECK (day >= 0),
    agent         text COLLATE "C" NOT NULL,
    model         text COLLATE "C" NOT NULL,
    node          bigint NOT NULL,
    input         bigint NOT NULL CHECK (input >= 0),
    cached        bigint NOT NULL CHECK (cached >= 0),
    cache_written bigint NOT NULL CHECK (cache_written >= 0),
    output        bigint NOT NULL CHECK (output >= 0),
    reasoning     bigint NOT NULL CHECK (reasoning >= 0),
    lost          bigint NOT NULL CHECK (lost >= 0),
    runs          bigint NOT NULL CHECK (runs >= 0),
    calls         bigint NOT NULL CHECK (calls >= 0),
    bytes         bigint NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (tenant, day, agent, model, node)
);
