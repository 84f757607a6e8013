//! Helpers of the tests of the turn machine: one configuration, a spy in the database, and checks of whole histories.

use futures_util::future::join_all;
use serde_json::{Value, json};
use windlass_tests::{FakeModel, Row, Scene, Server, ServerBuilder, SseEvent, Store, bytes};

/// Tools of several kinds, and agents that may use them.
const TURN_CONFIG: &str = "
tools:
  external:
    - { name: echo, effect: read }
    - { name: send, effect: read }
    - { name: brief, effect: read, deadline: 300ms }
    - { name: last, effect: read, after_execution: terminate }
agents:
  ada: { tools: [echo, send, brief, last] }
  bob: { tools: [echo, send, brief, last] }
  eve: { tools: [echo, send, brief, last] }
";

/// A server whose agents answer according to keywords in their input.
pub async fn turn_server() -> Server {
    turn_server_with_config("limits: { sweep_interval: 50ms }\n").await
}

/// A server with additional configuration.
pub async fn turn_server_with_config(more: &str) -> Server {
    ServerBuilder::new(&format!("{TURN_CONFIG}{more}")).start().await
}

/// A server whose model plays scenes.
pub async fn server_with_model(scenes: Vec<Scene>, limits: &str) -> (Server, FakeModel) {
    let model = FakeModel::start(scenes).await;
    let server = ServerBuilder::new(&format!("{TURN_CONFIG}{}limits: {{ sweep_interval: 50ms{limits} }}\n", model.config())).start().await;
    (server, model)
}

/// A server with room for one worker, which an agent `holder` occupies: work for other agents waits in the store.
pub async fn crowded(then: Vec<Scene>) -> (Server, FakeModel, String) {
    let (server, model) = server_with_model([vec![Scene::Hang], then].concat(), ", workers: 1").await;
    let holder = server.enqueue("holder", "keep the only worker").await;
    model.asked_times(1).await;
    (server, model, holder)
}

/// An agent's head.
pub async fn head(server: &Server, agent: &str) -> Value {
    server.get(&format!("/v1/agents/{agent}")).await.ok()
}

/// Stops a run.
pub async fn stop(server: &Server, agent: &str, run: &str) -> Value {
    server.post(&format!("/v1/agents/{agent}/stop"), json!({ "agent_turn_id": run, "reason": "enough" })).await.ok()
}

/// Enqueues this number of turns to one agent at the same time. Returns their runs.
pub async fn hammer(server: &Server, agent: &str, count: usize) -> Vec<String> {
    let inputs: Vec<String> = (0..count).map(|number| format!("number {number};")).collect();
    join_all(inputs.iter().map(|input| server.enqueue(agent, input))).await
}

/// Claims this number of calls of a tool, and reports each as soon as it is claimed.
pub async fn serve(server: &Server, tool: &str, count: usize) -> Vec<Value> {
    let mut served = Vec::new();
    while served.len() < count {
        let body = json!({ "worker": "w1", "max": 100, "lease_s": 60, "wait_s": 5 });
        let answer = server.post(&format!("/v1/tools/{tool}/claim"), body).await.ok();
        let calls = answer["calls"].as_array().expect("a claim has calls").clone();
        assert!(!calls.is_empty(), "only {} of {count} calls of {tool} came", served.len());
        let answers = join_all(calls.iter().map(|call| server.report(call, json!({ "of": call["tool_call_id"] })))).await;
        answers.into_iter().for_each(|answer| assert_eq!(answer.ok()["duplicate"], false));
        served.extend(calls);
    }
    served
}

/// Claims this number of calls of a tool without reporting them.
pub async fn claim_all(server: &Server, tool: &str, count: usize) -> Vec<Value> {
    let mut calls = Vec::new();
    while calls.len() < count {
        calls.push(server.claim(tool).await);
    }
    calls.sort_by_key(|call| {
        call["tool_call_id"].as_str().expect("a call has an id").rsplit('_').next().and_then(|number| number.parse::<u32>().ok())
    });
    calls
}

/// The task events among events.
pub fn tasks(events: &[SseEvent]) -> Vec<&SseEvent> {
    events.iter().filter(|event| event.event.ends_with(".task")).collect()
}

/// The state events among events.
pub fn states(events: &[SseEvent]) -> Vec<&SseEvent> {
    events.iter().filter(|event| event.event.ends_with(".state")).collect()
}

/// Copies a queued turn in the database, each copy as a turn of its own: ten thousand requests would take too long.
pub fn multiply(server: &Server, run: &str, copies: u32) {
    let database = server.database();
    database.batch("CREATE TEMP TABLE chosen (run bytea, copies bigint)");
    database.execute(&format!("INSERT INTO chosen VALUES ({}, {copies})", bytes(run))).expect("a note");
    // A state is stored as JSON in bytes, and contains the id as digits, so the statement compares hexadecimal digits.
    let sql = "
        BEGIN;
        UPDATE heads SET queued = queued + (SELECT copies FROM chosen), runs = runs + (SELECT copies FROM chosen)
            WHERE agent = (SELECT agent FROM runs WHERE run = (SELECT run FROM chosen));
        CREATE TEMP TABLE the AS SELECT * FROM runs WHERE run = (SELECT run FROM chosen);
        CREATE TEMP TABLE copies AS
            WITH RECURSIVE numbers (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM numbers, chosen WHERE k < copies)
            SELECT k, randomblob(16) AS run, randomblob(16) AS output, (SELECT max(n) FROM inbox) + k AS message FROM numbers;
        INSERT INTO boxes (box, tenant, parent, parent_length, depth, inherited)
            SELECT c.output, b.tenant, b.parent, b.parent_length, b.depth, b.inherited FROM copies AS c, the, boxes AS b WHERE b.box = the.output;
        INSERT INTO inbox (n, tenant, agent, kind, status, run, item, source, created_at)
            SELECT c.message, m.tenant, m.agent, m.kind, m.status, c.run, m.item, m.source, m.created_at FROM copies AS c, the, inbox AS m
            WHERE m.n = the.message;
        INSERT INTO stretches SELECT c.run, s.first, s.epoch, s.at, s.version,
                replace(s.events, lower(hex(the.output)), lower(hex(c.output)))
            FROM copies AS c, the, stretches AS s WHERE s.run = the.run;
        INSERT INTO runs (run, tenant, agent, ordinal, status, kind, epoch, message, dedupe, manifest, context, output, state_version, state,
                iteration, trace, parent_step, source, depth, deliverable, created_at, ended_at)
            SELECT c.run, the.tenant, the.agent, the.ordinal + c.k, the.status, the.kind, the.epoch, c.message, NULL, the.manifest,
                the.context, c.output, the.state_version,
                unhex(replace(hex(the.state), hex(lower(hex(the.output))), hex(lower(hex(c.output))))),
                the.iteration, the.trace, the.parent_step, the.source, the.depth, the.deliverable, the.created_at, the.ended_at FROM copies AS c, the;
        ";
    let counted = match database.store() {
        Store::Sqlite => "UPDATE tenants SET open = open + (SELECT copies FROM chosen);",
        // The slot of a row without a writer. The numbers of new rows have to continue after the copies.
        Store::Postgres => {
            "INSERT INTO tenants SELECT 'default', -1, copies FROM chosen; SELECT setval('inbox_numbers', (SELECT max(n) FROM inbox));"
        }
    };
    database.batch(&format!("{sql}{counted} COMMIT;"));
}

/// The status of an inbox row.
pub fn row_status(server: &Server, row: i64) -> String {
    server.database().text(&format!("SELECT status FROM inbox WHERE n = {row}"))
}

/// One change of a head.
#[derive(Clone, Debug)]
pub struct Move {
    pub from: String,
    pub to: String,
    pub old_run: Option<String>,
    pub new_run: Option<String>,
    pub old_epoch: i64,
    pub new_epoch: i64,
    pub waiting: i64,
    pub deadline: Option<i64>,
}

impl Move {
    pub fn is_same_run(&self) -> bool {
        self.old_run == self.new_run
    }

    pub fn edge(&self) -> (&str, &str) {
        (&self.from, &self.to)
    }
}

/// Makes the database record every change of a head, and after each change the number of active runs of its agent.
pub fn spy(server: &Server) {
    let database = server.database();
    let numbers = "old_epoch bigint, new_epoch bigint, waiting bigint, deadline bigint";
    database.batch(&format!(
        "CREATE TABLE spy (n {}, agent text, old_status text, new_status text, old_run text, new_run text, {numbers});
         CREATE TABLE spy_active (agent text, active bigint);",
        database.counter()
    ));
    let note = "INSERT INTO spy (agent, old_status, new_status, old_run, new_run, old_epoch, new_epoch, waiting, deadline)";
    let born = "NEW.agent, 'idle', NEW.status, NULL, lower(hex(NEW.run)), 0, NEW.epoch, NEW.waiting, NEW.deadline";
    let moved =
        "NEW.agent, OLD.status, NEW.status, lower(hex(OLD.run)), lower(hex(NEW.run)), OLD.epoch, NEW.epoch, NEW.waiting, NEW.deadline";
    database.spy("spy_born", "INSERT", "heads", &format!("{note} VALUES ({born})"));
    database.spy("spy_moved", "UPDATE", "heads", &format!("{note} VALUES ({moved})"));
    let active =
        "INSERT INTO spy_active SELECT NEW.agent, count(*) FROM runs WHERE tenant = NEW.tenant AND agent = NEW.agent AND status = 'active'";
    database.spy("spy_run_born", "INSERT", "runs", active);
    database.spy("spy_run_moved", "UPDATE", "runs", active);
}

/// The changes of an agent's head that the spy recorded.
pub fn moves(server: &Server, agent: &str) -> Vec<Move> {
    // The digits of a missing run are null; on SQLite they are an empty text.
    let sql = format!(
        "SELECT old_status, new_status, nullif(old_run, ''), nullif(new_run, ''), old_epoch, new_epoch, waiting, deadline
         FROM spy WHERE agent = '{agent}' ORDER BY n"
    );
    let read = |row: Row| {
        let [from, to, old_run, new_run, old_epoch, new_epoch, waiting, deadline] = <[_; 8]>::try_from(row).expect("eight columns");
        let number = |value: Option<String>| value.map(|value| value.parse::<i64>().expect("a number"));
        Move {
            from: from.expect("a status"),
            to: to.expect("a status"),
            old_run,
            new_run,
            old_epoch: number(old_epoch).expect("an epoch"),
            new_epoch: number(new_epoch).expect("an epoch"),
            waiting: number(waiting).expect("a count"),
            deadline: number(deadline),
        }
    };
    server.database().rows(&sql).into_iter().map(read).collect()
}

/// The status edges of an agent's head, without changes that kept the status.
pub fn edges_taken(server: &Server, agent: &str) -> Vec<(String, String)> {
    moves(server, agent).into_iter().filter(|seen| seen.from != seen.to || !seen.is_same_run()).map(|seen| (seen.from, seen.to)).collect()
}

/// The largest number of runs of an agent that were active at the same time.
pub fn most_active(server: &Server, agent: &str) -> i64 {
    server.number(&format!("SELECT max(active) FROM spy_active WHERE agent = '{agent}'"))
}

fn at<'a>(journal: &'a [Value], kind: &str) -> &'a Value {
    let mut found = journal.iter().filter(|entry| entry["event"]["kind"] == kind);
    let entry = found.next().unwrap_or_else(|| panic!("{kind} happened: {journal:#?}"));
    assert!(found.next().is_none(), "{kind} happened once: {journal:#?}");
    entry
}

/// Asserts that every run was leased once and ended once, one after the other, and that nothing is left over.
pub async fn each_ran_once(server: &Server, agent: &str, runs: &[String]) {
    server.all_ended(runs).await;
    let mut views = join_all(runs.iter().map(|run| server.run(run))).await;
    views.sort_by_key(|view| view["ordinal"].as_u64());
    let mut last = (String::new(), 0);
    for view in &views {
        let journal = server.journal(view["run_id"].as_str().expect("a run has an id")).await;
        for (number, entry) in journal.iter().enumerate() {
            assert_eq!(entry["number"], number, "a journal is dense");
        }
        at(&journal, "accepted");
        let (leased, ended) = (at(&journal, "leased"), at(&journal, "ended"));
        let epoch = leased["turn_epoch"].as_u64().expect("a lease has an epoch");
        assert!(leased["at"].as_str() >= Some(last.0.as_str()), "{view} began before the one before it had ended");
        assert!(epoch > last.1, "{view} has no epoch of its own");
        assert_eq!(ended["number"], journal.len() - 1, "nothing comes after the end");
        last = (ended["at"].as_str().expect("a time").to_owned(), epoch);
    }
    let left = head(server, agent).await;
    assert_eq!((&left["status"], &left["queued"], &left["active_agent_turn_id"]), (&json!("idle"), &json!(0), &Value::Null));
    let turns = "SELECT count(*) FROM inbox WHERE kind = 'turn' AND status = 'consumed' AND epoch IS NOT NULL";
    assert_eq!(server.number(&format!("{turns} AND agent = '{agent}'")), runs.len() as i64, "every turn was consumed, once");
    assert_eq!(server.number(&format!("SELECT count(*) FROM inbox WHERE agent = '{agent}' AND status <> 'consumed'")), 0);
}
