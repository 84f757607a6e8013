//! Reads the histories when the load has ended: nothing is missing, nothing is doubled, each turn has one task event, and the numbers of
//! its iterations have no gaps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use futures_util::{StreamExt, stream};
use serde_json::Value;
use windlass_tests::{Listener, SseEvent};

use crate::{
    cluster::{CALLS, Roads},
    load::{Load, Turn},
};

/// The number of agents read at the same time.
const READERS: usize = 8;

/// Everything that is wrong in the servers' records of this load.
pub async fn check(roads: &Roads, load: &Load) -> Vec<String> {
    let mut agents: BTreeMap<String, Vec<Turn>> = BTreeMap::new();
    for turn in load.turns.lock().expect("the lock is not poisoned").iter() {
        agents.entry(turn.agent.clone()).or_default().push(turn.clone());
    }
    let ledger = load.ledger.lock().expect("the lock is not poisoned").clone();
    let ledger = &ledger;
    let checked = stream::iter(agents.into_iter().map(|(agent, turns)| async move { check_agent(roads, ledger, &agent, &turns).await }));
    let mut wrong: Vec<String> = checked.buffer_unordered(READERS).collect::<Vec<_>>().await.concat();
    wrong.extend(load.wrong.lock().expect("the lock is not poisoned").clone());
    wrong.extend(roads.odd.lock().expect("the lock is not poisoned").clone());
    wrong
}

/// Every action that the servers took because a process seemed dead or a deadline seemed over, in a trial in which neither was so.
pub async fn false_alarms(roads: &Roads, load: &Load) -> Vec<String> {
    let turns = load.turns.lock().expect("the lock is not poisoned").clone();
    let read = stream::iter(&turns).map(|turn| async move { History::read(roads, turn).await.alarms() });
    let mut alarms = read.buffer_unordered(READERS).collect::<Vec<_>>().await.concat();
    let decided = load.decided.load(Ordering::Relaxed);
    if decided > 0 {
        alarms.push(format!("a person was asked {decided} times"));
    }
    alarms
}

async fn check_agent(roads: &Roads, ledger: &BTreeMap<String, u32>, agent: &str, turns: &[Turn]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut histories = Vec::new();
    for turn in turns {
        let history = History::read(roads, turn).await;
        history.check(ledger, &mut wrong);
        histories.push(history);
    }
    check_order(agent, &mut histories, &mut wrong);
    let asked: BTreeSet<&str> = turns.iter().map(|turn| turn.run.as_str()).collect();
    if asked.len() != turns.len() {
        wrong.push(format!("{agent}: {} keys became {} runs", turns.len(), asked.len()));
    }
    check_inbox(roads, agent, &asked, &mut wrong).await;
    if let Some(last) = histories.last() {
        check_events(roads, agent, &asked, &last.turn.run, &mut wrong).await;
    }
    wrong
}

/// The turns of an agent are sequential: all epochs of a turn are higher than those of the turn before.
pub fn check_order(agent: &str, histories: &mut [History], wrong: &mut Vec<String>) {
    histories.sort_by_key(|history| history.run["ordinal"].as_u64());
    for pair in histories.windows(2) {
        let (before, after) = (pair[0].epochs(), pair[1].epochs());
        if before.last() >= after.first() {
            wrong.push(format!("{agent}: a later turn has the epochs {after:?}, the one before had {before:?}"));
        }
    }
}

/// The complete record of one turn.
#[derive(Clone)]
pub struct History<'a> {
    turn: &'a Turn,
    /// The run as the API shows it.
    pub run: Value,
    /// The journal of the run.
    pub journal: Vec<Value>,
    calls: Vec<Value>,
    /// The content of the output box.
    pub output: Vec<Value>,
}

impl<'a> History<'a> {
    /// Reads the record of a turn.
    pub async fn read(roads: &Roads, turn: &'a Turn) -> Self {
        let path = format!("/v1/windlass/runs/{}", turn.run);
        let run = roads.get(&path).await;
        let journal = rows(&roads.get(&format!("{path}/journal?limit=1000")).await, "entries");
        let calls = rows(&roads.get(&format!("{path}/calls?limit=1000")).await, "calls");
        let output = run["output_box_id"].as_str().expect("a run has an output box");
        let output = rows(&roads.get(&format!("/v1/windlass/boxes/{output}?limit=1000")).await, "items");
        History { turn, run, journal, calls, output }
    }

    fn events<'b>(&'b self, kind: &'b str) -> impl Iterator<Item = &'b Value> {
        self.journal.iter().map(|entry| &entry["event"]).filter(move |event| event["kind"] == kind)
    }

    /// Events that a run has only if a process counts as dead, or a deadline as over.
    fn alarms(&self) -> Vec<String> {
        let alarming = ["taken_over", "lease_ended", "interrupted"];
        let is_late = |event: &&Value| event["kind"] == "reported" && event["status"] != "success";
        let events = self.journal.iter().map(|entry| &entry["event"]);
        let found = events.filter(|event| alarming.iter().any(|kind| event["kind"] == *kind) || is_late(event));
        found.map(|event| format!("{} ({}): no server was lost, and yet: {event}", self.turn.run, self.turn.key)).collect()
    }

    fn epochs(&self) -> Vec<u64> {
        self.journal.iter().filter_map(|entry| entry["turn_epoch"].as_u64()).collect()
    }

    /// Everything that is wrong with the record.
    pub fn check(&self, ledger: &BTreeMap<String, u32>, wrong: &mut Vec<String>) {
        let name = format!("{} ({})", self.turn.run, self.turn.key);
        let mut must = |holds: bool, what: String| {
            if !holds {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let status = &self.run["task_status"];
        let failures: Vec<&Value> = self.events("attempt_failed").collect();
        let why = || format!("it is {} with {status} for {}, after {failures:?}", self.run["status"], self.run["end_reason"]);
        must(self.run["status"] == "ended" && status == "success", why());
        let numbers: Vec<u64> = self.journal.iter().filter_map(|entry| entry["number"].as_u64()).collect();
        must(numbers.iter().copied().eq(0..numbers.len() as u64), format!("the journal is not dense: {numbers:?}"));
        let epochs = self.epochs();
        must(epochs.is_sorted(), format!("an old epoch wrote: {epochs:?}"));
        let iterations: Vec<u64> = self.events("lap_started").filter_map(|event| event["iteration"].as_u64()).collect();
        must(iterations == [1, 2, 3], format!("its iterations are {iterations:?}"));
        must(self.run["iteration"] == 3, format!("it counts {} iterations", self.run["iteration"]));
        for (kind, count) in [("accepted", 1), ("leased", 1), ("ended", 1), ("replied", 3)] {
            let found = self.events(kind).count();
            must(found == count, format!("it has {found} times {kind}"));
        }
        let deliverables = self.of_kind("task.deliverable").count();
        must(deliverables == 1, format!("it has {deliverables} deliverables"));
        let last = self.output.last().map(|item| &item["item_id"]);
        must(last == Some(&self.run["deliverable_item_id"]), "its deliverable is not the last of its output".to_owned());
        self.check_calls(ledger, &mut must);
    }

    fn of_kind<'b>(&'b self, kind: &'b str) -> impl Iterator<Item = &'b Value> {
        self.output.iter().filter(move |item| item["kind"] == kind)
    }

    /// A result is accepted once. A write is started once, and once more for each time that a person releases it.
    fn check_calls(&self, ledger: &BTreeMap<String, u32>, must: &mut impl FnMut(bool, String)) {
        must(self.calls.len() == CALLS, format!("it made {} calls", self.calls.len()));
        let results = self.of_kind("tool.result").count();
        must(results == CALLS, format!("{results} results are in its output"));
        for call in &self.calls {
            let id = call["tool_call_id"].as_str().unwrap_or_default();
            let count = |kind| self.events(kind).filter(|event| event["call"] == call["number"]).count();
            let released =
                self.events("resolved").filter(|event| event["call"] == call["number"] && event["verdict"] == "released").count();
            let (reported, parked) = (count("reported"), count("interrupted"));
            must(
                call["status"] == "applied" && reported == 1,
                format!("{id} is {}, its result was taken {reported} times", call["status"]),
            );
            let starts = ledger.get(id).copied().unwrap_or_default() as usize;
            must(starts >= 1, format!("{id} has a result and was never started"));
            if call["effect"] == "write" {
                must(released <= parked, format!("{id} was parked {parked} times and released {released} times"));
                must(starts <= 1 + released, format!("the write {id} was started {starts} times, and released {released} times"));
                must(count("lease_ended") == 0, format!("the write {id} went back to the line by itself"));
            }
        }
    }
}

/// The inbox has one message per turn and one per result, all of them are consumed, each of them is an edge, and the agent is idle.
async fn check_inbox(roads: &Roads, agent: &str, asked: &BTreeSet<&str>, wrong: &mut Vec<String>) {
    let inbox = all(roads, &format!("/v1/agents/{agent}/inbox"), "inbox").await;
    let edges = all(roads, &format!("/v1/agents/{agent}/edges"), "edges").await.len();
    let turns: Vec<&str> =
        inbox.iter().filter(|row| row["message_type"] == "turn").filter_map(|row| row["agent_turn_id"].as_str()).collect();
    let distinct: BTreeSet<&str> = turns.iter().copied().collect();
    if distinct != *asked || turns.len() != asked.len() {
        wrong.push(format!("{agent}: {} turns were acknowledged, its inbox has {} of {} runs", asked.len(), turns.len(), distinct.len()));
    }
    let reports: Vec<&str> =
        inbox.iter().filter(|row| row["message_type"] == "tool_result").filter_map(|row| row["tool_call_id"].as_str()).collect();
    if reports.iter().collect::<BTreeSet<_>>().len() != reports.len() {
        wrong.push(format!("{agent}: a result came into its inbox twice"));
    }
    for row in inbox.iter().filter(|row| row["status"] != "consumed" && row["status"] != "skipped") {
        wrong.push(format!("{agent}: a message was left: {row}"));
    }
    if edges == 0 || inbox.len() > edges {
        wrong.push(format!("{agent}: {} messages and {edges} edges", inbox.len()));
    }
    let head = roads.get(&format!("/v1/agents/{agent}")).await;
    if head["status"] != "idle" || head["queued"] != 0 || head["quarantined"] != false {
        wrong.push(format!("{agent}: it is not idle: {head}"));
    }
}

/// Each turn has one task event, and no event has two ids or is sent twice with one id.
async fn check_events(roads: &Roads, agent: &str, asked: &BTreeSet<&str>, last: &str, wrong: &mut Vec<String>) {
    let mut stream = roads.events(agent).await;
    let state = format!("evt.agent.{agent}.state");
    let is_last = |event: &SseEvent| event.event == state && event.data["agent_turn_id"] == last && event.data["status"] == "idle";
    let events = stream.read_until(is_last).await;
    let task = format!("evt.agent.{agent}.task");
    let task_events: Vec<&str> =
        events.iter().filter(|event| event.event == task).filter_map(|event| event.data["agent_turn_id"].as_str()).collect();
    let distinct: BTreeSet<&str> = task_events.iter().copied().collect();
    if distinct != *asked || task_events.len() != asked.len() {
        wrong.push(format!("{agent}: {} turns have {} task events, of {} turns", asked.len(), task_events.len(), distinct.len()));
    }
    let ids: BTreeSet<&str> = events.iter().map(|event| event.id.as_str()).collect();
    if ids.len() != events.len() {
        wrong.push(format!("{agent}: {} events have {} ids", events.len(), ids.len()));
    }
}

/// The messages received over NATS: an id always belongs to the same message. If NATS was available all the time, every end of a turn was
/// published.
pub async fn check_published(listener: &Listener, load: &Load, is_whole: bool) -> Vec<String> {
    let asked: BTreeSet<String> = load.turns.lock().expect("the lock is not poisoned").iter().map(|turn| turn.run.clone()).collect();
    let ends = |listener: &Listener| -> BTreeSet<String> {
        let all = listener.all().into_iter().filter(|message| message.subject.ends_with(".task"));
        all.filter_map(|message| message.body["agent_turn_id"].as_str().map(str::to_owned)).collect()
    };
    // Rows of the outbox may still be on their way.
    for _ in 0..100 {
        if !is_whole || ends(listener).is_superset(&asked) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let mut wrong = Vec::new();
    let mut known = BTreeMap::new();
    let mut tasks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for message in listener.all() {
        if message.subject.ends_with(".task") {
            tasks.entry(message.body["agent_turn_id"].to_string()).or_default().insert(message.id.clone());
        }
        let before = known.entry(message.id.clone()).or_insert_with(|| message.clone());
        if *before != message {
            wrong.push(format!("over NATS one id is two messages: {before:?} and {message:?}"));
        }
    }
    wrong
        .extend(tasks.iter().filter(|(_, ids)| ids.len() != 1).map(|(run, ids)| format!("over NATS the end of {run} has the ids {ids:?}")));
    if is_whole {
        wrong.extend(asked.difference(&ends(listener)).map(|run| format!("over NATS the end of {run} was never published")));
    }
    wrong
}

fn rows(page: &Value, name: &str) -> Vec<Value> {
    page[name].as_array().unwrap_or_else(|| panic!("{name} is a list: {page}")).clone()
}

/// Every row of a list that comes in pages.
async fn all(roads: &Roads, path: &str, name: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        let page = roads.get(&format!("{path}?limit=1000{after}")).await;
        found.extend(rows(&page, name));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return found,
        }
    }
}
