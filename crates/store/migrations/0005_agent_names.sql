-- The name of the agent whose settings a run has; NULL for a run without a named agent. `agent` stays the key of the head that the run
-- is under. `unlisted` marks runs that no list shows: those that were not to be stored, and those whose content was erased.
ALTER TABLE runs ADD COLUMN agent_name TEXT;
ALTER TABLE runs ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0 CHECK (unlisted IN (0, 1));
-- Until now the head of a named agent had the agent's name. Other heads have the id of their run or of their conversation.
UPDATE runs SET
    agent_name = CASE WHEN agent GLOB 'run_' || replace(hex(zeroblob(16)), '0', '[0-9a-fA-F]')
                        OR agent GLOB 'conv_' || replace(hex(zeroblob(16)), '0', '[0-9a-fA-F]') THEN NULL ELSE agent END,
    unlisted = erase_ms IS NOT NULL OR NOT EXISTS (SELECT 1 FROM stretches WHERE stretches.run = runs.run);

-- Ids of runs are ordered by time, so these three are lists with the newest run at the end.
CREATE INDEX runs_listed ON runs (tenant, run) WHERE unlisted = 0;
CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name IS NOT NULL AND unlisted = 0;
-- Runs that have not ended are the active runs of heads and the queued ones. Together they cost less than an index over the status of
-- runs: a run that begins and ends changes one small index, and a run that is queued, which never had an epoch, a second one.
CREATE INDEX runs_queued ON runs (tenant, run) WHERE epoch IS NULL;
CREATE INDEX heads_active ON heads (tenant, run) WHERE run IS NOT NULL;
