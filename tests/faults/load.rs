//! People who enqueue turns, services that execute the calls, and the operator who decides about parked calls.
//!
//! All of them behave as the documentation asks: a request without an answer is sent again with its key; a service starts a call only while
//! its own clock says that it holds the lease, writes the start into its ledger first, and reports until the report is acknowledged. Some
//! services die in the middle of a call and never report it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};

use crate::cluster::Roads;

/// The length of a service's lease, in seconds.
const LEASE_S: u64 = 3;
/// The time after which a turn counts as wedged.
const TURN_PATIENCE: Duration = Duration::from_secs(120);

/// An acknowledged turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The agent.
    pub agent: String,
    /// The idempotency key.
    pub key: String,
    /// The run.
    pub run: String,
}

/// The load and its records so far.
pub struct Load {
    roads: Arc<Roads>,
    /// Acknowledged turns, in the order of their acknowledgement.
    pub turns: Mutex<Vec<Turn>>,
    /// The number of starts of each call.
    pub ledger: Mutex<BTreeMap<String, u32>>,
    /// The number of calls whose services died after the start.
    pub abandoned: AtomicU64,
    /// The number of the operator's decisions.
    pub decided: AtomicU64,
    /// Everything that went wrong.
    pub wrong: Mutex<Vec<String>>,
    claims: AtomicU64,
    /// A service abandons one call in this number; none if 0.
    abandon_one_in: u64,
    over: AtomicBool,
}

impl Load {
    /// Starts the services with an empty ledger. No turn is enqueued yet.
    pub fn start(roads: &Arc<Roads>, abandon_one_in: u64) -> Arc<Self> {
        let load = Arc::new(Load {
            roads: roads.clone(),
            turns: Mutex::default(),
            ledger: Mutex::default(),
            abandoned: AtomicU64::new(0),
            decided: AtomicU64::new(0),
            wrong: Mutex::default(),
            claims: AtomicU64::new(0),
            abandon_one_in,
            over: AtomicBool::new(false),
        });
        for tool in ["echo", "write"] {
            for worker in 0..3 {
                tokio::spawn(load.clone().serve(tool, format!("{tool}-{worker}")));
            }
        }
        load
    }

    /// Runs this number of agents at the same time, each with this number of turns, one after the other, with a pause after each.
    pub async fn ask(self: &Arc<Self>, agents: usize, turns: usize, pause: Duration) {
        self.ask_while(agents, pause, move |turn| turn < turns).await;
    }

    /// Runs this number of agents at the same time, which have turns until this moment.
    pub async fn ask_until(self: &Arc<Self>, agents: usize, until: Instant, pause: Duration) {
        self.ask_while(agents, pause, move |_| Instant::now() < until).await;
    }

    async fn ask_while(self: &Arc<Self>, agents: usize, pause: Duration, goes_on: impl Fn(usize) -> bool + Clone + Send + 'static) {
        // The more agents there are, the less often each of them polls.
        let look = Duration::from_millis(50.max(2 * agents as u64));
        let tasks: Vec<_> = (0..agents)
            .map(|agent| {
                let (load, goes_on) = (self.clone(), goes_on.clone());
                tokio::spawn(async move {
                    let mut turn = 0;
                    while goes_on(turn) {
                        load.turn(&format!("agent-{agent}"), turn, look).await;
                        tokio::time::sleep(pause).await;
                        turn += 1;
                    }
                })
            })
            .collect();
        for task in tasks {
            if let Err(error) = task.await {
                self.wrong.lock().expect("the lock is not poisoned").push(format!("a client gave up: {error}"));
            }
        }
    }

    /// Runs this number of agents at the same time for as long as the faults take.
    pub async fn ask_beside(self: &Arc<Self>, agents: usize, pause: Duration, faults: impl Future<Output = ()>) {
        let (over, is_over) = tokio::sync::watch::channel(false);
        let faults = async {
            faults.await;
            let _ = over.send(true);
        };
        tokio::join!(self.ask_while(agents, pause, move |_| !*is_over.borrow()), faults);
    }

    /// Stops the agents and the services.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Enqueues one turn and waits for its end.
    async fn turn(&self, agent: &str, number: usize, look: Duration) {
        let key = format!("{agent}-turn-{number}");
        let path = format!("/v1/agents/{agent}/enqueue");
        let body = json!({ "input": "work", "tools": ["echo", "write"] });
        let answer = self.roads.post(&path, &body, Some(&key)).await.ok();
        let run = answer["run_id"].as_str().expect("an enqueue has a run").to_owned();
        self.turns.lock().expect("the lock is not poisoned").push(Turn { agent: agent.to_owned(), key: key.clone(), run: run.clone() });
        let began = Instant::now();
        loop {
            let view = self.roads.get(&format!("/v1/windlass/runs/{run}")).await;
            if view["status"] == "ended" {
                break;
            }
            assert!(began.elapsed() < TURN_PATIENCE, "{run} of {agent} is wedged: {view}");
            self.decide(&run, &view).await;
            tokio::time::sleep(look).await;
        }
        // A client that lost the answer repeats the request, also after the end of the turn. It gets the same turn.
        if number.is_multiple_of(4) {
            let again = self.roads.post(&path, &body, Some(&key)).await.ok();
            if again["run_id"] != run.as_str() {
                self.wrong.lock().expect("the lock is not poisoned").push(format!("{key} became {run} and {}", again["run_id"]));
            }
        }
    }

    /// The operator looks up a parked write in the ledger. A decision without an answer is not repeated blindly: by then it could concern
    /// another start.
    async fn decide(&self, run: &str, view: &Value) {
        let calls = view["calls"]["open"].as_array().cloned().unwrap_or_default();
        let parked: Vec<&Value> = calls.iter().filter(|call| call["progress"] == "parked").collect();
        let mut decisions = Vec::new();
        for call in &parked {
            let id = &call["tool_call_id"];
            let is_started = self.ledger.lock().expect("the lock is not poisoned").contains_key(id.as_str().unwrap_or_default());
            decisions.push(match is_started {
                true => json!({ "run_id": run, "tool_call_id": id, "action": "record", "status": "success", "result": "in the ledger" }),
                false => json!({ "run_id": run, "tool_call_id": id, "action": "release" }),
            });
        }
        // A text here gives the reason why the whole run is parked.
        if view["parked"].is_string() {
            decisions.push(json!({ "run_id": run, "action": "resume" }));
        }
        for decision in decisions {
            self.decided.fetch_add(1, Ordering::Relaxed);
            let answer = self.roads.once(&Method::POST, "/v1/windlass/reconcile", Some(&decision), None).await;
            let is_fine = answer.as_ref().is_none_or(|answer| answer.status == 200 || answer.status == 409);
            if !is_fine {
                self.wrong.lock().expect("the lock is not poisoned").push(format!("{decision} was answered with {answer:?}"));
            }
        }
    }

    /// One service: it claims, starts and reports calls until the load ends.
    async fn serve(self: Arc<Self>, tool: &'static str, worker: String) {
        while !self.over.load(Ordering::Relaxed) {
            let key = format!("{worker}-claim-{}", self.claims.fetch_add(1, Ordering::Relaxed));
            let body = json!({ "worker": worker, "max": 20, "lease_s": LEASE_S, "wait_s": 1 });
            // The lease may have begun with the first attempt.
            let asked = Instant::now();
            let answer = self.roads.post(&format!("/v1/tools/{tool}/claim"), &body, Some(&key)).await;
            let Some(calls) = answer.body["calls"].as_array().filter(|_| answer.status == 200) else {
                self.wrong.lock().expect("the lock is not poisoned").push(format!("a claim was answered with {answer:?}"));
                return;
            };
            let reports = calls.iter().map(|call| self.run_call(call, asked));
            futures_util::future::join_all(reports).await;
        }
    }

    async fn run_call(&self, call: &Value, asked: Instant) {
        // The answer came late, and another worker may hold the call by now. The lease of a claim that waited is no older than its wait.
        if asked.elapsed() > Duration::from_millis(LEASE_S * 1000 - 500) {
            return;
        }
        let id = call["tool_call_id"].as_str().expect("a claimed call has an id");
        *self.ledger.lock().expect("the lock is not poisoned").entry(id.to_owned()).or_default() += 1;
        let is_chosen = |sum: u64| self.abandon_one_in > 0 && sum.is_multiple_of(self.abandon_one_in);
        let sum = id.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        // Only the first start is abandoned; the second belongs to another worker.
        if is_chosen(sum) && self.ledger.lock().expect("the lock is not poisoned")[id] == 1 {
            self.abandoned.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let body = json!({
            "agent_turn_id": call["agent_turn_id"], "tool_call_id": id, "status": "success", "result": { "did": call["arguments"] },
        });
        let agent = call["agent_id"].as_str().expect("a claimed call has an agent");
        let answer = self.roads.post(&format!("/v1/agents/{agent}/report"), &body, None).await;
        if answer.status != 202 {
            self.wrong.lock().expect("the lock is not poisoned").push(format!("a report on {id} was answered with {answer:?}"));
        }
    }
}
