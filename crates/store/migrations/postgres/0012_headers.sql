-- What an item from outside is, and where its texts are: the API that it came through reads it once, when it comes in. Items without a
-- header are read again: those of earlier versions, and messages of one text.
ALTER TABLE items ADD COLUMN header bytea;
