-- Runs of runs, and the words of everything else that stores learn together. `retry` counts the repetitions of a call after a reported
-- failure, and `below` is what a child run used. The kinds `steer`, `budget_request`, `budget_raise` and `pause`, the routes `person` and
-- `timer` and the status `held` are written by later versions.
ALTER DOMAIN message_kind DROP CONSTRAINT message_kind_check;
ALTER DOMAIN message_kind ADD CONSTRAINT message_kind_check
    CHECK (VALUE IN ('tool_result', 'turn', 'timeout', 'stop', 'answer', 'ui_action', 'steer', 'budget_request', 'budget_raise', 'pause'));
ALTER DOMAIN call_route DROP CONSTRAINT call_route_check;
ALTER DOMAIN call_route ADD CONSTRAINT call_route_check
    CHECK (VALUE IN ('in_process', 'external', 'client', 'child', 'person', 'timer'));
ALTER DOMAIN call_status DROP CONSTRAINT call_status_check;
ALTER DOMAIN call_status ADD CONSTRAINT call_status_check
    CHECK (VALUE IN ('applied', 'waiting', 'started', 'claimed', 'received', 'expired', 'parked', 'dropped', 'begun', 'held'));

ALTER TABLE inbox ADD COLUMN retry bigint NOT NULL DEFAULT 0 CHECK (retry >= 0);
ALTER TABLE inbox ADD COLUMN below text;
-- A call has at most one report of each kind for each of its repetitions; messages that are about no call are never alike.
DROP INDEX inbox_run;
CREATE UNIQUE INDEX inbox_run ON inbox (run, call, kind, retry);

ALTER TABLE calls ADD COLUMN retry bigint NOT NULL DEFAULT 0 CHECK (retry >= 0);

-- The run, the head and the call that a child run reports to. Other runs are not in the index.
ALTER TABLE runs ADD COLUMN parent bytea;
ALTER TABLE runs ADD COLUMN parent_agent text COLLATE "C";
ALTER TABLE runs ADD COLUMN parent_call bigint;
CREATE UNIQUE INDEX runs_children ON runs (tenant, parent, parent_call) WHERE parent IS NOT NULL;
