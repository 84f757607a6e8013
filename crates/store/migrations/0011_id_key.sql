-- The secret by which ids that the API shows are computed from numbers that all tenants share: without it, an id would say how many rows
-- the others have. It never changes, so that an id is always the same.
CREATE TABLE id_key (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    key  BLOB NOT NULL CHECK (length(key) = 32)
);
INSERT INTO id_key (only, key) VALUES (1, randomblob(32));
