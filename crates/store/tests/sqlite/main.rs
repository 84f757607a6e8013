//! What only the store on disk can show: files, locks, versions, and constraints of the database.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like tests")]

mod erased;
mod parked;

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use rusqlite::Connection;
use windlass_kernel::{Cause, HeadStatus, Input, ItemKind, OnTimeout, Opening, TaskStatus, Verdict};
use windlass_ports::{
    CallStatus, CanaryKey, ConversationChange, Conversed, Enqueued, MessageKind, MessageStatus, RunStatus, SealKeys, Store, StoreError,
    Taken, Views,
};
use windlass_store::{
    OpenError, SqliteStore, SqliteViews, StoreOptions,
    conformance::{
        Full,
        fixtures::{Kit, LOOKUP, START, agent, calls, delta_batch, final_reply},
        keys::{KEYS, check_keys, use_keys},
        lists::{check_names_of_earlier_runs, runs_without_names},
        manifests::{check_manifests_of_earlier_runs, runs_with_one_manifest},
    },
};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, StoreOptions::default()).unwrap()
}

#[test]
fn a_second_server_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/windlass.db");
    let first = open(&path);
    let second = SqliteStore::open(&path, StoreOptions::default());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    let node = first.node();
    drop(first);
    let third = open(&path);
    assert!(third.node() > node, "each start is another node");
}

#[tokio::test]
async fn a_database_of_an_earlier_version_gets_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let earlier = Connection::open(&path).unwrap();
    earlier.execute_batch("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)").unwrap();
    earlier.execute_batch(include_str!("../../migrations/0001_init.sql")).unwrap();
    earlier.execute("INSERT INTO schema_version VALUES (1, 0)", []).unwrap();
    drop(earlier);
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let (tenant, id) = (agent("").tenant, kit.conversation_id());
    let begin = ConversationChange::Begin { metadata: "{}".into(), id: kit.box_id(), items: Vec::new() };
    assert!(matches!(store.converse(tenant, id, begin, START).await.unwrap(), Conversed::Done(_)));
}

#[test]
fn tm_21_a_database_keeps_its_own_secret_for_ids() {
    let key = |path: &Path| open(path).id_key();
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.db"), folder.path().join("other.db"));
    assert_eq!(key(&one), key(&one), "an id is the same after a restart");
    assert_ne!(key(&one), key(&other));
    assert_ne!(key(&one), [0; 32]);
}

/// Undoes migrations 15 and 14. The tables that 14 rebuilds are rebuilt from any later form.
const NO_CHILDREN: &str = "DROP INDEX heads_named; ALTER TABLE heads DROP COLUMN named; ALTER TABLE manifests DROP COLUMN runs;
                           CREATE INDEX runs_manifest ON runs (tenant, manifest);
                           DROP INDEX runs_named; CREATE INDEX runs_named ON runs (tenant, agent_name, run) WHERE unlisted = 0;
                           DROP INDEX runs_children; ALTER TABLE runs DROP COLUMN parent; ALTER TABLE runs DROP COLUMN parent_agent;
                           ALTER TABLE runs DROP COLUMN parent_call;";

#[tokio::test]
async fn runs_of_a_version_without_names_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let runs = runs_without_names(&store, &kit).await;
    drop((kit, store));
    let earlier = Connection::open(&path).unwrap();
    let undone = "DROP INDEX runs_listed; DROP INDEX runs_named; DROP INDEX runs_queued; DROP INDEX heads_active;
                  ALTER TABLE runs DROP COLUMN agent_name; ALTER TABLE runs DROP COLUMN unlisted;
                  DROP TABLE requests; DROP TABLE seal_canary; DROP TABLE usage; DROP TABLE usage_uncounted; DROP TABLE id_key;
                  ALTER TABLE items DROP COLUMN header;
                  DROP TABLE interrupts; ALTER TABLE heads DROP COLUMN held; DELETE FROM schema_version WHERE version >= 5";
    earlier.execute_batch(NO_CHILDREN).unwrap();
    earlier.execute_batch(undone).unwrap();
    drop(earlier);
    let store: Arc<dyn Full> = Arc::new(open(&path));
    check_names_of_earlier_runs(&store, runs).await;
}

/// The keys are in clear, as version 7 stored them.
#[tokio::test]
async fn tm_05_keys_of_an_earlier_version_become_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let run = use_keys(&store, &Kit::new(&store)).await;
    drop(store);
    let texts = || KEYS.map(|key| !files_with(folder.path(), key).is_empty());
    assert_eq!(texts(), [false; 3], "no key was stored in clear");
    let earlier = Connection::open(&path).unwrap();
    earlier.execute("UPDATE runs SET dedupe = ?1", [KEYS[0]]).unwrap();
    earlier.execute("UPDATE answers SET key = ?1", [KEYS[1]]).unwrap();
    earlier.execute("UPDATE calls SET claim_key = ?1 WHERE claim_key IS NOT NULL", [KEYS[2]]).unwrap();
    let undone = "DROP TABLE usage; DROP TABLE usage_uncounted; DROP TABLE id_key; DROP TABLE interrupts;
                  ALTER TABLE items DROP COLUMN header;
                  ALTER TABLE heads DROP COLUMN held; DELETE FROM schema_version WHERE version >= 8";
    earlier.execute_batch(NO_CHILDREN).unwrap();
    earlier.execute_batch(undone).unwrap();
    drop(earlier);
    assert_eq!(texts(), [true; 3]);
    let store: Arc<dyn Full> = Arc::new(open(&path));
    check_keys(&store, &Kit::new(&store), run).await;
    drop(store);
    assert_eq!(texts(), [false; 3], "the migration overwrites what it replaces");
}

/// Manifests had no tenant, and erased runs kept theirs, as version 9 stored them.
#[tokio::test]
async fn tm_05_manifests_of_an_earlier_version_get_their_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let runs = runs_with_one_manifest(&store, &Kit::new(&store)).await;
    drop(store);
    let earlier = Connection::open(&path).unwrap();
    let undone = "CREATE TABLE common (hash BLOB PRIMARY KEY, body BLOB NOT NULL);
                  INSERT OR IGNORE INTO common SELECT hash, body FROM manifests;
                  INSERT INTO common VALUES (zeroblob(31) || x'01', CAST('of an erased run' AS BLOB));
                  DROP TABLE manifests; ALTER TABLE common RENAME TO manifests; DROP INDEX runs_manifest;
                  UPDATE runs SET manifest = zeroblob(31) || x'01' WHERE manifest = zeroblob(32);
                  ALTER TABLE usage_uncounted DROP COLUMN model; DROP TABLE id_key; DROP TABLE interrupts;
                  ALTER TABLE items DROP COLUMN header;
                  ALTER TABLE heads DROP COLUMN held; DELETE FROM schema_version WHERE version >= 10";
    earlier.execute_batch(NO_CHILDREN).unwrap();
    earlier.execute_batch(undone).unwrap();
    drop(earlier);
    let store: Arc<dyn Full> = Arc::new(open(&path));
    check_manifests_of_earlier_runs(&store, runs).await;
    drop(store);
    assert_eq!(files_with(folder.path(), "of an erased run"), Vec::<String>::new());
    let rest: i64 = Connection::open(&path).unwrap().query_row("SELECT count(*) FROM manifests", [], |row| row.get(0)).unwrap();
    assert_eq!(rest, 1, "that of the other tenant");
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

#[test]
fn tm_20_keys_that_do_not_open_the_canary_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let open_with = |keys| SqliteStore::open_sealed(&path, StoreOptions::default(), &Letters(keys)).map(|store| store.node().0);
    let canary =
        || Connection::open(&path).unwrap().query_row("SELECT sealed FROM seal_canary", [], |row| row.get::<_, String>(0)).unwrap();
    for (keys, kept) in [("a", "a"), ("ab", "a"), ("ca", "c"), ("c", "c")] {
        open_with(keys).unwrap_or_else(|error| panic!("{keys}: {error}"));
        assert_eq!(canary(), kept, "{keys}");
    }
    let node = open_with("c").unwrap();
    let refused = open_with("ab").expect_err("neither is the key in use");
    assert!(matches!(&refused, OpenError::SealKey(why) if why == "c is wanted"), "{refused}");
    assert_eq!(canary(), "c");
    assert_eq!(open_with("c").unwrap(), node + 1, "the refused server was not noted");
}

#[test]
fn a_newer_schema_is_refused_and_nothing_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b?#%.db");
    drop(open(&path));
    Connection::open(&path).unwrap().execute("INSERT INTO schema_version VALUES (77, 0)", []).unwrap();
    let files = || {
        let mut found: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        found
    };
    let (bytes, beside) = (fs::read(&path).unwrap(), files());
    let refused = SqliteStore::open(&path, StoreOptions::default());
    assert!(matches!(refused, Err(OpenError::Newer { found: 77, known: 15 })));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(files(), beside);
}

#[test]
fn a_newer_schema_in_a_log_of_a_crash_is_refused_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("first.db"), folder.path().join("copy.db"));
    drop(open(&path));
    let newer = Connection::open(&path).unwrap();
    newer.execute_batch("PRAGMA wal_autocheckpoint = 0; INSERT INTO schema_version VALUES (77, 0)").unwrap();
    // What a crash leaves: the database and its log, without the index of the log.
    fs::copy(&path, &copy).unwrap();
    fs::copy(folder.path().join("first.db-wal"), folder.path().join("copy.db-wal")).unwrap();
    let bytes = fs::read(&copy).unwrap();
    let refused = SqliteStore::open(&copy, StoreOptions::default());
    assert!(matches!(refused, Err(OpenError::Newer { found: 77, known: 15 })));
    assert_eq!(fs::read(&copy).unwrap(), bytes);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    fs::write(&path, "dear database, ".repeat(100)).unwrap();
    assert!(matches!(SqliteStore::open(&path, StoreOptions::default()), Err(OpenError::Sqlite(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear database, ".repeat(100));
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let agent = agent("a");
    let first: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&first);
    let (run, _) = kit.begin(&agent, START).await;
    let (queued, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    kit.report(&agent, run, 1, START).await;
    let mut before = kit.load(&agent).await;
    assert!(before.head.owner_lives);
    // The next process that opens the database is another owner.
    before.head.owner_lives = false;
    drop((kit, first));
    let again: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::starting_at(&again, 1_000);
    assert_eq!(format!("{:?}", kit.load(&agent).await), format!("{before:?}"));
    kit.take_report(&agent, START).await;
    assert!(kit.advance(&agent, final_reply("done"), START).await.next_leased);
    kit.advance(&agent, Input::Entered(Opening::Ask), START).await;
    assert_eq!(kit.load(&agent).await.run.unwrap().id, queued);
}

/// Settled deltas are not read, though their rows may still be on disk; a reader beside the server sees the same.
#[tokio::test]
async fn deltas_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let (a, b) = (agent("a"), agent("b"));
    let first: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&first);
    let ((run, _), (settled, _)) = (kit.begin(&a, START).await, kit.begin(&b, START).await);
    for number in 0..3 {
        first.append_deltas(delta_batch(&a, run, 1, number, &["x"])).await.unwrap();
        first.append_deltas(delta_batch(&b, settled, 1, number, &["y"])).await.unwrap();
    }
    let (guard, mut commit) = kit.prepare(&b, Input::owner_changed(), START).await;
    commit.clears_deltas = true;
    first.commit(guard, commit).await.unwrap();
    let beside: Box<dyn Views> = Box::new(SqliteViews::open(&path).unwrap());
    let seen = async |views: &dyn Views, run| views.streamed_text(&a.tenant, run).await.unwrap().text;
    assert_eq!((seen(&*beside, run).await.as_str(), seen(&*beside, settled).await.as_str()), ("xxx", ""));
    first.append_deltas(delta_batch(&b, settled, 1, 0, &["z"])).await.unwrap();
    assert_eq!(seen(&*beside, settled).await, "z");
    drop((kit, first));
    let again = open(&path);
    assert_eq!((seen(&again, run).await.as_str(), seen(&again, settled).await.as_str()), ("xxx", "z"));
    again.append_deltas(delta_batch(&a, run, 1, 2, &["x"])).await.unwrap();
    again.append_deltas(delta_batch(&a, run, 1, 3, &["!"])).await.unwrap();
    again.append_deltas(delta_batch(&b, settled, 1, 1, &["!"])).await.unwrap();
    assert_eq!((seen(&again, run).await.as_str(), seen(&again, settled).await.as_str()), ("xxx!", "z!"));
}

#[tokio::test]
async fn content_that_changed_on_disk_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let (run, _) = kit.begin(&agent("a"), START).await;
    let context = kit.load(&agent("a")).await.run.unwrap().state.context;
    Connection::open(&path).unwrap().execute("UPDATE items SET content = x'00'", []).unwrap();
    let read = store.range_items(&agent("a").tenant, context).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    Connection::open(&path).unwrap().execute("DELETE FROM items", []).unwrap();
    let read = store.range_items(&agent("a").tenant, context).await;
    assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
    for damage in
        [r#"UPDATE stretches SET events = '[["dreamt",{}]]'"#, "UPDATE stretches SET events = '['", "UPDATE runs SET state = x'7b'"]
    {
        Connection::open(&path).unwrap().execute(damage, []).unwrap();
        let journal = store.journal(&agent("a").tenant, run, 0, 10).await;
        assert!(matches!(journal, Err(StoreError::Corrupt(_))), "{damage}: {journal:?}");
    }
    let loaded = store.load(&agent("a")).await;
    assert!(matches!(loaded, Err(StoreError::Corrupt(_))), "{loaded:?}");
}

/// The content of all files of a database, by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// The files that have a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let has_text = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    files(folder).into_iter().filter(|(_, bytes)| has_text(bytes)).map(|(name, _)| name).collect()
}

/// A connection from outside, to a database with one suspended run.
async fn with_a_run(path: &Path) -> Connection {
    let store: Arc<dyn Full> = Arc::new(open(path));
    let kit = Kit::new(&store);
    let (run, enqueued) = kit.begin(&agent("a"), START).await;
    assert!(matches!(enqueued, Enqueued::Entered { .. }));
    kit.advance(&agent("a"), calls(&[LOOKUP]), START).await;
    assert!(matches!(kit.report(&agent("a"), run, 1, START).await, Taken::Recorded(_)));
    kit.advance(&agent("a"), Input::Panicked, START).await;
    Connection::open(path).unwrap()
}

#[tokio::test]
async fn the_database_refuses_unknown_variants() {
    let folder = tempfile::tempdir().unwrap();
    let outside = with_a_run(&folder.path().join("windlass.db")).await;
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
        "UPDATE tenants SET open = -1",
        "UPDATE boxes SET parent = x'00', parent_length = NULL",
        "UPDATE boxes SET shared = 2",
        "UPDATE heads SET held = 2",
        "UPDATE interrupts SET cause = 'boredom'",
        "UPDATE interrupts SET on_timeout = 'shrug'",
        "UPDATE interrupts SET needs = 0",
        "UPDATE interrupts SET verdict = 'maybe', answered_at = 1",
        "UPDATE interrupts SET verdict = 'approved'",
        "UPDATE interrupts SET by_name = 'ann'",
        "INSERT INTO inbox (tenant, agent, kind, status, run, call, created_at)
         SELECT tenant, agent, kind, 'pending', run, call, 0 FROM inbox WHERE call IS NOT NULL",
    ] {
        let outcome = outside.execute(nonsense, []);
        let code = outcome.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
        assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{nonsense}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_database_accepts_every_variant() {
    let folder = tempfile::tempdir().unwrap();
    let outside = with_a_run(&folder.path().join("windlass.db")).await;
    let check = |sql: &str, name: &str| {
        let changed = outside.execute(sql, [name]).unwrap_or_else(|error| panic!("{sql} with {name}: {error}"));
        assert!(changed > 0, "{sql} found no row");
    };
    for status in [HeadStatus::Dispatched, HeadStatus::Running, HeadStatus::Suspended] {
        check("UPDATE heads SET status = ?1", status.as_str());
    }
    for status in RunStatus::ALL {
        check("UPDATE runs SET status = ?1, ended_at = iif(?1 = 'ended', 1, NULL)", status.as_str());
    }
    for status in CallStatus::ALL {
        check("UPDATE calls SET status = ?1, worker = 'w', lease_until = 1", status.as_str());
    }
    for status in MessageStatus::ALL.iter().map(|status| status.as_str()).chain(["processing", "deferred"]) {
        check("UPDATE inbox SET status = ?1", status);
    }
    for kind in MessageKind::ALL {
        check("UPDATE inbox SET kind = ?1 WHERE call IS NULL", kind.as_str());
    }
    for status in [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Canceled, TaskStatus::Timeout, TaskStatus::Partial] {
        check("UPDATE inbox SET outcome = ?1", status.as_str());
    }
    for cause in Cause::ALL {
        check("UPDATE interrupts SET cause = ?1", cause.as_str());
    }
    for verdict in Verdict::ALL {
        check("UPDATE interrupts SET verdict = ?1, answered_at = 1", verdict.as_str());
    }
    for reaction in [OnTimeout::Reject, OnTimeout::Approve, OnTimeout::End] {
        check("UPDATE interrupts SET on_timeout = ?1", reaction.as_str());
    }
    for kind in ItemKind::ALL {
        check("UPDATE items SET kind = ?1", kind.as_str());
    }
}

#[tokio::test]
async fn the_questions_of_the_sweep_are_answered_by_their_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let outside = with_a_run(&folder.path().join("windlass.db")).await;
    for (question, index) in [
        ("SELECT n FROM inbox WHERE run = ?1 AND call = ?2 AND kind = ?3", "inbox_run"),
        ("SELECT tenant FROM heads WHERE wake_at <= ?1 ORDER BY wake_at, tenant, agent", "heads_due"),
        ("SELECT run FROM runs WHERE tenant = ?1 AND dedupe = ?2", "runs_dedupe"),
        ("SELECT run FROM runs WHERE tenant = ?1 AND takes = ?2", "runs_takes"),
        ("SELECT run FROM calls WHERE tenant = ?1 AND claim_key = ?2", "calls_keys"),
        ("SELECT tenant, run FROM runs WHERE erase_at <= ?1 ORDER BY erase_at, run", "runs_erasable"),
        ("SELECT n FROM interrupts WHERE run = ?1 AND +tenant = ?2", "PRIMARY KEY"),
        (
            "SELECT n FROM interrupts INDEXED BY interrupts_open WHERE tenant = ?1 AND verdict IS NULL
             AND (created_at, run, n) > (?2, ?3, ?4) ORDER BY created_at, run, n LIMIT ?5",
            "interrupts_open",
        ),
        ("SELECT run FROM runs WHERE tenant = ?1 AND unlisted = 0 AND run > ?2 ORDER BY run LIMIT ?3", "runs_listed"),
    ] {
        let mut statement = outside.prepare(&format!("EXPLAIN QUERY PLAN {question}")).unwrap();
        let count = statement.parameter_count();
        let params = rusqlite::params_from_iter(std::iter::repeat_n(1, count));
        let plan: Vec<String> = statement.query_map(params, |row| row.get(3)).unwrap().map(Result::unwrap).collect();
        assert!(plan.len() == 1 && plan[0].contains(index), "{question}: {plan:?}");
    }
}

/// The modes of the files in a folder, by name.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut modes: Vec<(String, u32)> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o777)).collect();
    modes.sort();
    modes
}

#[test]
fn tm_06_only_its_owner_can_read_a_database() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("made/data");
    let path = folder.join("windlass.db");
    let private = |store: &SqliteStore| {
        let names = ["windlass.db", "windlass.db-shm", "windlass.db-wal", "windlass.db.lock"];
        assert_eq!(modes(&folder), names.map(|name| (name.to_owned(), 0o600)), "{}", store.node().0);
    };
    let store = open(&path);
    private(&store);
    assert_eq!(modes(top.path()), [("made".to_owned(), 0o700)]);
    drop(store);
    // As an earlier version left it.
    for file in ["windlass.db", "windlass.db.lock"] {
        fs::set_permissions(folder.join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    private(&open(&path));
}
