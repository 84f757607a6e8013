//! No statement may depend on the planner's statistics: the plans are checked on an empty database, and after an ANALYZE while it was
//! almost empty.

use tokio_postgres::Client;
use windlass_ports::Store;
use windlass_tests::postgres::Server;

use super::{PostgresStore, session::Connector, statements::Statements};
use crate::{
    StoreOptions,
    conformance::fixtures::{Kit, LOOKUP, START, agent, calls},
};

/// Tables that grow without a bound.
const GROWING: [&str; 15] = [
    "heads",
    "runs",
    "inbox",
    "calls",
    "interrupts",
    "stretches",
    "deltas",
    "items",
    "boxes",
    "box_rows",
    "tenants",
    "conversations",
    "conversation_parts",
    "answers",
    "requests",
];

/// Statements that read a list page by page from its beginning: scanning an index is their purpose.
const WALKS: [&str; 5] = ["due", "orphans", "outbox", "erasable", "lost_requests"];

async fn plan(client: &Client, name: &str, sql: &str) -> String {
    let types = client.prepare(sql).await.unwrap();
    let nothing: Vec<String> =
        types.params().iter().map(|kind| format!("NULL::{}", kind.name().replace('_', "") + array(kind.name()))).collect();
    let given = if nothing.is_empty() { String::new() } else { format!("({})", nothing.join(", ")) };
    client.batch_execute(&format!("PREPARE {name}_plan AS {sql}")).await.unwrap();
    let lines = client.query(&format!("EXPLAIN EXECUTE {name}_plan{given}"), &[]).await.unwrap();
    client.batch_execute(&format!("DEALLOCATE {name}_plan")).await.unwrap();
    lines.iter().map(|line| line.get::<_, String>(0) + "\n").collect()
}

/// The name of an array type begins with an underscore.
fn array(name: &str) -> &'static str {
    if name.starts_with('_') { "[]" } else { "" }
}

/// A scan of a growing table that no condition limits.
fn is_unbounded(plan: &str) -> bool {
    let lines: Vec<&str> = plan.lines().collect();
    lines.iter().enumerate().any(|(index, line)| {
        let names = |table: &&str| line.contains(&format!(" on {table} "));
        let is_scan = line.contains(" Scan ") && GROWING.iter().any(names);
        let has_condition = lines.get(index + 1).is_some_and(|next| next.contains("Index Cond") || next.contains("TID Cond"));
        is_scan && (line.contains("Seq Scan") || line.contains("Bitmap") || !has_condition)
    })
}

async fn check_all(client: &Client) {
    let mut wrong = String::new();
    for (name, sql) in Statements::ALL {
        let plan = plan(client, name, sql).await;
        if plan.contains("Seq Scan on") || (!WALKS.contains(name) && is_unbounded(&plan)) {
            wrong += &format!("{name}:\n{plan}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[tokio::test]
async fn every_statement_finds_its_rows_by_an_index_however_large_its_tables_are() {
    let database = Server::shared().database().await;
    let store = std::sync::Arc::new(PostgresStore::open(&database.url, StoreOptions::default()).await.unwrap());
    let client = Connector::new(&database.url, None).unwrap().bare().await.unwrap();
    check_all(&client).await;
    let full: std::sync::Arc<dyn crate::conformance::Full> = store.clone();
    let kit = Kit::new(&full);
    kit.begin(&agent("a"), START).await;
    kit.advance(&agent("a"), calls(&[LOOKUP]), START).await;
    store.beat(store.node(), 1).await.unwrap();
    client.batch_execute("ANALYZE").await.unwrap();
    check_all(&client).await;
}
