-- The earlier run that a run goes on from, if that one waited for its client.
ALTER TABLE runs ADD COLUMN follows bytea;
-- How long after its end a run is kept though its own time would have come: an end that a follow-up may need makes it long, and the end of
-- that follow-up short again.
ALTER TABLE runs ADD COLUMN held_ms bigint NOT NULL DEFAULT 0;
DROP INDEX runs_erasable;
ALTER TABLE runs DROP COLUMN erase_at;
-- Without a time of its own there is none, however long it would be held.
ALTER TABLE runs ADD COLUMN erase_at bigint GENERATED ALWAYS AS (ended_at + erase_ms + greatest(held_ms - erase_ms, 0)) STORED;
CREATE INDEX runs_erasable ON runs (erase_at, run) WHERE erase_at IS NOT NULL;
