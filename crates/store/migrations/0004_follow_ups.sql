-- The earlier run that a run goes on from, if that one waited for its client.
ALTER TABLE runs ADD COLUMN follows BLOB;
-- How long after its end a run is kept though its own time would have come: an end that a follow-up may need makes it long, and the end of
-- that follow-up short again.
ALTER TABLE runs ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0;
DROP INDEX runs_erasable;
ALTER TABLE runs DROP COLUMN erase_at;
ALTER TABLE runs ADD COLUMN erase_at INTEGER GENERATED ALWAYS AS (ended_at + max(erase_ms, held_ms)) VIRTUAL;
CREATE INDEX runs_erasable ON runs (erase_at, run) WHERE erase_at IS NOT NULL;
