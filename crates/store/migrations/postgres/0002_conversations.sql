-- What a conversation knows: the box that its next run begins after, how often what is said in it has changed, and which items of its
-- parts were taken out (sixteen bytes each). The head of its agent stands for as long as it does. `metadata` is a door's.
CREATE TABLE conversations (
    conversation bytea PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    created_at   bigint NOT NULL,
    metadata     bytea NOT NULL,
    version      bigint NOT NULL CHECK (version >= 0),
    items        bigint NOT NULL CHECK (items >= 0),
    tail         bytea,
    tail_length  bigint,
    gone         bytea NOT NULL CHECK (length(gone) % 16 = 0),
    CHECK ((tail IS NULL) = (tail_length IS NULL))
) WITH (autovacuum_analyze_threshold = 1000000);

-- What a conversation is made of, in this order: runs, and boxes of items that somebody put in.
CREATE TABLE conversation_parts (
    conversation bytea NOT NULL,
    n            bigint NOT NULL,
    run          bytea,
    box          bytea,
    PRIMARY KEY (conversation, n),
    CHECK ((run IS NULL) <> (box IS NULL))
) WITH (autovacuum_analyze_threshold = 1000000);
