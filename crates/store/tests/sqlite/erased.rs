//! Erased content is in no file of the database.

use std::{fs, path::Path, sync::Arc};

use rusqlite::Connection;
use windlass_kernel::{
    AgentKey, CallNumber, Input, ItemKind, Reply, RequestedCall, RunId, ServerSource, StreamedText, TaskStatus, ToolServer, content,
};
use windlass_ports::{ConversationChange, Conversed, MessageKind, NewMessage, NewRun, RequestKey, Views, codec};
use windlass_store::conformance::{
    Full,
    erasing_tenants::{erase_whole, furnish},
    fixtures::{Kit, LOOKUP, START, agent, delta_batch, final_reply},
};
use windlass_store::{OpenError, Vacuumed, vacuum_sqlite};

use crate::{files_with, open};

/// A short text, which shares a page with others, one that has pages of its own, one that was streamed, and the answer.
const TEXTS: [&str; 4] = ["short erased text", "long erased text", "announced erased text", "said erased text"];

/// A run that has ended, with all texts.
async fn run_with_texts(store: &Arc<dyn Full>, kit: &Kit) -> RunId {
    let agent = agent("a");
    let long = format!("\"{}\"", format!("{}, ", TEXTS[1]).repeat(4_000));
    let short = format!("\"{}\"", TEXTS[0]);
    let items = [short, long].map(|text| kit.item(ItemKind::Instruction, text.as_bytes())).into();
    let new = kit.entering(kit.new_run_after(&agent, None, items, START));
    let run = new.run;
    store.enqueue(new).await.unwrap();
    let epoch = kit.load(&agent).await.head.epoch.0;
    store.append_deltas(delta_batch(&agent, run, epoch, 0, &[TEXTS[2]])).await.unwrap();
    kit.advance(&agent, final_reply(TEXTS[3]), START).await;
    run
}

/// The texts that any file has.
fn found(folder: &Path) -> Vec<&'static str> {
    TEXTS.into_iter().filter(|text| !files_with(folder, text).is_empty()).collect()
}

/// Another process has the database open, so that the log is not deleted with the last connection.
#[tokio::test]
async fn tm_08_no_file_of_a_stopped_server_has_what_was_erased() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let run = run_with_texts(&store, &kit).await;
    assert_eq!(found(folder.path()), TEXTS, "all were stored");
    let beside = Connection::open(&path).unwrap();
    beside.query_row("SELECT count(*) FROM runs", [], |_| Ok(())).unwrap();
    store.erase(agent("a").tenant, run).await.unwrap();
    drop((kit, store));
    assert_eq!(found(folder.path()), [""; 0]);
    drop(beside);
}

/// The log is emptied at once after the first erasure, and a minute later after the next ones.
#[tokio::test]
async fn tm_08_the_log_of_a_running_server_is_emptied_of_what_was_erased() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Full> = Arc::new(open(&folder.path().join("windlass.db")));
    let kit = Kit::new(&store);
    let tenant = agent("a").tenant;
    let run = run_with_texts(&store, &kit).await;
    store.empty_log(START).await.unwrap();
    assert_eq!(found(folder.path()), TEXTS, "nothing was erased");
    store.erase(tenant.clone(), run).await.unwrap();
    assert_ne!(found(folder.path()), [""; 0], "the log still has it");
    store.empty_log(START).await.unwrap();
    assert_eq!(found(folder.path()), [""; 0]);
    let run = run_with_texts(&store, &kit).await;
    store.erase(tenant, run).await.unwrap();
    store.empty_log(START.plus_ms(59_999)).await.unwrap();
    assert_ne!(found(folder.path()), [""; 0], "it is not emptied more often than once a minute");
    store.empty_log(START.plus_ms(60_000)).await.unwrap();
    assert_eq!(found(folder.path()), [""; 0]);
}

/// Another process reads a snapshot from before the erasure. The first pass of the sweep after that empties the log, also within the
/// minute.
#[tokio::test]
async fn tm_08_a_log_that_is_read_is_emptied_when_its_reader_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let run = run_with_texts(&store, &kit).await;
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs").unwrap();
    store.erase(agent("a").tenant, run).await.unwrap();
    store.empty_log(START).await.unwrap();
    assert_ne!(found(folder.path()), [""; 0]);
    reader.execute_batch("COMMIT").unwrap();
    store.empty_log(START).await.unwrap();
    assert_eq!(found(folder.path()), [""; 0]);
}

/// A crash leaves the files as they are while a server runs. The sweep of the next server asks for an empty log first of all.
#[tokio::test]
async fn tm_08_a_start_after_a_crash_empties_the_log() {
    let (folder, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store: Arc<dyn Full> = Arc::new(open(&folder.path().join("windlass.db")));
    let kit = Kit::new(&store);
    let run = run_with_texts(&store, &kit).await;
    store.erase(agent("a").tenant, run).await.unwrap();
    for file in ["windlass.db", "windlass.db-wal"] {
        fs::copy(folder.path().join(file), crashed.path().join(file)).unwrap();
    }
    assert_ne!(found(crashed.path()), [""; 0]);
    let next: Arc<dyn Full> = Arc::new(open(&crashed.path().join("windlass.db")));
    assert_ne!(found(crashed.path()), [""; 0], "the start does not wait for it");
    next.empty_log(START).await.unwrap();
    assert_eq!(found(crashed.path()), [""; 0]);
}

/// An earlier version deleted rows without overwriting them. A rebuild leaves nothing of them, and is refused while a server has the
/// database open.
#[tokio::test]
async fn tm_08_a_rebuild_leaves_nothing_in_free_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let kit = Kit::new(&store);
    let run = run_with_texts(&store, &kit).await;
    assert!(matches!(vacuum_sqlite(&path), Err(OpenError::InUse { .. })));
    drop((kit, store));
    let earlier = Connection::open(&path).unwrap();
    let delete = "PRAGMA secure_delete = OFF; DELETE FROM items; DELETE FROM box_rows; DELETE FROM deltas; DELETE FROM stretches";
    earlier.execute_batch(delete).unwrap();
    drop(earlier);
    assert_ne!(found(folder.path()), [""; 0], "SQLite leaves deleted rows in free pages");
    let Vacuumed { before, after } = vacuum_sqlite(&path).unwrap();
    assert_eq!(found(folder.path()), [""; 0]);
    assert!(after < before && after == fs::metadata(&path).unwrap().len(), "{before} {after}");
    let store = open(&path);
    assert!(store.run(&agent("a").tenant, run).await.unwrap().is_some(), "the rest is there");
}

/// Everything that a request and its run can bring, each with a text of its own.
const MARKERS: [&str; 17] = [
    "mark-instructions",
    "mark-parameters",
    "mark-address",
    "mark-credentials",
    "mark-note",
    "mark-run-key",
    "mark-parent-step",
    "mark-input",
    "mark-arguments",
    "mark-result",
    "mark-words",
    "mark-output",
    "mark-stop-reason",
    "mark-stop-key",
    "mark-conversation-item",
    "mark-added-item",
    "mark-conversation-metadata",
];

fn marked(kit: &Kit, agent: &AgentKey) -> NewRun {
    let mut new = kit.new_run_after(agent, None, vec![kit.item(ItemKind::Instruction, b"\"mark-input\"")], START);
    let mut manifest = new.manifest.manifest.as_ref().clone();
    manifest.instructions = Some("mark-instructions".into());
    manifest.parameters = serde_json::from_value(serde_json::json!({ "user": "mark-parameters" })).unwrap();
    let source = ServerSource::Declared { url: "https://tools.example/?key=mark-address".into(), sealed: Some("mark-credentials".into()) };
    manifest.servers = vec![ToolServer { label: "tools".into(), source }];
    new.manifest = Arc::new(codec::pin_manifest(manifest));
    new.note = Some("mark-note".into());
    new.dedupe = Some(format!("mark-run-key {}", agent.agent.as_str()));
    new.lineage.parent_step = Some("mark-parent-step".into());
    kit.entering(new)
}

/// A run that called a tool and answered.
async fn answered(store: &Arc<dyn Full>, kit: &Kit) -> RunId {
    let agent = agent("answers");
    let new = marked(kit, &agent);
    let run = new.run;
    store.enqueue(new).await.unwrap();
    let call = RequestedCall { provider_id: "call_1".into(), tool: LOOKUP.into(), arguments: "{\"q\":\"mark-arguments\"}".into() };
    kit.advance(&agent, Input::Replied(Reply { calls: vec![call], ..Reply::default() }), START).await;
    let mut report = kit.new_report(&agent, run, 1, START);
    let raw = serde_json::value::RawValue::from_string("\"mark-result\"".into()).unwrap();
    report.content.content = content::result(CallNumber(1), TaskStatus::Success, &raw);
    store.report(report).await.unwrap();
    kit.take_report(&agent, START).await;
    let epoch = kit.load(&agent).await.head.epoch.0;
    store.append_deltas(delta_batch(&agent, run, epoch, 0, &["mark-words"])).await.unwrap();
    kit.advance(&agent, final_reply("mark-output"), START).await;
    run
}

/// A run that was stopped, with a reason and a key.
async fn stopped(store: &Arc<dyn Full>, kit: &Kit) -> RunId {
    let agent = agent("stops");
    let new = marked(kit, &agent);
    let run = new.run;
    store.enqueue(new).await.unwrap();
    let input = Input::Stopped { reason: "mark-stop-reason".into(), streamed: StreamedText::default() };
    let (guard, mut commit) = kit.prepare(&agent, input, START).await;
    commit.messages.push(NewMessage {
        kind: MessageKind::Stop,
        call: None,
        retry: 0,
        item: None,
        outcome: None,
        after: None,
        source: None,
        reason: Some("mark-stop-reason".into()),
        key: Some(RequestKey { key: "mark-stop-key".into(), asked: [1; 16] }),
    });
    store.commit(guard, commit).await.unwrap();
    run
}

/// Keys are hashes from the start; all other texts are stored at first, and none is left.
#[tokio::test]
async fn tm_05_no_text_of_a_request_is_left_when_all_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Full> = Arc::new(open(&folder.path().join("windlass.db")));
    let (kit, tenant) = (Kit::new(&store), agent("").tenant);
    let runs = [answered(&store, &kit).await, stopped(&store, &kit).await];
    let talk = kit.conversation_id();
    let item = |text: &str| vec![kit.item(ItemKind::Instruction, format!("\"{text}\"").as_bytes())];
    let begin = ConversationChange::Begin {
        metadata: "mark-conversation-metadata".into(),
        id: kit.box_id(),
        items: item("mark-conversation-item"),
    };
    let add = ConversationChange::Add { id: kit.box_id(), items: item("mark-added-item"), items_max: 10 };
    for change in [begin, add] {
        assert!(matches!(store.converse(tenant.clone(), talk, change, START).await.unwrap(), Conversed::Done(_)));
    }
    let left = || MARKERS.into_iter().filter(|text| !files_with(folder.path(), text).is_empty()).collect::<Vec<_>>();
    let stored: Vec<&str> = MARKERS.into_iter().filter(|text| !text.ends_with("-key")).collect();
    assert_eq!(left(), stored);
    for run in runs {
        store.erase(tenant.clone(), run).await.unwrap();
    }
    store.converse(tenant, talk, ConversationChange::End, START).await.unwrap();
    store.empty_log(START).await.unwrap();
    assert_eq!(left(), [""; 0]);
}

/// All tables except those without a tenant.
#[tokio::test]
async fn tm_05_no_table_has_a_row_of_an_erased_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windlass.db");
    let store: Arc<dyn Full> = Arc::new(open(&path));
    let (kit, agent) = (Kit::new(&store), agent("a"));
    furnish(&store, &kit, &agent, "mark-of-a-tenant").await;
    assert_ne!(files_with(folder.path(), "mark-of-a-tenant"), [""; 0]);
    erase_whole(&store, &agent.tenant).await;
    store.empty_log(START).await.unwrap();
    let database = Connection::open(&path).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
               AND name NOT IN ('nodes', 'schema_version', 'seal_canary', 'id_key')";
    let tables: Vec<String> = database.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(tables.len() > 15, "{tables:?}");
    for table in tables {
        let rows: u32 = database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(files_with(folder.path(), "mark-of-a-tenant"), [""; 0]);
}
