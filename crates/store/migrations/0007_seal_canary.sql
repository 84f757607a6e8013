-- One text that was sealed with the key in use: a server none of whose keys opens it is refused at its start.
CREATE TABLE seal_canary (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    sealed TEXT NOT NULL
);
