//! Opening a database: what is refused, and what is accepted.

use windlass_ports::{CallStatus, CanaryKey, MessageKind, MessageStatus, Page, RunStatus, SealKeys};
use windlass_store::{PostgresOpenError, PostgresViews};

use super::*;

#[tokio::test]
async fn servers_that_start_at_once_share_one_migration() {
    let database = Server::shared().database().await;
    let open = || PostgresStore::open(&database.url, StoreOptions::default());
    let (one, two, three) = tokio::join!(open(), open(), open());
    let mut nodes = [one.unwrap().node().0, two.unwrap().node().0, three.unwrap().node().0];
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
    let migrations = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres")).unwrap().count();
    assert_eq!(usize::try_from(count(&database, "SELECT count(*) FROM schema_version").await), Ok(migrations));
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_untouched() {
    let database = Server::shared().database().await;
    drop(node(&database).await);
    database.client().await.batch_execute("INSERT INTO schema_version (version) VALUES (99)").await.unwrap();
    let refused = PostgresStore::open(&database.url, StoreOptions::default()).await;
    assert!(matches!(refused, Err(PostgresOpenError::Newer { found: 99, known: 15 })), "{:?}", refused.err());
    assert!(matches!(PostgresViews::open(&database.url).await, Err(PostgresOpenError::Newer { .. })));
    assert_eq!(count(&database, "SELECT count(*) FROM nodes").await, 1, "no second server was noted");
}

/// Keys of one letter: a canary is the letter of the key that sealed it.
struct Letters(&'static str);

impl SealKeys for Letters {
    fn canary(&self) -> String {
        self.0[..1].to_owned()
    }

    fn check_canary(&self, canary: &str) -> Result<CanaryKey, String> {
        match self.0.find(canary) {
            Some(0) => Ok(CanaryKey::Current),
            Some(_) => Ok(CanaryKey::Earlier),
            None => Err(format!("{canary} is wanted")),
        }
    }
}

#[tokio::test]
async fn tm_20_keys_that_do_not_open_the_canary_of_a_shared_database_are_refused() {
    let database = Server::shared().database().await;
    let open = |keys| {
        let url = database.url.clone();
        async move { PostgresStore::open_sealed(&url, StoreOptions::default(), None, &Letters(keys)).await.map(drop) }
    };
    let (one, two) = tokio::join!(open("ab"), open("ba"));
    assert!(one.is_ok() && two.is_ok(), "servers that start at once share the canary");
    open("ca").await.or(open("cb").await).unwrap();
    open("c").await.unwrap();
    let nodes = count(&database, "SELECT count(*) FROM nodes").await;
    let refused = open("ab").await.expect_err("neither is the key in use");
    assert!(matches!(&refused, PostgresOpenError::SealKey(why) if why == "c is wanted"), "{refused}");
    assert_eq!(count(&database, "SELECT count(*) FROM nodes").await, nodes, "the refused server was not noted");
    assert_eq!(count(&database, "SELECT count(*) FROM seal_canary").await, 1);
}

/// Undoes migrations 15 and 14, except for the words that 14 added.
const NO_CHILDREN: &str = "DROP INDEX heads_named; CREATE INDEX heads_active ON heads (tenant, run) WHERE run IS NOT NULL;
                           DROP INDEX runs_named;
                           CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE agent_name IS NOT NULL AND NOT unlisted;
                           DROP INDEX runs_children; ALTER TABLE runs DROP COLUMN parent, DROP COLUMN parent_agent, DROP COLUMN parent_call;
                           DROP INDEX inbox_run; ALTER TABLE inbox DROP COLUMN retry, DROP COLUMN below;
                           CREATE UNIQUE INDEX inbox_run ON inbox (run, call, kind); ALTER TABLE calls DROP COLUMN retry;";

#[tokio::test]
async fn runs_of_a_version_without_names_are_listed() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let runs = runs_without_names(&store, &Kit::new(&store)).await;
    drop(store);
    let undone = "DROP INDEX heads_active; DROP INDEX runs_queued; ALTER TABLE runs DROP COLUMN agent_name; \
                  ALTER TABLE runs DROP COLUMN unlisted; DROP TABLE requests; DROP TABLE seal_canary; DROP TABLE usage; \
                  DROP TABLE usage_uncounted; DROP TABLE id_key; DROP TABLE interrupts; ALTER TABLE heads DROP COLUMN held; \
                  ALTER TABLE items DROP COLUMN header; DROP DOMAIN interrupt_cause, interrupt_timeout, interrupt_verdict; \
                  DELETE FROM schema_version WHERE version >= 5";
    database.client().await.batch_execute(NO_CHILDREN).await.unwrap();
    database.client().await.batch_execute(undone).await.unwrap();
    check_names_of_earlier_runs(&node(&database).await, runs).await;
}

#[tokio::test]
async fn tm_21_servers_of_a_shared_database_have_one_secret_for_ids() {
    let database = Server::shared().database().await;
    let key = || async { PostgresStore::open(&database.url, StoreOptions { publish: false, usage: false }).await.unwrap().id_key() };
    let (first, second) = (key().await, key().await);
    assert_eq!(first, second);
    assert_ne!(first, [0; 32]);
}

/// The keys are in clear, as version 7 stored them: with backslashes escaped.
#[tokio::test]
async fn tm_05_keys_of_an_earlier_version_of_a_shared_database_become_hashes() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let run = use_keys(&store, &Kit::new(&store)).await;
    drop(store);
    let client = database.client().await;
    let clear = |sql: &'static str, key: &str| (sql, key.replace('\\', "\\\\"));
    for (sql, key) in [
        clear("UPDATE runs SET dedupe = $1", KEYS[0]),
        clear("UPDATE answers SET key = $1", KEYS[1]),
        clear("UPDATE calls SET claim_key = $1 WHERE claim_key IS NOT NULL", KEYS[2]),
    ] {
        assert_eq!(client.execute(sql, &[&key]).await.unwrap(), 1, "{sql}");
    }
    let earlier = "DROP TABLE usage, usage_uncounted, id_key; DROP TABLE interrupts; ALTER TABLE heads DROP COLUMN held;
                  ALTER TABLE items DROP COLUMN header;
                  DROP DOMAIN interrupt_cause, interrupt_timeout, interrupt_verdict; DELETE FROM schema_version WHERE version >= 8";
    client.batch_execute(NO_CHILDREN).await.unwrap();
    client.batch_execute(earlier).await.unwrap();
    let store = node(&database).await;
    check_keys(&store, &Kit::new(&store), run).await;
    let clear = "SELECT count(*) FROM (SELECT dedupe AS key FROM runs UNION ALL SELECT key FROM answers
                 UNION ALL SELECT claim_key FROM calls) AS keys WHERE key LIKE '%key%'";
    assert_eq!(count(&database, clear).await, 0);
}

/// Manifests had no tenant, and erased runs kept theirs, as version 9 stored them.
#[tokio::test]
async fn tm_05_manifests_of_an_earlier_version_of_a_shared_database_get_their_tenants() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let runs = runs_with_one_manifest(&store, &Kit::new(&store)).await;
    drop(store);
    let undone = "CREATE TABLE common (hash bytea, body bytea NOT NULL, CONSTRAINT common_pkey PRIMARY KEY (hash));
                  INSERT INTO common SELECT DISTINCT hash, body FROM manifests;
                  INSERT INTO common VALUES (decode(repeat('00', 31) || '01', 'hex'), 'of an erased run');
                  DROP TABLE manifests; ALTER TABLE common RENAME TO manifests; ALTER INDEX common_pkey RENAME TO manifests_pkey;
                  DROP INDEX runs_manifest;
                  UPDATE runs SET manifest = decode(repeat('00', 31) || '01', 'hex') WHERE manifest = decode(repeat('00', 32), 'hex');
                  ALTER TABLE usage_uncounted DROP COLUMN model; DROP TABLE id_key; DROP TABLE interrupts;
                  ALTER TABLE items DROP COLUMN header;
                  ALTER TABLE heads DROP COLUMN held; DROP DOMAIN interrupt_cause, interrupt_timeout, interrupt_verdict;
                  DELETE FROM schema_version WHERE version >= 10";
    database.client().await.batch_execute(NO_CHILDREN).await.unwrap();
    database.client().await.batch_execute(undone).await.unwrap();
    check_manifests_of_earlier_runs(&node(&database).await, runs).await;
    assert_eq!(count(&database, "SELECT count(*) FROM manifests").await, 1, "that of the other tenant");
}

#[tokio::test]
async fn a_database_is_reached_over_a_socket_and_read_without_a_trace() {
    let database = Server::shared().database().await;
    assert!(PostgresViews::open(&database.url).await.is_err(), "there is nothing to read yet");
    let url = if std::env::var_os("WINDLASS_TEST_POSTGRES_URL").is_some() { &database.url } else { &database.socket };
    let store: Arc<dyn Full> = Arc::new(PostgresStore::open(url, StoreOptions::default()).await.unwrap());
    let kit = Kit::new(&store);
    let run = one_run(&store, &kit, &agent("a")).await;
    let views: Box<dyn windlass_ports::Views> = Box::new(PostgresViews::open(&database.url).await.unwrap());
    let view = views.run(&agent("a").tenant, run).await.unwrap().unwrap();
    assert_eq!(views.range_items(&agent("a").tenant, view.state.output).await.unwrap().len(), 4);
    assert_eq!(count(&database, "SELECT count(*) FROM nodes").await, 1);
}

#[tokio::test]
async fn errors_about_an_address_do_not_repeat_its_password() {
    for url in ["postgres://u:hunter2@host:port/db", "postgres://u:hunter2@h/db?hunter2=1", "postgres://u:hunter2@h/db?sslmode=hunter2"] {
        let error = PostgresStore::open(url, StoreOptions::default()).await.err().unwrap();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        assert_eq!(matches!(error, PostgresOpenError::Tls(_)), url.contains("sslmode"), "{error}");
    }
}

#[tokio::test]
async fn a_database_that_is_down_is_given_up_at_the_start() {
    // A listener that was closed: nothing answers at its address.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://u:hunter2@{gone}/db");
    let open = PostgresStore::open(&url, StoreOptions::default());
    let error = tokio::time::timeout(Duration::from_secs(5), open).await.expect("within five seconds").err().unwrap();
    assert!(matches!(error, PostgresOpenError::Unreachable(_)), "{error}");
    assert_eq!(windlass_store::postgres_address(&url), Some(gone.to_string()));
}

#[tokio::test]
async fn servers_share_a_database_only_with_servers_of_the_same_own_token() {
    let database = Server::shared().database().await;
    let open = |token: Option<u8>| PostgresStore::open_for(&database.url, StoreOptions::default(), token.map(|byte| [byte; 32]));
    let first = open(Some(1)).await.unwrap();
    // The names of its connections have the hash of the token. A running server has one for its heartbeats.
    first.beat(first.node(), 10_000).await.unwrap();
    let refused = open(Some(2)).await.err().unwrap();
    assert!(matches!(refused, PostgresOpenError::OwnTokens), "{refused}");
    assert!(refused.to_string().contains("auth.tokens"), "{refused}");
    let (same, configured) = (open(Some(1)).await.unwrap(), open(None).await.unwrap());
    drop((first, same, configured));
}

/// Every text that comes from outside, with characters that PostgreSQL's own text can't hold.
#[tokio::test]
async fn nuls_and_backslashes_come_back_wherever_they_were() {
    const ODD: &str = "a\0b\\0c\\";
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let agent = agent(ODD);
    let mut new = kit.entering(kit.new_run(&agent, START));
    (new.dedupe, new.lineage.source, new.lineage.parent_step) = (Some(ODD.into()), Some(ODD.into()), Some(ODD.into()));
    let run = new.run;
    store.enqueue(new.clone()).await.unwrap();
    new.run = kit.run_id();
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Duplicate { run: first, .. } if first == run));
    let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
    assert_eq!((&view.agent, view.lineage.source.as_deref(), view.lineage.parent_step.as_deref()), (&agent, Some(ODD), Some(ODD)));
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    let mut claim = kit.claim(LOOKUP, ODD, 5, START);
    claim.key = Some(ODD.into());
    let claimed = store.claim_calls(claim.clone()).await.unwrap();
    assert_eq!(store.claim_calls(claim.clone()).await.unwrap(), claimed);
    assert!(store.renew_calls(claim, vec![(run, claimed[0].call)]).await.unwrap().is_empty());
    let mut report = kit.new_report(&agent, run, 1, START);
    (report.message.source, report.message.reason) = (Some(ODD.into()), Some(ODD.into()));
    let Taken::Recorded(message) = store.report(report).await.unwrap() else { panic!("the report is new") };
    store.refuse(agent.clone(), message, format!("refused {ODD}")).await.unwrap();
    let inbox = store.inbox(&agent, Page { after: 0, limit: 10 }).await.unwrap();
    assert_eq!((inbox[1].source.as_deref(), inbox[1].reason.as_deref()), (Some(ODD), Some("refused a\0b\\0c\\")));
    store.quarantine(agent.clone(), run, ODD.into()).await.unwrap();
    assert_eq!(store.head(&agent).await.unwrap().unwrap().quarantined.as_deref(), Some(ODD));
    store.beat(windlass_ports::NodeId(1), 0).await.unwrap();
    kit.begin(&windlass_store::conformance::fixtures::agent("a\\"), START).await;
    kit.begin(&windlass_store::conformance::fixtures::agent("a\0"), START).await;
    let mut orphans = Vec::new();
    while let Some(found) = store.orphans(windlass_ports::NodeId(2), orphans.last().cloned(), 1).await.unwrap().pop() {
        orphans.push(found);
    }
    assert_eq!(orphans.len(), 2, "pages follow each other: {orphans:?}");
}

/// A connection from outside to a database with one suspended run.
async fn with_a_run(database: &Database) -> tokio_postgres::Client {
    let store = node(database).await;
    let kit = Kit::new(&store);
    let (run, _) = kit.begin(&agent("a"), START).await;
    kit.advance(&agent("a"), calls(&[LOOKUP]), START).await;
    assert!(matches!(kit.report(&agent("a"), run, 1, START).await, Taken::Recorded(_)));
    database.client().await
}

#[tokio::test]
async fn the_database_refuses_unknown_variants() {
    let database = Server::shared().database().await;
    let outside = with_a_run(&database).await;
    for nonsense in [
        "UPDATE heads SET status = 'asleep'",
        "UPDATE heads SET status = 'idle'",
        "UPDATE heads SET run = NULL",
        "UPDATE heads SET pending = -1",
        "UPDATE runs SET status = 'lost'",
        "UPDATE runs SET status = 'ended'",
        "UPDATE runs SET kind = 'stop'",
        "UPDATE inbox SET status = 'eaten'",
        "UPDATE inbox SET kind = 'gossip'",
        "UPDATE inbox SET outcome = 'great'",
        "UPDATE inbox SET after_execution = 'dance'",
        "UPDATE calls SET status = 'done'",
        "UPDATE calls SET status = 'claimed'",
        "UPDATE calls SET route = 'abroad'",
        "UPDATE calls SET effect = 'none'",
        "UPDATE items SET kind = 'poem'",
        "UPDATE boxes SET parent = '\\x00', parent_length = NULL",
        "INSERT INTO inbox (n, tenant, agent, kind, status, run, call, created_at)
         SELECT 1000, tenant, agent, kind, 'pending', run, call, 0 FROM inbox WHERE call IS NOT NULL",
    ] {
        let outcome = outside.execute(nonsense, &[]).await;
        let class = outcome.as_ref().err().and_then(|error| error.code()).map(|code| code.code()[..2].to_owned());
        assert_eq!(class.as_deref(), Some("23"), "{nonsense}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_database_accepts_every_variant() {
    let database = Server::shared().database().await;
    let outside = with_a_run(&database).await;
    let mut changes = Vec::new();
    changes.extend(RunStatus::ALL.iter().map(|name| {
        let (name, ended) = (name.as_str(), if *name == RunStatus::Ended { "1" } else { "NULL" });
        format!("UPDATE runs SET status = '{name}', ended_at = {ended}")
    }));
    changes
        .extend(CallStatus::ALL.iter().map(|name| format!("UPDATE calls SET status = '{}', worker = 'w', lease_until = 1", name.as_str())));
    changes.extend(MessageStatus::ALL.iter().map(|name| format!("UPDATE inbox SET status = '{}'", name.as_str())));
    changes.extend(MessageKind::ALL.iter().map(|name| format!("UPDATE inbox SET kind = '{}' WHERE call IS NULL", name.as_str())));
    changes.extend(windlass_kernel::ItemKind::ALL.iter().map(|name| format!("UPDATE items SET kind = '{}'", name.as_str())));
    for change in changes {
        let changed = outside.execute(&change, &[]).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        assert!(changed > 0, "{change}");
    }
}

#[tokio::test]
async fn the_journal_can_be_read_event_by_event() {
    let database = Server::shared().database().await;
    let store = node(&database).await;
    let kit = Kit::new(&store);
    let run = one_run(&store, &kit, &agent("a")).await;
    let events = store.journal(&agent("a").tenant, run, 0, 100).await.unwrap();
    let rows = database.client().await.query("SELECT number, kind FROM journal ORDER BY number", &[]).await.unwrap();
    let shown: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected: Vec<(i64, String)> = events.iter().map(|entry| (entry.number as i64, entry.event.kind().to_owned())).collect();
    assert_eq!(shown, expected);
    for from in 0..events.len() {
        assert_eq!(store.journal(&agent("a").tenant, run, from as u64, 2).await.unwrap(), events[from..events.len().min(from + 2)]);
    }
}

#[tokio::test]
async fn tm_16_the_connection_to_postgresql_is_encrypted_and_its_certificate_checked() {
    let (server, certificate) = Server::start_with_tls();
    let database = server.database_alone().await;
    let open = async |query: &str| {
        let url = format!("{}?{query}", database.url);
        PostgresStore::open(&url, StoreOptions::default()).await.map(drop).map_err(|error| error.to_string())
    };
    let plain = open("sslmode=disable").await.unwrap_err();
    assert!(plain.contains("no encryption"), "the server takes nothing else: {plain}");
    open("sslmode=require").await.unwrap();
    let root = certificate.display();
    open(&format!("sslmode=verify-full&sslrootcert={root}")).await.unwrap();
    let unknown = open("sslmode=verify-full").await.unwrap_err();
    assert!(unknown.contains("certificate"), "the signer is unknown: {unknown}");
    let renamed = database.url.replace("127.0.0.1", "localhost");
    let other = PostgresStore::open(&format!("{renamed}?sslmode=verify-full&sslrootcert={root}"), StoreOptions::default()).await;
    let other = other.map(drop).unwrap_err().to_string();
    assert!(other.contains("certificate"), "it names 127.0.0.1 and not localhost: {other}");
    for (query, expected) in [
        ("sslmode=verify-ca", "sslmode must be disable, require or verify-full"),
        ("sslmode=require&sslrootcert=x", "sslrootcert needs sslmode=verify-full"),
        ("sslmode=verify-full&sslrootcert=/nowhere", "sslrootcert /nowhere cannot be read"),
    ] {
        let refused = open(query).await.unwrap_err();
        assert!(refused.contains(expected), "{query}: {refused}");
    }
}
