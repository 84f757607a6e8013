//! The short notation for a manifest:
//!
//! ```text
//! tools: look, pay external write terminate 5000ms, ask client, charge @bank, get retry=2/100ms
//! budgets: 3 iterations, 4 calls, 100 tokens, 2000 wall_ms, 900 cost
//! fields: title!, note
//! origin: action
//! choice: none
//! allowed: look, ask
//! calls_max: 2
//! one_call: yes
//! compaction: auto
//! budgets_park: yes
//! gates: pay* 5000ms approve, tainted write, charge twice
//! client_approves: pay, charge
//! parent: call 2 tainted
//! ```
//!
//! `@bank` is the server of the tool. A tool is in process, reads, suspends and has a minute to answer unless its line says otherwise; `!` marks a required field.

use windlass_kernel::{
    AfterExecution, Budgets, CallNumber, CallRetries, Compaction, CostBudget, EffectClass, Gate, Manifest, OnTimeout, Origin, ParentCall,
    Prices, Remote, ResultField, Route, RunId, ToolChoice, ToolName, ToolSpec,
};

/// A run that has not begun.
#[derive(Clone, Debug)]
pub struct Setup {
    pub origin: Origin,
    /// The call of another run that this run answers.
    pub parent: Option<ParentCall>,
    pub manifest: Manifest,
}

pub fn parse(text: &str) -> Setup {
    let mut setup = Setup { origin: Origin::Turn, parent: None, manifest: manifest() };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (what, rest) = line.split_once(':').expect("a setup line has a colon");
        let parts = rest.split(',').map(str::trim);
        match what {
            "tools" => setup.manifest.tools = parts.map(tool).collect(),
            "budgets" => parts.for_each(|budget| set_budget(&mut setup.manifest.budgets, budget)),
            "fields" => setup.manifest.result_fields = parts.map(field).collect(),
            "choice" => setup.manifest.choice = choice(rest.trim()),
            "allowed" => setup.manifest.allowed = parts.map(ToolName::from).collect(),
            "calls_max" => setup.manifest.calls_max = Some(number(rest.trim())),
            "one_call" => setup.manifest.one_call = true,
            "compaction" => setup.manifest.compaction = if rest.trim() == "only" { Compaction::Only } else { Compaction::Auto },
            "budgets_park" => setup.manifest.budgets_park = true,
            "gates" => setup.manifest.gates = parts.map(gate).collect(),
            "client_approves" => setup.manifest.client_approves = parts.map(ToolName::from).collect(),
            "parent" => {
                let (call, tainted) = rest.trim().split_once(" tainted").map_or((rest.trim(), false), |(call, _)| (call, true));
                let (run, call) = (RunId(uuid::Uuid::from_u128(99)), CallNumber(number(call.trim_start_matches("call "))));
                setup.parent = Some(ParentCall { run, head: "boss".into(), call, tainted });
            }
            "origin" => setup.origin = if rest.trim() == "action" { Origin::Action } else { Origin::Turn },
            other => panic!("unknown setup line {other:?}"),
        }
    }
    setup
}

/// A manifest without tools, with ten iterations and no other limit.
pub fn manifest() -> Manifest {
    Manifest::plain("scripted", Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None })
}

/// Reads the notation of one tool.
pub fn tool(text: &str) -> ToolSpec {
    let mut parts = text.split_whitespace();
    let mut tool = ToolSpec {
        name: parts.next().expect("a tool has a name").into(),
        description: String::new(),
        parameters: serde_json::json!({}),
        route: Route::InProcess,
        effect: EffectClass::Read,
        after_execution: AfterExecution::Suspend,
        deadline_ms: 60_000,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    for part in parts {
        match part {
            "external" => tool.route = Route::External,
            "child" => {
                (tool.route, tool.effect, tool.deadline_ms) = (Route::Child, EffectClass::Idempotent, u64::MAX);
                tool.agent = Some("helper".into());
            }
            "client" => tool.route = Route::Client,
            "person" => tool.route = Route::Person,
            "read" => tool.effect = EffectClass::Read,
            "idempotent" => tool.effect = EffectClass::Idempotent,
            "write" => tool.effect = EffectClass::Write,
            "untrusted" => tool.untrusted = true,
            server if server.starts_with('@') => {
                tool.remote = Some(Remote { server: server[1..].to_owned(), name: tool.name.to_string() });
            }
            retries if retries.starts_with("retry=") => tool.retry = Some(retry(retries.trim_start_matches("retry="))),
            "terminate" => tool.after_execution = AfterExecution::Terminate,
            deadline => tool.deadline_ms = number(deadline.trim_end_matches("ms")),
        }
    }
    tool
}

/// Reads `2/100ms`: two repetitions, and the first pause.
pub fn retry(text: &str) -> CallRetries {
    let (max, backoff) = text.split_once('/').expect("retries are N/Nms");
    CallRetries { max: number(max), backoff_ms: number(backoff.trim_end_matches("ms")) }
}

/// Reads the notation of one rule for approvals: a pattern of tool names, and conditions.
pub fn gate(text: &str) -> Gate {
    let mut gate = Gate::default();
    for part in text.split_whitespace() {
        match part {
            "read" => gate.effect = Some(EffectClass::Read),
            "write" => gate.effect = Some(EffectClass::Write),
            "tainted" => gate.tainted = Some(true),
            "approve" => gate.on_timeout = OnTimeout::Approve,
            "end" => gate.on_timeout = OnTimeout::End,
            "twice" => gate.approvers = 2,
            deadline if deadline.ends_with("ms") => gate.until_ms = Some(number(deadline.trim_end_matches("ms"))),
            pattern => gate.tool = Some(pattern.to_owned()),
        }
    }
    gate
}

fn choice(text: &str) -> ToolChoice {
    match text {
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        tool => ToolChoice::Tool(tool.into()),
    }
}

/// A token that is read costs two micro-dollars, and one that is written ten.
const PRICES: Prices = Prices { input: 2_000_000, output: 10_000_000, cached: 2_000_000, cache_written: 2_000_000 };

fn set_budget(budgets: &mut Budgets, text: &str) {
    let (limit, kind) = text.split_once(' ').expect("a budget is a number and a kind");
    let limit: u64 = number(limit);
    let small = u32::try_from(limit).expect("a small limit");
    match kind {
        "iterations" => budgets.iterations = small,
        "calls" => budgets.calls = Some(small),
        "tokens" => budgets.tokens = Some(limit),
        "wall_ms" => budgets.wall_ms = Some(limit),
        "cost" => budgets.cost = Some(CostBudget { limit, prices: PRICES }),
        "children" => budgets.children = Some(small),
        other => panic!("unknown budget {other:?}"),
    }
}

fn field(text: &str) -> ResultField {
    ResultField { name: text.trim_end_matches('!').into(), description: String::new(), required: text.ends_with('!') }
}

/// Reads a number, or panics with the text that is none.
pub fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}
