







CREATE DOMAIN after_execution AS text
	CONSTRAINT after_execution_check CHECK ((VALUE = ANY (ARRAY['suspend'::text, 'terminate'::text])));



CREATE DOMAIN call_effect AS text
	CONSTRAINT call_effect_check CHECK ((VALUE = ANY (ARRAY['read'::text, 'idempotent'::text, 'write'::text])));



CREATE DOMAIN call_route AS text
	CONSTRAINT call_route_check CHECK ((VALUE = ANY (ARRAY['in_process'::text, 'external'::text, 'client'::text])));



CREATE DOMAIN call_status AS text
	CONSTRAINT call_status_check CHECK ((VALUE = ANY (ARRAY['applied'::text, 'waiting'::text, 'started'::text, 'claimed'::text, 'received'::text, 'expired'::text, 'parked'::text, 'dropped'::text])));



CREATE DOMAIN counted AS bigint
	CONSTRAINT counted_check CHECK ((VALUE >= 0));



CREATE DOMAIN head_status AS text
	CONSTRAINT head_status_check CHECK ((VALUE = ANY (ARRAY['running'::text, 'suspended'::text, 'idle'::text, 'dispatched'::text])));



CREATE DOMAIN item_kind AS text
	CONSTRAINT item_kind_check CHECK ((VALUE = ANY (ARRAY['tool.result'::text, 'tool.call'::text, 'agent.thought'::text, 'task.instruction'::text, 'task.deliverable'::text, 'task.result_fields'::text])));



CREATE DOMAIN message_kind AS text
	CONSTRAINT message_kind_check CHECK ((VALUE = ANY (ARRAY['tool_result'::text, 'turn'::text, 'timeout'::text, 'stop'::text, 'answer'::text, 'ui_action'::text])));



CREATE DOMAIN message_outcome AS text
	CONSTRAINT message_outcome_check CHECK ((VALUE = ANY (ARRAY['success'::text, 'failed'::text, 'canceled'::text, 'timeout'::text, 'partial'::text])));



CREATE DOMAIN message_status AS text
	CONSTRAINT message_status_check CHECK ((VALUE = ANY (ARRAY['consumed'::text, 'pending'::text, 'queued'::text, 'processing'::text, 'error'::text, 'skipped'::text, 'deferred'::text])));



CREATE DOMAIN run_kind AS text
	CONSTRAINT run_kind_check CHECK ((VALUE = ANY (ARRAY['turn'::text, 'ui_action'::text])));



CREATE DOMAIN run_status AS text
	CONSTRAINT run_status_check CHECK ((VALUE = ANY (ARRAY['active'::text, 'ended'::text, 'queued'::text])));



CREATE OR REPLACE FUNCTION drop_manifest(whose text, unused bytea, erased bytea, eraser bigint, pin bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(eraser);
    IF EXISTS (SELECT 1 FROM runs r WHERE r.tenant = whose AND r.manifest = unused AND r.run <> erased) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(pin);
    DELETE FROM manifests m WHERE m.tenant = whose AND m.hash = unused
        AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant = whose AND r.manifest = unused AND r.run <> erased);
END $$;



CREATE OR REPLACE FUNCTION hex(bytea) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$ SELECT upper(encode($1, 'hex')) $_$;



CREATE OR REPLACE FUNCTION hex(text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$ SELECT upper(encode(convert_to($1, 'UTF8'), 'hex')) $_$;



CREATE OR REPLACE FUNCTION randomblob(integer) RETURNS bytea
    LANGUAGE sql
    AS $_$ SELECT substr(uuid_send(gen_random_uuid()), 1, $1) $_$;



CREATE OR REPLACE FUNCTION unhex(text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $_$ SELECT decode($1, 'hex') $_$;





CREATE TABLE answers (
    tenant text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    asked bytea NOT NULL,
    run bytea NOT NULL,
    message bigint,
    lost bytea NOT NULL,
    CONSTRAINT answers_asked_check1 CHECK ((length(asked) = 16)),
    CONSTRAINT answers_lost_check1 CHECK (((length(lost) % 20) = 0))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE box_rows (
    box bytea NOT NULL,
    "position" bigint NOT NULL,
    item bytea NOT NULL
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE boxes (
    box bytea NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    parent bytea,
    parent_length bigint,
    depth bigint NOT NULL,
    inherited bigint NOT NULL,
    shared boolean DEFAULT false NOT NULL,
    CONSTRAINT boxes_check CHECK (((parent IS NULL) = (parent_length IS NULL)))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE calls (
    run bytea NOT NULL,
    call bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    iteration bigint NOT NULL,
    tool text NOT NULL COLLATE pg_catalog."C",
    route call_route NOT NULL,
    effect call_effect NOT NULL,
    status call_status NOT NULL,
    created_at bigint NOT NULL,
    deadline bigint NOT NULL,
    item bytea NOT NULL,
    result bytea,
    worker text,
    lease_until bigint,
    attempt bigint NOT NULL,
    claim_key text COLLATE pg_catalog."C",
    CONSTRAINT calls_check CHECK ((((status)::text <> 'claimed'::text) OR ((worker IS NOT NULL) AND (lease_until IS NOT NULL))))
)
WITH (fillfactor='80', autovacuum_analyze_threshold='1000000');



CREATE TABLE conversation_parts (
    conversation bytea NOT NULL,
    n bigint NOT NULL,
    run bytea,
    box bytea,
    CONSTRAINT conversation_parts_check CHECK (((run IS NULL) <> (box IS NULL)))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE conversations (
    conversation bytea NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    metadata bytea NOT NULL,
    version bigint NOT NULL,
    items bigint NOT NULL,
    tail bytea,
    tail_length bigint,
    gone bytea NOT NULL,
    CONSTRAINT conversations_check CHECK (((tail IS NULL) = (tail_length IS NULL))),
    CONSTRAINT conversations_gone_check CHECK (((length(gone) % 16) = 0)),
    CONSTRAINT conversations_items_check CHECK ((items >= 0)),
    CONSTRAINT conversations_version_check CHECK ((version >= 0))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE deltas (
    run bytea NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    pieces text NOT NULL,
    text bytea NOT NULL,
    CONSTRAINT deltas_count_check CHECK ((count > 0))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE heads (
    tenant text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    status head_status NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    run bytea,
    owner bigint,
    waiting bigint NOT NULL,
    deadline bigint,
    wake_at bigint,
    pending counted NOT NULL,
    queued counted NOT NULL,
    runs bigint NOT NULL,
    local bigint NOT NULL,
    quarantined text,
    CONSTRAINT heads_check CHECK ((((status)::text = 'idle'::text) = (run IS NULL)))
)
WITH (fillfactor='60', autovacuum_analyze_threshold='1000000');



CREATE TABLE id_key (
    only_row boolean DEFAULT true NOT NULL,
    key bytea NOT NULL,
    CONSTRAINT id_key_key_check CHECK ((length(key) = 32)),
    CONSTRAINT id_key_only_row_check CHECK (only_row)
);



CREATE TABLE inbox (
    n bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    kind message_kind NOT NULL,
    status message_status NOT NULL,
    run bytea,
    epoch bigint,
    call bigint,
    item bytea,
    outcome message_outcome,
    after_execution after_execution,
    source text,
    reason text,
    created_at bigint NOT NULL,
    processed_at bigint
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE SEQUENCE inbox_numbers
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



CREATE TABLE items (
    item bytea NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    kind item_kind NOT NULL,
    hash bytea NOT NULL,
    content bytea NOT NULL
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE stretches (
    run bytea NOT NULL,
    first bigint NOT NULL,
    epoch bigint,
    at bigint NOT NULL,
    version bigint NOT NULL,
    events text NOT NULL
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE VIEW journal AS
 SELECT s.run,
    ((s.first + e.place) - 1) AS number,
    s.epoch,
    (e.event ->> 0) AS kind,
    s.version,
    s.at,
    (e.event -> 1) AS body
   FROM stretches s,
    LATERAL json_array_elements((s.events)::json) WITH ORDINALITY e(event, place);



CREATE TABLE manifests (
    tenant text NOT NULL COLLATE pg_catalog."C",
    hash bytea NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT manifests_hash_check CHECK ((length(hash) = 32))
);



CREATE TABLE nodes (
    node bigint NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    alive_until timestamp with time zone NOT NULL
);



ALTER TABLE nodes ALTER COLUMN node ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME nodes_node_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);



CREATE TABLE outbox (
    n bigint NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    run bytea NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL
);



ALTER TABLE outbox ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME outbox_n_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);



CREATE TABLE requests (
    tenant text NOT NULL COLLATE pg_catalog."C",
    hash bytea NOT NULL,
    run bytea NOT NULL,
    node bigint NOT NULL,
    left_at bigint,
    CONSTRAINT requests_hash_check CHECK ((length(hash) = 32))
)
WITH (autovacuum_analyze_threshold='1000000');



CREATE TABLE runs (
    run bytea NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    agent text NOT NULL COLLATE pg_catalog."C",
    ordinal bigint NOT NULL,
    status run_status NOT NULL,
    kind run_kind NOT NULL,
    epoch bigint,
    message bigint NOT NULL,
    dedupe text COLLATE pg_catalog."C",
    manifest bytea NOT NULL,
    context bytea NOT NULL,
    output bytea NOT NULL,
    state_version bigint NOT NULL,
    state bytea NOT NULL,
    iteration bigint NOT NULL,
    trace bytea NOT NULL,
    parent_step text,
    source text,
    depth bigint NOT NULL,
    deliverable bytea,
    created_at bigint NOT NULL,
    ended_at bigint,
    note bytea,
    takes bytea,
    erase_ms bigint,
    follows bytea,
    held_ms bigint DEFAULT 0 NOT NULL,
    erase_at bigint GENERATED ALWAYS AS (((ended_at + erase_ms) + GREATEST((held_ms - erase_ms), (0)::bigint))) STORED,
    agent_name text COLLATE pg_catalog."C",
    unlisted boolean DEFAULT false NOT NULL,
    CONSTRAINT runs_check CHECK ((((status)::text = 'ended'::text) = (ended_at IS NOT NULL)))
)
WITH (fillfactor='60', autovacuum_analyze_threshold='1000000');



CREATE TABLE schema_version (
    version bigint NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);



CREATE TABLE seal_canary (
    only_row boolean DEFAULT true NOT NULL,
    sealed text NOT NULL,
    CONSTRAINT seal_canary_only_row_check CHECK (only_row)
);



CREATE TABLE tenants (
    tenant text NOT NULL COLLATE pg_catalog."C",
    slot bigint NOT NULL,
    open bigint NOT NULL
)
WITH (fillfactor='50');



CREATE TABLE usage (
    tenant text NOT NULL COLLATE pg_catalog."C",
    day bigint NOT NULL,
    agent text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL COLLATE pg_catalog."C",
    node bigint NOT NULL,
    input bigint NOT NULL,
    cached bigint NOT NULL,
    cache_written bigint NOT NULL,
    output bigint NOT NULL,
    reasoning bigint NOT NULL,
    lost bigint NOT NULL,
    runs bigint NOT NULL,
    calls bigint NOT NULL,
    bytes bigint NOT NULL,
    CONSTRAINT usage_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT usage_cache_written_check CHECK ((cache_written >= 0)),
    CONSTRAINT usage_cached_check CHECK ((cached >= 0)),
    CONSTRAINT usage_calls_check CHECK ((calls >= 0)),
    CONSTRAINT usage_day_check CHECK ((day >= 0)),
    CONSTRAINT usage_input_check CHECK ((input >= 0)),
    CONSTRAINT usage_lost_check CHECK ((lost >= 0)),
    CONSTRAINT usage_output_check CHECK ((output >= 0)),
    CONSTRAINT usage_reasoning_check CHECK ((reasoning >= 0)),
    CONSTRAINT usage_runs_check CHECK ((runs >= 0))
);



CREATE TABLE usage_uncounted (
    run bytea NOT NULL,
    tenant text NOT NULL COLLATE pg_catalog."C",
    model text
)
WITH (autovacuum_analyze_threshold='1000000');






INSERT INTO box_rows VALUES ('\x01a1f058647372db845774117dae33ab', 0, '\x01a1f058647372db8457740fad083128');
INSERT INTO box_rows VALUES ('\x01a1f058647372db84577412cf7263fc', 0, '\x01a1f058649a71e6ac6dbe1300f891ef');
INSERT INTO box_rows VALUES ('\x01a1f05864a67760bbaaac34e1faebff', 0, '\x01a1f05864a67760bbaaac32a855907a');
INSERT INTO box_rows VALUES ('\x01a1f05864a67760bbaaac355cbd324d', 0, '\x01a1f05864ae72e6a50227cc6ed231ff');
INSERT INTO box_rows VALUES ('\x01a1f05868b173a19ffa4bb6976cdcd0', 0, '\x01a1f05868b173a19ffa4bb5de6c3abf');



INSERT INTO boxes VALUES ('\x01a1f058647372db845774117dae33ab', 'default', NULL, NULL, 0, 0, false);
INSERT INTO boxes VALUES ('\x01a1f058647372db84577412cf7263fc', 'default', '\x01a1f058647372db845774117dae33ab', 1, 1, 0, false);
INSERT INTO boxes VALUES ('\x01a1f05864a67760bbaaac34e1faebff', 'default', NULL, NULL, 0, 0, false);
INSERT INTO boxes VALUES ('\x01a1f05864a67760bbaaac355cbd324d', 'default', '\x01a1f05864a67760bbaaac34e1faebff', 1, 1, 0, false);
INSERT INTO boxes VALUES ('\x01a1f05868b173a19ffa4bb6976cdcd0', 'default', NULL, NULL, 0, 0, false);
INSERT INTO boxes VALUES ('\x01a1f05868b173a19ffa4bb76f38959c', 'default', '\x01a1f05868b173a19ffa4bb6976cdcd0', 1, 1, 0, false);



INSERT INTO calls VALUES ('\x01a1f058647372db8457741004c36ef8', 1, 'default', 'ada', 1, 'echo', 'external', 'read', 'waiting', 1795033687195, 2110393687195, '\x01a1f058649a71e6ac6dbe1300f891ef', NULL, NULL, NULL, 0, NULL);
INSERT INTO calls VALUES ('\x01a1f05864a67760bbaaac339d91a871', 1, 'default', 'bob', 1, 'pay', 'external', 'write', 'parked', 1795033687214, 2110393687214, '\x01a1f05864ae72e6a50227cc6ed231ff', NULL, 'c43c6729227d2bc3/w1', NULL, 1, NULL);









INSERT INTO deltas VALUES ('\x01a1f05868b173a19ffa4bb4463a25bd', 0, 1, 'I', '\x4f6e652073656e74');
INSERT INTO deltas VALUES ('\x01a1f05868b173a19ffa4bb4463a25bd', 1, 1, 'I', '\x656e636520746861');



INSERT INTO heads VALUES ('default', 'ada', 'suspended', 1, 2, '\x01a1f058647372db8457741004c36ef8', 1, 1, 2110393687195, 2110393687195, 0, 0, 1, 0, NULL);
INSERT INTO heads VALUES ('default', 'bob', 'suspended', 1, 3, '\x01a1f05864a67760bbaaac339d91a871', 1, 1, NULL, NULL, 0, 0, 1, 0, NULL);
INSERT INTO heads VALUES ('default', 'run_01a1f05868b173a19ffa4bb4463a25bd', 'running', 1, 1, '\x01a1f05868b173a19ffa4bb4463a25bd', 1, 0, NULL, NULL, 0, 0, 1, 1, NULL);



INSERT INTO id_key VALUES (true, '\x792b0900868e4acf84b3219f653aad76eec84909ebd24f07bda2818f5e1fc786');



INSERT INTO inbox VALUES (1, 'default', 'ada', 'turn', 'consumed', '\x01a1f058647372db8457741004c36ef8', 1, NULL, '\x01a1f058647372db8457740fad083128', NULL, NULL, 'default', NULL, 1795033687156, 1795033687156);
INSERT INTO inbox VALUES (2, 'default', 'bob', 'turn', 'consumed', '\x01a1f05864a67760bbaaac339d91a871', 1, NULL, '\x01a1f05864a67760bbaaac32a855907a', NULL, NULL, 'default', NULL, 1795033687207, 1795033687207);
INSERT INTO inbox VALUES (3, 'default', 'run_01a1f05868b173a19ffa4bb4463a25bd', 'turn', 'consumed', '\x01a1f05868b173a19ffa4bb4463a25bd', 1, NULL, '\x01a1f05868b173a19ffa4bb5de6c3abf', NULL, NULL, 'default', NULL, 1795033688242, 1795033688242);



INSERT INTO items VALUES ('\x01a1f058647372db8457740fad083128', 'default', 'task.instruction', '\x45064d469879969eddcf767c83b2c088', '\x7b2274657874223a2273757370656e64227d');
INSERT INTO items VALUES ('\x01a1f058649a71e6ac6dbe1300f891ef', 'default', 'tool.call', '\x54285868b623455c1db7e9ab59c87989', '\x7b2263616c6c223a312c22746f6f6c223a226563686f222c22617267756d656e7473223a227b5c22746578745c223a5c22616c7068615c227d222c2270726f76696465725f6964223a2263616c6c5f315f30227d');
INSERT INTO items VALUES ('\x01a1f05864a67760bbaaac32a855907a', 'default', 'task.instruction', '\x084e0439d5a5f19d463398bfb3ab180e', '\x7b2274657874223a227061726b227d');
INSERT INTO items VALUES ('\x01a1f05864ae72e6a50227cc6ed231ff', 'default', 'tool.call', '\x7c3986c4ca72a8a6dc68c05ea264141f', '\x7b2263616c6c223a312c22746f6f6c223a22706179222c22617267756d656e7473223a227b5c22616d6f756e745c223a337d222c2270726f76696465725f6964223a2263616c6c5f315f30227d');
INSERT INTO items VALUES ('\x01a1f05868b173a19ffa4bb5de6c3abf', 'default', 'task.instruction', '\xb7387c954016d6395930ba8ae689588b', '\x7b226974656d223a7b2274797065223a226d657373616765222c22726f6c65223a2275736572222c22636f6e74656e74223a5b7b2274797065223a22696e7075745f74657874222c2274657874223a2273747265616d227d5d7d7d');



INSERT INTO manifests VALUES ('default', '\x3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655', '\x7b2276657273696f6e223a312c22706f6c696379223a22726573706f6e64222c226d6f64656c223a226d222c22746f6f6c73223a5b7b226e616d65223a226563686f222c226465736372697074696f6e223a22222c22706172616d6574657273223a7b2274797065223a226f626a656374227d2c22726f757465223a2265787465726e616c222c22656666656374223a2272656164222c2261667465725f657865637574696f6e223a2273757370656e64222c22646561646c696e655f6d73223a3331353336303030303030307d2c7b226e616d65223a22706179222c226465736372697074696f6e223a22222c22706172616d6574657273223a7b2274797065223a226f626a656374227d2c22726f757465223a2265787465726e616c222c22656666656374223a227772697465222c2261667465725f657865637574696f6e223a2273757370656e64222c22646561646c696e655f6d73223a3331353336303030303030307d5d2c2262756467657473223a7b22697465726174696f6e73223a31307d7d');
INSERT INTO manifests VALUES ('default', '\xcbcab8dda3c3dd6caafd2b5d8e5cb692914f51c504c106401ba2831cea831016', '\x7b2276657273696f6e223a312c22706f6c696379223a22726573706f6e64222c226d6f64656c223a226d222c2262756467657473223a7b22697465726174696f6e73223a31307d2c22616e6e6f756e636564223a747275657d');



INSERT INTO nodes VALUES (1, '2026-11-18 20:28:07.11219+00', '2026-11-18 20:28:09.42545+00');






INSERT INTO requests VALUES ('default', '\x0b16934d52ea9f6e0c9678579db66ad7eb232d14aa89d48201f7457520436fcd', '\x01a1f05868b173a19ffa4bb4463a25bd', 1, NULL);



INSERT INTO runs VALUES ('\x01a1f058647372db8457741004c36ef8', 'default', 'ada', 1, 'active', 'turn', 1, 1, NULL, '\x3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655', '\x01a1f058647372db845774117dae33ab', '\x01a1f058647372db84577412cf7263fc', 1, '\x7b227068617365223a7b227468696e6b696e67223a7b22617474656d7074223a317d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a332c2263616c6c735f75736564223a302c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538363437333732646238343537373431313764616533336162222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538363437333732646238343537373431326366373236336663222c226c656e677468223a307d2c22737461727465645f6174223a313739353033333638373135367d', 1, '\x7822dad1bcb08bbd50d1715ace8d9885', NULL, 'default', 0, NULL, 1795033687156, NULL, NULL, NULL, NULL, NULL, 0, DEFAULT, 'ada', false);
INSERT INTO runs VALUES ('\x01a1f05864a67760bbaaac339d91a871', 'default', 'bob', 1, 'active', 'turn', 1, 2, NULL, '\x3a6cc10f3764a75e22afe608b38518ef84084888a8c56e4895efbdefd69a0655', '\x01a1f05864a67760bbaaac34e1faebff', '\x01a1f05864a67760bbaaac355cbd324d', 1, '\x7b227068617365223a7b2277616974696e67223a7b2263616c6c73223a5b7b2263616c6c223a312c22746f6f6c223a22706179222c22726f757465223a2265787465726e616c222c22656666656374223a227772697465222c22646561646c696e65223a323131303339333638373231342c2270726f6772657373223a227061726b6564227d5d7d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a352c2263616c6c735f75736564223a312c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538363461363737363062626161616333346531666165626666222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538363461363737363062626161616333353563626433323464222c226c656e677468223a317d2c227573616765223a7b22696e223a322c226f7574223a347d2c22737461727465645f6174223a313739353033333638373230377d', 1, '\x0c9acb7803e14d0cdbf2cad89ac0506f', NULL, 'default', 0, NULL, 1795033687207, NULL, NULL, NULL, NULL, NULL, 0, DEFAULT, 'bob', false);
INSERT INTO runs VALUES ('\x01a1f05868b173a19ffa4bb4463a25bd', 'default', 'run_01a1f05868b173a19ffa4bb4463a25bd', 1, 'active', 'turn', 1, 3, NULL, '\xcbcab8dda3c3dd6caafd2b5d8e5cb692914f51c504c106401ba2831cea831016', '\x01a1f05868b173a19ffa4bb6976cdcd0', '\x01a1f05868b173a19ffa4bb76f38959c', 1, '\x7b227068617365223a7b227468696e6b696e67223a7b22617474656d7074223a317d7d2c226f726967696e223a227475726e222c22697465726174696f6e223a312c226e6578745f6e756d626572223a332c2263616c6c735f75736564223a302c22636f6e74657874223a7b22626f78223a22626f785f3031613166303538363862313733613139666661346262363937366364636430222c226c656e677468223a317d2c226f7574707574223a7b22626f78223a22626f785f3031613166303538363862313733613139666661346262373666333839353963222c226c656e677468223a307d2c22737461727465645f6174223a313739353033333638383234327d', 1, '\xb0f08233ec15559b9e06bf5846135e8b', NULL, 'default', 0, NULL, 1795033688242, NULL, '\x7b2276657273696f6e223a312c226d6f64656c223a226d222c2273746f7265223a747275652c226261636b67726f756e64223a747275652c227370656c6c696e67223a7b227061697273223a66616c73652c226c6966656379636c65223a66616c73652c227374616e64617264223a66616c73652c227365616c6564223a66616c73652c22726177223a66616c73657d2c226563686f223a7b226672657175656e63795f70656e616c7479223a302e302c22696e737472756374696f6e73223a6e756c6c2c226d61785f6f75747075745f746f6b656e73223a6e756c6c2c226d61785f746f6f6c5f63616c6c73223a6e756c6c2c226d65746164617461223a7b7d2c22706172616c6c656c5f746f6f6c5f63616c6c73223a747275652c2270726573656e63655f70656e616c7479223a302e302c2270726576696f75735f726573706f6e73655f6964223a6e756c6c2c2270726f6d70745f63616368655f6b6579223a6e756c6c2c22726561736f6e696e67223a6e756c6c2c227361666574795f6964656e746966696572223a6e756c6c2c22736572766963655f74696572223a2264656661756c74222c2274656d7065726174757265223a312e302c2274657874223a7b22666f726d6174223a7b2274797065223a2274657874227d7d2c22746f6f6c5f63686f696365223a226175746f222c22746f705f6c6f6770726f6273223a302c22746f705f70223a312e302c227472756e636174696f6e223a2264697361626c6564222c2275736572223a6e756c6c7d2c2266696e6765727072696e74223a22227d', NULL, NULL, NULL, 0, DEFAULT, NULL, false);



INSERT INTO schema_version VALUES (1, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (2, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (3, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (4, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (5, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (6, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (7, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (8, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (9, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (10, '2026-11-18 20:28:06.721069+00');
INSERT INTO schema_version VALUES (11, '2026-11-18 20:28:06.721069+00');



INSERT INTO seal_canary VALUES (true, 'AoWRhuvX53umLDd2SdlVuWQXLZ1MkzqKzi3e1AX7Tk6syoBcdFq6Z9c');



INSERT INTO stretches VALUES ('\x01a1f058647372db8457741004c36ef8', 0, 1, 1795033687156, 1, '[["accepted",{"origin":"turn","context":{"box":"box_01a1f058647372db845774117dae33ab","length":1},"output":{"box":"box_01a1f058647372db84577412cf7263fc","length":0}}]]');
INSERT INTO stretches VALUES ('\x01a1f058647372db8457741004c36ef8', 1, 1, 1795033687156, 1, '[["leased",{}],["lap_started",{"iteration":1,"at":1795033687156}]]');
INSERT INTO stretches VALUES ('\x01a1f058647372db8457741004c36ef8', 3, 1, 1795033687195, 1, '[["replied",{"iteration":1,"items":1,"usage":{"in":2,"out":6},"calls":[{"call":1,"tool":"echo","route":"external","effect":"read","deadline":2110393687195}]}]]');
INSERT INTO stretches VALUES ('\x01a1f05864a67760bbaaac339d91a871', 0, 1, 1795033687207, 1, '[["accepted",{"origin":"turn","context":{"box":"box_01a1f05864a67760bbaaac34e1faebff","length":1},"output":{"box":"box_01a1f05864a67760bbaaac355cbd324d","length":0}}]]');
INSERT INTO stretches VALUES ('\x01a1f05864a67760bbaaac339d91a871', 1, 1, 1795033687207, 1, '[["leased",{}],["lap_started",{"iteration":1,"at":1795033687207}]]');
INSERT INTO stretches VALUES ('\x01a1f05864a67760bbaaac339d91a871', 3, 1, 1795033687214, 1, '[["replied",{"iteration":1,"items":1,"usage":{"in":2,"out":4},"calls":[{"call":1,"tool":"pay","route":"external","effect":"write","deadline":2110393687214}]}]]');
INSERT INTO stretches VALUES ('\x01a1f05864a67760bbaaac339d91a871', 4, 1, 1795033688231, 1, '[["call_parked",{"call":1}]]');
INSERT INTO stretches VALUES ('\x01a1f05868b173a19ffa4bb4463a25bd', 0, 1, 1795033688242, 1, '[["accepted",{"origin":"turn","context":{"box":"box_01a1f05868b173a19ffa4bb6976cdcd0","length":1},"output":{"box":"box_01a1f05868b173a19ffa4bb76f38959c","length":0}}]]');
INSERT INTO stretches VALUES ('\x01a1f05868b173a19ffa4bb4463a25bd', 1, 1, 1795033688242, 1, '[["leased",{}],["lap_started",{"iteration":1,"at":1795033688242}]]');



INSERT INTO tenants VALUES ('default', 3, 3);









SELECT pg_catalog.setval('inbox_numbers', 3, true);



SELECT pg_catalog.setval('nodes_node_seq', 1, true);



SELECT pg_catalog.setval('outbox_n_seq', 6, true);



ALTER TABLE ONLY answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (tenant, key);



ALTER TABLE ONLY box_rows
    ADD CONSTRAINT box_rows_pkey PRIMARY KEY (box, "position");



ALTER TABLE ONLY boxes
    ADD CONSTRAINT boxes_pkey PRIMARY KEY (box);



ALTER TABLE ONLY calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (run, call);



ALTER TABLE ONLY conversation_parts
    ADD CONSTRAINT conversation_parts_pkey PRIMARY KEY (conversation, n);



ALTER TABLE ONLY conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (conversation);



ALTER TABLE ONLY deltas
    ADD CONSTRAINT deltas_pkey PRIMARY KEY (run, first);



ALTER TABLE ONLY heads
    ADD CONSTRAINT heads_pkey PRIMARY KEY (tenant, agent);



ALTER TABLE ONLY id_key
    ADD CONSTRAINT id_key_pkey PRIMARY KEY (only_row);



ALTER TABLE ONLY inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (n);



ALTER TABLE ONLY items
    ADD CONSTRAINT items_pkey PRIMARY KEY (item);



ALTER TABLE ONLY manifests
    ADD CONSTRAINT manifests_pkey PRIMARY KEY (tenant, hash);



ALTER TABLE ONLY nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (node);



ALTER TABLE ONLY outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (n);



ALTER TABLE ONLY requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (tenant, hash, run);



ALTER TABLE ONLY runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (run);



ALTER TABLE ONLY schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);



ALTER TABLE ONLY seal_canary
    ADD CONSTRAINT seal_canary_pkey PRIMARY KEY (only_row);



ALTER TABLE ONLY stretches
    ADD CONSTRAINT stretches_pkey PRIMARY KEY (run, first);



ALTER TABLE ONLY tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (tenant, slot);



ALTER TABLE ONLY usage
    ADD CONSTRAINT usage_pkey PRIMARY KEY (tenant, day, agent, model, node);



ALTER TABLE ONLY usage_uncounted
    ADD CONSTRAINT usage_uncounted_pkey PRIMARY KEY (run);



CREATE INDEX answers_run ON answers USING btree (run);



CREATE INDEX calls_claimed ON calls USING btree (run, call) WHERE ((status)::text = 'claimed'::text);



CREATE INDEX calls_keys ON calls USING btree (tenant, claim_key) WHERE (claim_key IS NOT NULL);



CREATE INDEX calls_waiting ON calls USING btree (tenant, tool, created_at, run, call) WHERE ((status)::text = 'waiting'::text);



CREATE INDEX heads_active ON heads USING btree (tenant, run) WHERE (run IS NOT NULL);



CREATE INDEX heads_due ON heads USING btree (wake_at) WHERE (wake_at IS NOT NULL);



CREATE INDEX inbox_pending ON inbox USING btree (tenant, agent) WHERE ((status)::text = 'pending'::text);



CREATE UNIQUE INDEX inbox_run ON inbox USING btree (run, call, kind);



CREATE INDEX inbox_strays ON inbox USING btree (tenant, agent) WHERE (run IS NULL);



CREATE UNIQUE INDEX runs_dedupe ON runs USING btree (tenant, dedupe) WHERE (dedupe IS NOT NULL);



CREATE INDEX runs_erasable ON runs USING btree (erase_at, run) WHERE (erase_at IS NOT NULL);



CREATE INDEX runs_listed ON runs USING btree (tenant, run) WHERE (NOT unlisted);



CREATE INDEX runs_manifest ON runs USING btree (tenant, manifest);



CREATE INDEX runs_named ON runs USING btree (tenant, agent_name, run) WHERE ((agent_name IS NOT NULL) AND (NOT unlisted));



CREATE UNIQUE INDEX runs_ordinal ON runs USING btree (tenant, agent, ordinal);



CREATE INDEX runs_queued ON runs USING btree (tenant, run) WHERE (epoch IS NULL);



CREATE UNIQUE INDEX runs_takes ON runs USING btree (tenant, takes) WHERE (takes IS NOT NULL);




