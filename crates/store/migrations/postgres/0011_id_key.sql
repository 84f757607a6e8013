-- The secret by which ids that the API shows are computed from numbers that all tenants share: without it, an id would say how many rows
-- the others have. It never changes, so that an id is always the same. Two random UUIDs have 244 random bits.
CREATE TABLE id_key (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    key      bytea NOT NULL CHECK (length(key) = 32)
);
INSERT INTO id_key (key) VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
