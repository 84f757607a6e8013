-- A manifest belongs to a tenant and goes with the last run that has it: it may hold instructions, metadata and sealed credentials of a
-- request. The index finds other runs with the same manifest when one is erased. Erased runs have 32 zero bytes instead of a hash.
ALTER TABLE manifests RENAME TO common_manifests;
ALTER INDEX manifests_pkey RENAME TO common_manifests_pkey;
CREATE TABLE manifests (
    tenant text COLLATE "C" NOT NULL,
    hash   bytea NOT NULL CHECK (length(hash) = 32),
    body   bytea NOT NULL,
    PRIMARY KEY (tenant, hash)
);
UPDATE runs SET manifest = decode(repeat('00', 32), 'hex'), parent_step = NULL
    WHERE NOT EXISTS (SELECT 1 FROM stretches WHERE stretches.run = runs.run);
INSERT INTO manifests (tenant, hash, body)
    SELECT r.tenant, m.hash, m.body FROM (SELECT DISTINCT tenant, manifest FROM runs) AS r JOIN common_manifests AS m ON m.hash = r.manifest
    ON CONFLICT DO NOTHING;
DROP TABLE common_manifests;
DROP INDEX IF EXISTS runs_manifest;
CREATE INDEX runs_manifest ON runs (tenant, manifest);

-- Deletes a manifest unless a run other than `erased` has it. Two locks, both until the end of the transaction. `eraser` admits one eraser
-- of the manifest at a time, so that of two that erase its last runs the second one sees what the first one did. `pin` is shared by
-- transactions that begin runs with the manifest; it is taken only if no other run is seen, so that erasing one of many runs holds up no
-- new one. Each statement of the function has a snapshot of its own, and so the last one sees what was committed before the locks.
CREATE OR REPLACE FUNCTION drop_manifest(whose text, unused bytea, erased bytea, eraser bigint, pin bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(eraser);
    IF EXISTS (SELECT 1 FROM runs r WHERE r.tenant = whose AND r.manifest = unused AND r.run <> erased) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(pin);
    DELETE FROM manifests m WHERE m.tenant = whose AND m.hash = unused
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = whose AND r.manifest = unused AND r.run <> erased);
END $$;

-- The model of a run that is erased before its usage is counted: its manifest may be gone by then.
ALTER TABLE usage_uncounted ADD COLUMN model text;
