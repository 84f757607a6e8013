-- One text that was sealed with the key in use: a server none of whose keys opens it is refused at its start.
CREATE TABLE seal_canary (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    sealed   text NOT NULL
);
