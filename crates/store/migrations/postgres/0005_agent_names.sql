-- The name of the agent whose settings a run has; NULL for a run without a named agent. `agent` stays the key of the head that the run
-- is under. `unlisted` marks runs that no list shows: those that were not to be stored, and those whose content was erased.
ALTER TABLE runs ADD COLUMN agent_name text COLLATE "C";
ALTER TABLE runs ADD COLUMN unlisted boolean NOT NULL DEFAULT false;
-- Until now the head of a named agent had the agent's name. Other heads have the id of their run or of their conversation.
UPDATE runs SET
    agent_name = CASE WHEN agent ~ '^(run|conv)_[0-9a-fA-F]{32}$' THEN NULL ELSE agent END,
    unlisted = erase_ms IS NOT NULL OR NOT EXISTS (SELECT 1 FROM stretches s WHERE s.run = runs.run);

-- Ids of runs are ordered by time, so these three are lists with the newest run at the end.
CREATE INDEX runs_listed ON runs (tenant, run) WHERE NOT unlisted;
CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name IS NOT NULL AND NOT unlisted;
-- Runs that have not ended are the active runs of heads and the queued ones. An index over the status of runs would be changed, with all
-- other indexes of its row, whenever a run ends; the epoch, which a queued run has not got, stays what it is.
CREATE INDEX runs_queued ON runs (tenant, run) WHERE epoch IS NULL;
CREATE INDEX heads_active ON heads (tenant, run) WHERE run IS NOT NULL;
