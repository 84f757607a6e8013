-- Every entry of an index that is ordered by agents is on another page for each agent. Runs under the head of their agent are listed by
-- `runs_ordinal`. `runs_named` has the others: runs that only take the settings of a named agent.
DROP INDEX runs_named;
CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name <> agent AND NOT unlisted;

-- The heads of named agents; the others belong to a run or to a conversation. Names never change, so the index costs updates nothing.
CREATE INDEX heads_named ON heads (tenant, agent) WHERE agent !~ '^(run|conv)_[0-9a-fA-F]{32}$';

-- An index over the run of a head makes two updates of each run write every index of heads. Lists of open runs read the heads of a tenant.
DROP INDEX heads_active;
