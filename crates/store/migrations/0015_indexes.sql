-- Every entry of an index that is ordered by agents is on another page for each agent, and a page is what a commit writes: two such indexes
-- of runs made a commit of many agents a sixth larger. Runs under the head of their agent are listed by `runs_ordinal`. `runs_named` has the
-- others: runs that only take the settings of a named agent.
DROP INDEX runs_named;
CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name <> agent AND unlisted = 0;

-- Whether the head belongs to a named agent. The other heads belong to a run or to a conversation.
ALTER TABLE heads ADD COLUMN named INTEGER NOT NULL DEFAULT 0 CHECK (named IN (0, 1));
UPDATE heads SET named = 1 WHERE agent NOT GLOB 'run_' || replace(hex(zeroblob(16)), '0', '[0-9a-fA-F]')
    AND agent NOT GLOB 'conv_' || replace(hex(zeroblob(16)), '0', '[0-9a-fA-F]');
CREATE INDEX heads_named ON heads (tenant, agent) WHERE named = 1;

-- A manifest counts its runs, so that no index over the manifests of runs is needed to know which one is the last.
ALTER TABLE manifests ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
UPDATE manifests SET runs = (SELECT count(*) FROM runs AS r WHERE r.tenant = manifests.tenant AND r.manifest = manifests.hash);
DROP INDEX runs_manifest;
