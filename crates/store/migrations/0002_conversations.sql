-- What a conversation knows: the box that its next run begins after, how often what is said in it has changed, and which items of its
-- parts were taken out (sixteen bytes each). The head of its agent stands for as long as it does. `metadata` is a door's.
CREATE TABLE conversations (
    conversation BLOB NOT NULL PRIMARY KEY,
    tenant       TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    metadata     BLOB NOT NULL,
    version      INTEGER NOT NULL CHECK (version >= 0),
    items        INTEGER NOT NULL CHECK (items >= 0),
    tail         BLOB,
    tail_length  INTEGER,
    gone         BLOB NOT NULL CHECK (length(gone) % 16 = 0),
    CHECK ((tail IS NULL) = (tail_length IS NULL))
);

-- What a conversation is made of, in this order: runs, and boxes of items that somebody put in.
CREATE TABLE conversation_parts (
    conversation BLOB NOT NULL,
    n            INTEGER NOT NULL,
    run          BLOB,
    box          BLOB,
    PRIMARY KEY (conversation, n),
    CHECK ((run IS NULL) <> (box IS NULL))
) WITHOUT ROWID;
