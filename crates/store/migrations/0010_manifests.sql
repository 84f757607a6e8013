-- A manifest belongs to a tenant and goes with the last run that has it: it may hold instructions, metadata and sealed credentials of a
-- request. The index finds other runs with the same manifest when one is erased. Erased runs have 32 zero bytes instead of a hash.
ALTER TABLE manifests RENAME TO common_manifests;
CREATE TABLE manifests (
    tenant TEXT NOT NULL,
    hash   BLOB NOT NULL CHECK (length(hash) = 32),
    body   BLOB NOT NULL,
    PRIMARY KEY (tenant, hash)
);
UPDATE runs SET manifest = zeroblob(32), parent_step = NULL WHERE NOT EXISTS (SELECT 1 FROM stretches WHERE stretches.run = runs.run);
INSERT OR IGNORE INTO manifests (tenant, hash, body)
    SELECT r.tenant, m.hash, m.body FROM (SELECT DISTINCT tenant, manifest FROM runs) AS r JOIN common_manifests AS m ON m.hash = r.manifest;
DROP TABLE common_manifests;
DROP INDEX IF EXISTS runs_manifest;
CREATE INDEX runs_manifest ON runs (tenant, manifest);

-- The model of a run that is erased before its usage is counted: its manifest may be gone by then.
ALTER TABLE usage_uncounted ADD COLUMN model TEXT;
