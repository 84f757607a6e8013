PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);
INSERT INTO schema_version VALUES(1,1795033679000);
INSERT INTO schema_version VALUES(2,1795033679000);
INSERT INTO schema_version VALUES(3,1795033679000);
INSERT INTO schema_version VALUES(4,1795033679000);
INSERT INTO schema_version VALUES(5,1795033679000);
INSERT INTO schema_version VALUES(6,1795033679000);
INSERT INTO schema_version VALUES(7,1795033679000);
INSERT INTO schema_version VALUES(8,1795033679000);
INSERT INTO schema_version VALUES(9,1795033679000);
INSERT INTO schema_version VALUES(10,1795033679000);
INSERT INTO schema_version VALUES(11,1795033679000);
CREATE TABLE nodes (
    node       INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at INTEGER NOT NULL
);
INSERT INTO nodes VALUES(1,1795033679000);
CREATE TABLE tenants (
    tenant TEXT PRIMARY KEY,
    open   INTEGER NOT NULL CHECK (open >= 0)
) WITHOUT ROWID;
INSERT INTO tenants VALUES('default',3);
CREATE TABLE heads (
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status = 'running' OR status = 'suspended' OR status = 'idle' OR status = 'dispatched'),
    epoch       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    run         BLOB,
    owner       INTEGER,
    waiting     INTEGER NOT NULL,
    deadline    INTEGER,
    wake_at     INTEGER,
    -- Pending messages of the active run, or of no run; a run's own turn is not among them.
    pending     INTEGER NOT NULL CHECK (pending >= 0),
    queued      INTEGER NOT NULL CHECK (queued >= 0),
    -- The last ordinal given to a run.
    runs        INTEGER NOT NULL,
    -- Effects the owner owes the run.
    local       INTEGER NOT NULL,
    quarantined TEXT,
    PRIMARY KEY (tenant, agent),
    CHECK ((status = 'idle') = (run IS NULL))
) WITHOUT ROWID;
INSERT INTO heads VALUES('default','ada','suspended',1,2,X'01a1f05844da77f09eb10e4c2f1a8d9f',1,1,2110393679069,2110393679069,0,0,1,0,NULL);
INSERT INTO heads VALUES('default','bob','suspended',1,3,X'01a1f05844e573939a1a57194f016ae4',1,1,NULL,NULL,0,0,1,0,NULL);
INSERT INTO heads VALUES('default','run_01a1f058490b7571bfb1f37bc182c4fb','running',1,1,X'01a1f058490b7571bfb1f37bc182c4fb',1,0,NULL,NULL,0,0,1,1,NULL);
CREATE TABLE runs (
    run           BLOB NOT NULL PRIMARY KEY,
    tenant        TEXT NOT NULL,
    agent         TEXT NOT NULL,
    ordinal       INTEGER NOT NULL,
    status        TEXT NOT NULL CHECK (status = 'active' OR status = 'ended' OR status = 'queued'),
    kind          TEXT NOT NULL CHECK (kind IN ('turn', 'ui_action')),
    epoch         INTEGER,
    -- The turn's inbox row.
    message       INTEGER NOT NULL,
    dedupe        TEXT,
    manifest      BLOB NOT NULL,
    context       BLOB NOT NULL,
    output        BLOB NOT NULL,
    state_version INTEGER NOT NULL,
    state         BLOB NOT NULL,
    iteration     INTEGER NOT NULL,
    trace         BLOB NOT NULL,
    parent_step   TEXT,
    source        TEXT,
    depth         INTEGER NOT NULL,
    deliverable   BLOB,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    -- What the door that took it wants to know again.
    note          BLOB,
    -- The earlier run whose calls it takes over.
    takes         BLOB,
    -- How long after its end it is erased. An end that a follow-up may need makes it longer; once it is erased there is none.
    erase_ms      INTEGER,
    follows BLOB, held_ms INTEGER NOT NULL DEFAULT 0, erase_at INTEGER GENERATED ALWAYS AS (ended_at + max(erase_ms, held_ms)) VIRTUAL, agent_name TEXT, unlisted INTEGER NOT NULL DEFAULT 0 CHECK (unlisted IN (0, 1)),
    CHECK ((status = 'ended') = (ended_at IS NOT NULL))
);
INSERT INTO runs VALUES(X'01a1f05844da77f09eb10e4c2f1a8d9f','default','ada',1,'active','turn',1,1,NULL,X'3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655',X'01a1f05844da77f09eb10e4db649d95f',X'01a1f05844da77f09eb10e4ee9c0a593',1,X'7b227068617365223a7b227468696e6b696e67223a7b22617474656d7074223a317d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a332c2263616c6c735f75736564223a302c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538343464613737663039656231306534646236343964393566222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538343464613737663039656231306534656539633061353933222c226c656e677468223a307d2c22737461727465645f6174223a313739353033333637393036367d',1,X'199957aa4c732fb8d522c465884b7e96',NULL,'default',0,NULL,1795033679066,NULL,NULL,NULL,NULL,NULL,0,'ada',0);
INSERT INTO runs VALUES(X'01a1f05844e573939a1a57194f016ae4','default','bob',1,'active','turn',1,2,NULL,X'3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655',X'01a1f05844e573939a1a571adaf38010',X'01a1f05844e573939a1a571b31195096',1,X'7b227068617365223a7b2277616974696e67223a7b2263616c6c73223a5b7b2263616c6c223a312c22746f6f6c223a22706179222c22726f757465223a2265787465726e616c222c22656666656374223a227772697465222c22646561646c696e65223a323131303339333637393038332c2270726f6772657373223a227061726b6564227d5d7d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a352c2263616c6c735f75736564223a312c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538343465353733393339613161353731616461663338303130222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538343465353733393339613161353731623331313935303936222c226c656e677468223a317d2c227573616765223a7b22696e223a322c226f7574223a347d2c22737461727465645f6174223a313739353033333637393037377d',1,X'63aba972faa365b0648c005be058a44a',NULL,'default',0,NULL,1795033679077,NULL,NULL,NULL,NULL,NULL,0,'bob',0);
INSERT INTO runs VALUES(X'01a1f058490b7571bfb1f37bc182c4fb','default','run_01a1f058490b7571bfb1f37bc182c4fb',1,'active','turn',1,3,NULL,X'cbcab8dda3c3dd6caafd2b5d8e5cb692914f51c504c106401ba2831cea831016',X'01a1f058490b7571bfb1f37d26f88de5',X'01a1f058490b7571bfb1f37e32dcf566',1,X'7b227068617365223a7b227468696e6b696e67223a7b22617474656d7074223a317d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a332c2263616c6c735f75736564223a302c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538343930623735373162666231663337643236663838646535222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538343930623735373162666231663337653332646366353636222c226c656e677468223a307d2c22737461727465645f6174223a313739353033333638303133397d',1,X'09d63be9a61a7032d45ff08cf5b03841',NULL,'default',0,NULL,1795033680139,NULL,X'7b2276657273696f6e223a312c226d6f64656c223a226d222c2273746f7265223a747275652c226261636b67726f756e64223a747275652c227370656c6c696e67223a7b227061697273223a66616c73652c226c6966656379636c65223a66616c73652c227374616e64617264223a66616c73652c227365616c6564223a66616c73652c22726177223a66616c73657d2c226563686f223a7b226672657175656e63795f70656e616c7479223a302e302c22696e737472756374696f6e73223a6e756c6c2c226d61785f6f75747075745f746f6b656e73223a6e756c6c2c226d61785f746f6f6c5f63616c6c73223a6e756c6c2c226d65746164617461223a7b7d2c22706172616c6c656c5f746f6f6c5f63616c6c73223a747275652c2270726573656e63655f70656e616c7479223a302e302c2270726576696f75735f726573706f6e73655f6964223a6e756c6c2c2270726f6d70745f63616368655f6b6579223a6e756c6c2c22726561736f6e696e67223a6e756c6c2c227361666574795f6964656e746966696572223a6e756c6c2c22736572766963655f74696572223a2264656661756c74222c2274656d7065726174757265223a312e302c2274657874223a7b22666f726d6174223a7b2274797065223a2274657874227d7d2c22746f6f6c5f63686f696365223a226175746f222c22746f705f6c6f6770726f6273223a302c22746f705f70223a312e302c227472756e636174696f6e223a2264697361626c6564222c2275736572223a6e756c6c7d2c2266696e6765727072696e74223a22227d',NULL,NULL,NULL,0,NULL,0);
CREATE TABLE inbox (
    n               INTEGER PRIMARY KEY,
    tenant          TEXT NOT NULL,
    agent           TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind = 'tool_result' OR kind = 'turn' OR kind = 'timeout' OR kind = 'stop'
                    OR kind = 'answer' OR kind = 'ui_action'),
    status          TEXT NOT NULL
                    CHECK (status = 'consumed' OR status = 'pending' OR status = 'queued' OR status = 'processing'
                    OR status = 'error' OR status = 'skipped' OR status = 'deferred'),
    run             BLOB,
    epoch           INTEGER,
    call            INTEGER,
    item            BLOB,
    outcome         TEXT CHECK (outcome = 'success' OR outcome = 'failed' OR outcome = 'canceled' OR outcome = 'timeout'
                    OR outcome = 'partial'),
    after_execution TEXT CHECK (after_execution IN ('suspend', 'terminate')),
    source          TEXT,
    reason          TEXT,
    created_at      INTEGER NOT NULL,
    processed_at    INTEGER
);
INSERT INTO inbox VALUES(1,'default','ada','turn','consumed',X'01a1f05844da77f09eb10e4c2f1a8d9f',1,NULL,X'01a1f05844da77f09eb10e4bf5d65049',NULL,NULL,'default',NULL,1795033679066,1795033679066);
INSERT INTO inbox VALUES(2,'default','bob','turn','consumed',X'01a1f05844e573939a1a57194f016ae4',1,NULL,X'01a1f05844e573939a1a5718a24796b5',NULL,NULL,'default',NULL,1795033679077,1795033679077);
INSERT INTO inbox VALUES(3,'default','run_01a1f058490b7571bfb1f37bc182c4fb','turn','consumed',X'01a1f058490b7571bfb1f37bc182c4fb',1,NULL,X'01a1f058490b7571bfb1f37cd1d44c0f',NULL,NULL,'default',NULL,1795033680139,1795033680139);
CREATE TABLE calls (
    run         BLOB NOT NULL,
    call        INTEGER NOT NULL,
    tenant      TEXT NOT NULL,
    agent       TEXT NOT NULL,
    iteration   INTEGER NOT NULL,
    tool        TEXT NOT NULL,
    route       TEXT NOT NULL CHECK (route = 'in_process' OR route = 'external' OR route = 'client'),
    effect      TEXT NOT NULL CHECK (effect = 'read' OR effect = 'idempotent' OR effect = 'write'),
    status      TEXT NOT NULL
                CHECK (status = 'applied' OR status = 'waiting' OR status = 'started' OR status = 'claimed'
                    OR status = 'received' OR status = 'expired' OR status = 'parked' OR status = 'dropped'),
    created_at  INTEGER NOT NULL,
    deadline    INTEGER NOT NULL,
    item        BLOB NOT NULL,
    result      BLOB,
    worker      TEXT,
    lease_until INTEGER,
    attempt     INTEGER NOT NULL,
    claim_key   TEXT,
    PRIMARY KEY (run, call),
    CHECK (status <> 'claimed' OR (worker IS NOT NULL AND lease_until IS NOT NULL))
) WITHOUT ROWID;
INSERT INTO calls VALUES(X'01a1f05844da77f09eb10e4c2f1a8d9f',1,'default','ada',1,'echo','external','read','waiting',1795033679069,2110393679069,X'01a1f05844dd76d488f581a55643b787',NULL,NULL,NULL,0,NULL);
INSERT INTO calls VALUES(X'01a1f05844e573939a1a57194f016ae4',1,'default','bob',1,'pay','external','write','parked',1795033679083,2110393679083,X'01a1f05844eb775a8615cede2c6c5d0a',NULL,'c43c6729227d2bc3/w1',NULL,1,NULL);
CREATE TABLE stretches (
    run     BLOB NOT NULL,
    first   INTEGER NOT NULL,
    epoch   INTEGER,
    at      INTEGER NOT NULL,
    version INTEGER NOT NULL,
    events  TEXT NOT NULL,
    PRIMARY KEY (run, first)
) WITHOUT ROWID;
INSERT INTO stretches VALUES(X'01a1f05844da77f09eb10e4c2f1a8d9f',0,1,1795033679066,1,'[["accepted",{"origin":"turn","context":{"box":"box_01a1f05844da77f09eb10e4db649d95f","length":1},"output":{"box":"box_01a1f05844da77f09eb10e4ee9c0a593","length":0}}]]');
INSERT INTO stretches VALUES(X'01a1f05844da77f09eb10e4c2f1a8d9f',1,1,1795033679066,1,'[["leased",{}],["lap_started",{"iteration":1,"at":1795033679066}]]');
INSERT INTO stretches VALUES(X'01a1f05844da77f09eb10e4c2f1a8d9f',3,1,1795033679069,1,'[["replied",{"iteration":1,"items":1,"usage":{"in":2,"out":6},"calls":[{"call":1,"tool":"echo","route":"external","effect":"read","deadline":2110393679069}]}]]');
INSERT INTO stretches VALUES(X'01a1f05844e573939a1a57194f016ae4',0,1,1795033679077,1,'[["accepted",{"origin":"turn","context":{"box":"box_01a1f05844e573939a1a571adaf38010","length":1},"output":{"box":"box_01a1f05844e573939a1a571b31195096","length":0}}]]');
INSERT INTO stretches VALUES(X'01a1f05844e573939a1a57194f016ae4',1,1,1795033679077,1,'[["leased",{}],["lap_started",{"iteration":1,"at":1795033679077}]]');
INSERT INTO stretches VALUES(X'01a1f05844e573939a1a57194f016ae4',3,1,1795033679083,1,'[["replied",{"iteration":1,"items":1,"usage":{"in":2,"out":4},"calls":[{"call":1,"tool":"pay","route":"external","effect":"write","deadline":2110393679083}]}]]');
INSERT INTO stretches VALUES(X'01a1f05844e573939a1a57194f016ae4',4,1,1795033680135,1,'[["call_parked",{"call":1}]]');
INSERT INTO stretches VALUES(X'01a1f058490b7571bfb1f37bc182c4fb',0,1,1795033680139,1,'[["accepted",{"origin":"turn","context":{"box":"box_01a1f058490b7571bfb1f37d26f88de5","length":1},"output":{"box":"box_01a1f058490b7571bfb1f37e32dcf566","length":0}}]]');
INSERT INTO stretches VALUES(X'01a1f058490b7571bfb1f37bc182c4fb',1,1,1795033680139,1,'[["leased",{}],["lap_started",{"iteration":1,"at":1795033680139}]]');
CREATE TABLE deltas (
    n      INTEGER PRIMARY KEY,
    run    BLOB NOT NULL,
    first  INTEGER,
    pieces TEXT NOT NULL,
    text   BLOB NOT NULL
);
INSERT INTO deltas VALUES(1,X'01a1f058490b7571bfb1f37bc182c4fb',0,'I',X'4f6e652073656e74');
INSERT INTO deltas VALUES(2,X'01a1f058490b7571bfb1f37bc182c4fb',1,'I',X'656e636520746861');
CREATE TABLE items (
    item    BLOB PRIMARY KEY,
    tenant  TEXT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind = 'tool.result' OR kind = 'tool.call' OR kind = 'agent.thought' OR kind = 'task.instruction'
                    OR kind = 'task.deliverable' OR kind = 'task.result_fields'),
    hash    BLOB NOT NULL,
    content BLOB NOT NULL
);
INSERT INTO items VALUES(X'01a1f05844da77f09eb10e4bf5d65049','default','task.instruction',X'45064d469879969eddcf767c83b2c088',X'7b2274657874223a2273757370656e64227d');
INSERT INTO items VALUES(X'01a1f05844dd76d488f581a55643b787','default','tool.call',X'54285868b623455c1db7e9ab59c87989',X'7b2263616c6c223a312c22746f6f6c223a226563686f222c22617267756d656e7473223a227b5c22746578745c223a5c22616c7068615c227d222c2270726f76696465725f6964223a2263616c6c5f315f30227d');
INSERT INTO items VALUES(X'01a1f05844e573939a1a5718a24796b5','default','task.instruction',X'084e0439d5a5f19d463398bfb3ab180e',X'7b2274657874223a227061726b227d');
INSERT INTO items VALUES(X'01a1f05844eb775a8615cede2c6c5d0a','default','tool.call',X'7c3986c4ca72a8a6dc68c05ea264141f',X'7b2263616c6c223a312c22746f6f6c223a22706179222c22617267756d656e7473223a227b5c22616d6f756e745c223a337d222c2270726f76696465725f6964223a2263616c6c5f315f30227d');
INSERT INTO items VALUES(X'01a1f058490b7571bfb1f37cd1d44c0f','default','task.instruction',X'b7387c954016d6395930ba8ae689588b',X'7b226974656d223a7b2274797065223a226d657373616765222c22726f6c65223a2275736572222c22636f6e74656e74223a5b7b2274797065223a22696e7075745f74657874222c2274657874223a2273747265616d227d5d7d7d');
CREATE TABLE boxes (
    box           BLOB PRIMARY KEY,
    tenant        TEXT NOT NULL,
    parent        BLOB,
    parent_length INTEGER,
    depth         INTEGER NOT NULL,
    -- So many of the parents' items were copied here, at positions below zero; then no parent is read.
    inherited     INTEGER NOT NULL,
    -- Whether another run's box, or a packed one, was made from it: what others read is not erased with its run.
    shared        INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1)),
    CHECK ((parent IS NULL) = (parent_length IS NULL))
) WITHOUT ROWID;
INSERT INTO boxes VALUES(X'01a1f05844da77f09eb10e4db649d95f','default',NULL,NULL,0,0,0);
INSERT INTO boxes VALUES(X'01a1f05844da77f09eb10e4ee9c0a593','default',X'01a1f05844da77f09eb10e4db649d95f',1,1,0,0);
INSERT INTO boxes VALUES(X'01a1f05844e573939a1a571adaf38010','default',NULL,NULL,0,0,0);
INSERT INTO boxes VALUES(X'01a1f05844e573939a1a571b31195096','default',X'01a1f05844e573939a1a571adaf38010',1,1,0,0);
INSERT INTO boxes VALUES(X'01a1f058490b7571bfb1f37d26f88de5','default',NULL,NULL,0,0,0);
INSERT INTO boxes VALUES(X'01a1f058490b7571bfb1f37e32dcf566','default',X'01a1f058490b7571bfb1f37d26f88de5',1,1,0,0);
CREATE TABLE box_rows (
    box      BLOB NOT NULL,
    position INTEGER NOT NULL,
    item     BLOB NOT NULL,
    PRIMARY KEY (box, position)
) WITHOUT ROWID;
INSERT INTO box_rows VALUES(X'01a1f05844da77f09eb10e4db649d95f',0,X'01a1f05844da77f09eb10e4bf5d65049');
INSERT INTO box_rows VALUES(X'01a1f05844da77f09eb10e4ee9c0a593',0,X'01a1f05844dd76d488f581a55643b787');
INSERT INTO box_rows VALUES(X'01a1f05844e573939a1a571adaf38010',0,X'01a1f05844e573939a1a5718a24796b5');
INSERT INTO box_rows VALUES(X'01a1f05844e573939a1a571b31195096',0,X'01a1f05844eb775a8615cede2c6c5d0a');
INSERT INTO box_rows VALUES(X'01a1f058490b7571bfb1f37d26f88de5',0,X'01a1f058490b7571bfb1f37cd1d44c0f');
CREATE TABLE outbox (
    n      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    agent  TEXT NOT NULL,
    run    BLOB NOT NULL,
    first  INTEGER NOT NULL,
    count  INTEGER NOT NULL
);
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
CREATE TABLE conversation_parts (
    conversation BLOB NOT NULL,
    n            INTEGER NOT NULL,
    run          BLOB,
    box          BLOB,
    PRIMARY KEY (conversation, n),
    CHECK ((run IS NULL) <> (box IS NULL))
) WITHOUT ROWID;
CREATE TABLE requests (
    tenant  TEXT NOT NULL,
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    run     BLOB NOT NULL,
    node    INTEGER NOT NULL,
    left_at INTEGER,
    PRIMARY KEY (tenant, hash, run)
) WITHOUT ROWID;
CREATE TABLE seal_canary (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    sealed TEXT NOT NULL
);
INSERT INTO seal_canary VALUES(1,'AoWRhutcvi6ttAOtVK69Fs_pZ6WDAjdIyDY1uU_ImKm0o1bneviNswY');
CREATE TABLE answers (
    tenant  TEXT NOT NULL,
    key     TEXT NOT NULL,
    asked   BLOB NOT NULL CHECK (length(asked) = 16),
    run     BLOB NOT NULL,
    message INTEGER,
    lost    BLOB NOT NULL CHECK (length(lost) % 20 = 0),
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE TABLE usage_uncounted (
    run    BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL
, model TEXT) WITHOUT ROWID;
CREATE TABLE usage (
    tenant        TEXT NOT NULL,
    day           INTEGER NOT NULL CHECK (day >= 0),
    agent         TEXT NOT NULL,
    model         TEXT NOT NULL,
    node          INTEGER NOT NULL,
    input         INTEGER NOT NULL CHECK (input >= 0),
    cached        INTEGER NOT NULL CHECK (cached >= 0),
    cache_written INTEGER NOT NULL CHECK (cache_written >= 0),
    output        INTEGER NOT NULL CHECK (output >= 0),
    reasoning     INTEGER NOT NULL CHECK (reasoning >= 0),
    lost          INTEGER NOT NULL CHECK (lost >= 0),
    runs          INTEGER NOT NULL CHECK (runs >= 0),
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    bytes         INTEGER NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (tenant, day, agent, model, node)
) WITHOUT ROWID;
CREATE TABLE manifests (
    tenant TEXT NOT NULL,
    hash   BLOB NOT NULL CHECK (length(hash) = 32),
    body   BLOB NOT NULL,
    PRIMARY KEY (tenant, hash)
);
INSERT INTO manifests VALUES('default',X'3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655',X'7b2276657273696f6e223a312c22706f6c696379223a22726573706f6e64222c226d6f64656c223a226d222c22746f6f6c73223a5b7b226e616d65223a226563686f222c226465736372697074696f6e223a22222c22706172616d6574657273223a7b2274797065223a226f626a656374227d2c22726f757465223a2265787465726e616c222c22656666656374223a2272656164222c2261667465725f657865637574696f6e223a2273757370656e64222c22646561646c696e655f6d73223a3331353336303030303030307d2c7b226e616d65223a22706179222c226465736372697074696f6e223a22222c22706172616d6574657273223a7b2274797065223a226f626a656374227d2c22726f757465223a2265787465726e616c222c22656666656374223a227772697465222c2261667465725f657865637574696f6e223a2273757370656e64222c22646561646c696e655f6d73223a3331353336303030303030307d5d2c2262756467657473223a7b22697465726174696f6e73223a31307d7d');
INSERT INTO manifests VALUES('default',X'cbcab8dda3c3dd6caafd2b5d8e5cb692914f51c504c106401ba2831cea831016',X'7b2276657273696f6e223a312c22706f6c696379223a22726573706f6e64222c226d6f64656c223a226d222c2262756467657473223a7b22697465726174696f6e73223a31307d2c22616e6e6f756e636564223a747275657d');
CREATE TABLE id_key (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    key  BLOB NOT NULL CHECK (length(key) = 32)
);
INSERT INTO id_key VALUES(1,X'd0abd2118d64e43531d06347955c08f76cd431089d46597eb3eec19c72012fc4');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('nodes',1);
CREATE INDEX heads_due ON heads (wake_at) WHERE wake_at IS NOT NULL;
CREATE UNIQUE INDEX runs_ordinal ON runs (tenant, agent, ordinal);
CREATE UNIQUE INDEX runs_dedupe ON runs (tenant, dedupe) WHERE dedupe IS NOT NULL;
CREATE UNIQUE INDEX runs_takes ON runs (tenant, takes) WHERE takes IS NOT NULL;
CREATE UNIQUE INDEX inbox_run ON inbox (run, call, kind);
CREATE INDEX inbox_pending ON inbox (tenant, agent) WHERE status = 'pending';
CREATE INDEX inbox_strays ON inbox (tenant, agent) WHERE run IS NULL;
CREATE INDEX calls_waiting ON calls (tenant, tool, created_at) WHERE status = 'waiting';
CREATE INDEX calls_claimed ON calls (run, call, lease_until) WHERE status = 'claimed';
CREATE INDEX calls_keys ON calls (tenant, claim_key) WHERE claim_key IS NOT NULL;
CREATE VIEW journal (run, number, epoch, kind, version, at, body) AS
    SELECT s.run, s.first + e.key, s.epoch, e.value ->> 0, s.version, s.at, e.value -> 1 FROM stretches AS s, json_each(s.events) AS e;
CREATE INDEX runs_erasable ON runs (erase_at, run) WHERE erase_at IS NOT NULL;
CREATE INDEX runs_listed ON runs (tenant, run) WHERE unlisted = 0;
CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name IS NOT NULL AND unlisted = 0;
CREATE INDEX runs_queued ON runs (tenant, run) WHERE epoch IS NULL;
CREATE INDEX heads_active ON heads (tenant, run) WHERE run IS NOT NULL;
CREATE INDEX answers_run ON answers (run);
CREATE INDEX runs_manifest ON runs (tenant, manifest);
COMMIT;
