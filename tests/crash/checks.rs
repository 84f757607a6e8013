//! What must hold when everything has ended, by the numbers of the promises in the architecture.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use windlass_tests::{Database, SseEvent};

use crate::{
    service::Start,
    world::{RunRequest, World},
    wreck::{self, Remains},
};

/// The outcome of a run, which is the same however often the server died on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How the run ended, and why.
    pub end: Value,
    /// The number of iterations.
    pub iterations: u64,
    /// The number of calls.
    pub calls: u64,
    /// The tokens that the provider reported.
    pub usage: Value,
    /// Estimated tokens of model calls that were lost: none if no server died.
    pub lost: u64,
    /// The number of failed attempts of its model calls.
    pub failed_tries: usize,
    /// The output box: kind and content of every item.
    pub output: Vec<(String, Value)>,
}

impl Outcome {
    /// Whether the outcome equals that of an uninterrupted run. Only the estimated tokens of lost model calls may be more.
    pub fn is_as(&self, uninterrupted: &Outcome) -> bool {
        self.lost >= uninterrupted.lost && Outcome { lost: uninterrupted.lost, ..self.clone() } == *uninterrupted
    }

    /// The text of the deliverable.
    pub fn delivered(&self) -> Option<&str> {
        self.output.last().and_then(|(_, content)| content["text"].as_str())
    }
}

/// Reads everything back. Returns the outcome of each run by the name of its request, and adds what is wrong to the world's violations.
pub async fn outcomes(world: &mut World) -> BTreeMap<String, Outcome> {
    let (found, mut wrong) = stored(&Remains::of(world.server()), &world.asked, &world.ledger);
    let agents: BTreeMap<String, usize> = world.asked.iter().fold(BTreeMap::new(), |mut agents, asked| {
        *agents.entry(asked.agent.clone()).or_default() += 1;
        agents
    });
    for (agent, runs) in agents {
        wrong.extend(inbox(world, &agent).await);
        wrong.extend(events(world, &agent, runs).await);
    }
    world.violations.extend(wrong);
    found
}

/// Reads what a server left behind. Returns the outcome of each run, and what is wrong.
pub fn stored(remains: &Remains, asked: &[RunRequest], ledger: &[Start]) -> (BTreeMap<String, Outcome>, Vec<String>) {
    let mut found = BTreeMap::new();
    let mut wrong = Vec::new();
    for asked in asked.iter().filter(|asked| !asked.is_spoiled) {
        match wreck::export(remains, &asked.run) {
            Err(why) => wrong.push(why),
            Ok(lines) => {
                let export = Export { asked, lines };
                export.check(ledger, &mut wrong);
                found.insert(asked.name.clone(), export.outcome());
            }
        }
    }
    let database = remains.open();
    wrong.extend(wreck::rows(&database));
    wrong.extend(one_run_each(asked, &database));
    wrong.extend(started_with_one_key(ledger));
    (found, wrong)
}

/// An exported run.
struct Export<'a> {
    asked: &'a RunRequest,
    lines: Vec<Value>,
}

impl Export<'_> {
    fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["type"] == kind)
    }

    fn events<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.of_type("event").map(|line| &line["event"]).filter(move |event| event["kind"] == kind)
    }

    fn state(&self) -> &Value {
        self.of_type("state").next().map_or(&Value::Null, |line| &line["state"])
    }

    fn outcome(&self) -> Outcome {
        let ended = self.events("ended").next();
        Outcome {
            end: ended.cloned().unwrap_or_default(),
            iterations: self.state()["iteration"].as_u64().unwrap_or_default(),
            calls: self.state()["calls_used"].as_u64().unwrap_or_default(),
            usage: self.state()["usage"].clone(),
            lost: self.state()["lost"].as_u64().unwrap_or_default(),
            failed_tries: self.events("attempt_failed").count(),
            output: self
                .of_type("item")
                .map(|item| (item["kind"].as_str().unwrap_or_default().to_owned(), without_ids(&item["content"])))
                .collect(),
        }
    }

    fn check(&self, ledger: &[Start], wrong: &mut Vec<String>) {
        let name = &self.asked.name;
        let mut must = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let numbers: Vec<u64> = self.of_type("event").filter_map(|line| line["number"].as_u64()).collect();
        must(numbers.iter().copied().eq(0..numbers.len() as u64), "S7: the journal's numbers are not dense");
        must(self.of_type("run").all(|run| run["status"] == "ended"), "L1: the run has not ended");
        must(self.of_type("state").all(|state| state["is_fold_of_journal"] == true), "S8: the state is not the fold of the journal");
        let iterations: Vec<u64> = self.events("lap_started").filter_map(|event| event["iteration"].as_u64()).collect();
        must(iterations.iter().copied().eq(1..=iterations.len() as u64), "S3: the iterations are not numbered 1, 2, 3 …");
        must(self.events("ended").count() == 1, "S4: a run ends once");
        must(self.events("accepted").count() == 1 && self.events("leased").count() <= 1, "S4: a run begins once");
        let deliverables = self.of_type("item").filter(|item| item["kind"] == "task.deliverable").count();
        must(deliverables == 1, "S4: a run has one deliverable");
        self.check_calls(&mut must);
        self.check_writes(ledger, &mut must);
        self.check_tokens(&mut must);
    }

    /// A model call that may have been in progress when its owner died counts against the budget. Nothing else is estimated.
    fn check_tokens(&self, must: &mut impl FnMut(bool, &str)) {
        let mut is_asking = false;
        let mut lost = 0;
        for event in self.of_type("event").map(|line| &line["event"]) {
            let counted = event["lost"].as_u64().unwrap_or_default();
            lost += counted;
            match event["kind"].as_str().unwrap_or_default() {
                "lap_started" => is_asking = true,
                // An attempt that waits for its backoff may have started or not.
                "replied" | "attempt_failed" | "ended" => is_asking = false,
                "taken_over" => must(!is_asking || counted > 0, "S10: the tokens of a lost model call do not count"),
                _ => {}
            }
        }
        must(self.state()["lost"].as_u64().unwrap_or_default() == lost, "S8: lost tokens are not those of the journal");
    }

    /// A call is made once, its result is accepted once, and the result is in the output box once.
    fn check_calls(&self, must: &mut impl FnMut(bool, &str)) {
        let rows = self.of_type("call").count() as u64;
        must(self.state()["calls_used"].as_u64() == Some(rows), "S10: calls used are not the calls made");
        let settled = ["applied", "expired", "dropped"];
        must(self.of_type("call").all(|call| settled.iter().any(|word| call["status"] == *word)), "S5: a call is not settled");
        let reported: Vec<&Value> = self.events("reported").map(|event| &event["call"]).collect();
        must(is_each_once(&reported), "S5: a result was taken twice");
        let results: Vec<&Value> =
            self.of_type("item").filter(|item| item["kind"] == "tool.result").map(|item| &item["content"]["call"]).collect();
        must(is_each_once(&results), "S5: a result is in the output box twice");
        must(results.len() == reported.len(), "S5: an accepted result is not in the output box");
        let budget = self.of_type("run").next().and_then(|run| run["manifest"]["budgets"]["calls"].as_u64());
        must(budget.is_none_or(|budget| rows <= budget), "S10: the budget was overshot");
    }

    /// A write that was started and not reported is parked, and starts again only after a person has released it.
    fn check_writes(&self, ledger: &[Start], must: &mut impl FnMut(bool, &str)) {
        let of_call = |kind, number: &Value| self.events(kind).filter(|event| event["call"] == *number).count();
        for call in self.of_type("call") {
            let id = format!("call_{}_{}", self.asked.run.trim_start_matches("run_"), call["call"]);
            let starts: Vec<&Start> = ledger.iter().filter(|start| start.call == id).collect();
            let is_release = |event: &&Value| event["call"] == call["call"] && event["verdict"] == "released";
            let (parked, released) = (of_call("interrupted", &call["call"]), self.events("resolved").filter(is_release).count());
            must(parked <= 1 && released <= parked, &format!("S6: {id} was parked {parked} and released {released} times"));
            must(starts.iter().all(|start| call["effect"] == start.effect), &format!("S6: {id} was started as another class than it is"));
            if call["effect"] == "write" {
                let starts = starts.len();
                must(starts <= 1 + released, &format!("S6: the write {id} was started {starts} times, and released {released} times"));
                must(of_call("lease_ended", &call["call"]) == 0, &format!("S6: the write {id} went back to the line when its lease ended"));
            }
        }
    }
}

fn is_each_once(values: &[&Value]) -> bool {
    let texts: BTreeSet<String> = values.iter().map(ToString::to_string).collect();
    texts.len() == values.len()
}

/// Removes the ids, which are new in every run. Everything else of an item is the same in every run.
fn without_ids(content: &Value) -> Value {
    match content {
        Value::Object(map) => {
            map.iter().filter(|(key, _)| *key != "item_id").map(|(key, value)| (key.clone(), without_ids(value))).collect()
        }
        Value::Array(values) => values.iter().map(without_ids).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => content.clone(),
    }
}

/// One request is one run and one row in the inbox, however often it was sent.
fn one_run_each(asked: &[RunRequest], database: &Database) -> Vec<String> {
    let mut wrong = Vec::new();
    // No client requested the child runs.
    let roots = database.rows("SELECT 'run_' || lower(hex(run)) FROM runs WHERE parent IS NULL");
    let stored: BTreeSet<String> = roots.into_iter().flatten().flatten().collect();
    let known: BTreeSet<String> = asked.iter().map(|asked| asked.run.clone()).collect();
    if stored != known || known.len() != asked.len() {
        wrong.push(format!("S4: {} requests became {} runs, {} of them known", asked.len(), stored.len(), known.len()));
    }
    let turns =
        wreck::counts(database, "SELECT 'run_' || lower(hex(run)), count(*) FROM inbox WHERE kind IN ('turn', 'ui_action') GROUP BY run");
    wrong.extend(turns.iter().filter(|(_, count)| **count != 1).map(|(run, count)| format!("S4: {run} has {count} turns in the inbox")));
    let reports = wreck::counts(
        database,
        "SELECT hex(run) || '#' || call || kind, count(*) FROM inbox WHERE kind IN ('tool_result', 'timeout') GROUP BY run, call, kind",
    );
    wrong.extend(
        reports.iter().filter(|(_, count)| **count != 1).map(|(call, count)| format!("S5: {call} has {count} reports in the inbox")),
    );
    wrong
}

/// All starts of a call had the same key.
fn started_with_one_key(ledger: &[Start]) -> Vec<String> {
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for start in ledger {
        keys.entry(&start.call).or_default().insert(&start.key);
    }
    keys.into_iter()
        .filter(|(_, keys)| keys.len() != 1)
        .map(|(call, keys)| format!("S6: {call} was started with the keys {keys:?}"))
        .collect()
}

/// Whether an edge is a call, and not a message about one.
fn is_of_call(edge: &Value) -> bool {
    edge["primitive"] == "tool_call" || (edge["primitive"] == "join" && edge["edge_phase"] == "request")
}

/// The inbox has no pending rows, every row of it is an edge, and every call that a service got is an edge.
async fn inbox(world: &mut World, agent: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let inbox = world.get(&format!("/v1/agents/{agent}/inbox?limit=1000")).await;
    let rows = inbox["inbox"].as_array().cloned().unwrap_or_default();
    let (refused, taken): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| row["status"] == "error");
    if refused.len() != world.strays {
        wrong.push(format!("S4: {} messages of {agent} were refused, {} should be: {refused:?}", refused.len(), world.strays));
    }
    for row in taken.into_iter().filter(|row| row["status"] != "consumed" && row["status"] != "skipped") {
        wrong.push(format!("L1: a message of {agent} is still {}: {row}", row["status"]));
    }
    let edges = world.get(&format!("/v1/agents/{agent}/edges?limit=1000")).await;
    let (calls, messages): (Vec<&Value>, Vec<&Value>) = edges["edges"].as_array().into_iter().flatten().partition(|edge| is_of_call(edge));
    if messages.len() != rows.len() || rows.is_empty() {
        wrong.push(format!("S4: {agent} has {} messages and {} edges of messages", rows.len(), messages.len()));
    }
    let called: Vec<&Value> = calls.iter().map(|edge| &edge["correlation_id"]).collect();
    if !is_each_once(&called) {
        wrong.push(format!("S5: a call of {agent} has two edges: {called:?}"));
    }
    let head = world.get(&format!("/v1/agents/{agent}")).await;
    if head["status"] != "idle" || head["queued"] != 0 || head["quarantined"] != false {
        wrong.push(format!("L1: {agent} is not idle: {head}"));
    }
    wrong
}

/// Each run has one task event. A reader that reconnected after every death has the same events, in the same order, as a new reader.
async fn events(world: &World, agent: &str, runs: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let task = format!("evt.agent.{agent}.task");
    let mut tasks = 0;
    let mut stream = world.server().events(agent, None).await;
    let is_last = |event: &SseEvent| {
        tasks += usize::from(event.event == task);
        tasks >= runs && event.data["status"] == "idle"
    };
    let all = stream.read_until(is_last).await;
    let runs_with_task: BTreeSet<String> =
        all.iter().filter(|event| event.event == task).map(|event| event.data["agent_turn_id"].to_string()).collect();
    if runs_with_task.len() != runs || tasks != runs {
        wrong.push(format!("S4: {runs} runs of {agent} had {tasks} task events, for {} of them", runs_with_task.len()));
    }
    let seen = world.seen(agent, all.len()).await;
    if seen != all {
        let same = seen.iter().zip(&all).take_while(|(a, b)| a == b).count();
        wrong.push(format!("S7: a reader of {agent} saw {} events, a newcomer {}; they differ from {same} on", seen.len(), all.len()));
    }
    wrong
}
