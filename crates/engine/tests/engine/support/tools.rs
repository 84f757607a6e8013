//! In-process tools that follow the script of a test, and external tool services.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use windlass_kernel::{AfterExecution, CallRetries, EffectClass, Route, TaskStatus, ToolName, ToolSpec};
use windlass_ports::{Executor, OfferedTool, ToolCall, ToolReport};

use super::gauge::{Gauge, Latch};

/// An in-process tool that may run twice.
pub const LOOK: &str = "look";
/// An in-process tool whose second start changes nothing.
pub const TOUCH: &str = "touch";
/// An in-process tool that must not run twice.
pub const WRITE: &str = "write";
/// An external tool that may run twice.
pub const LOOKUP: &str = "lookup";
/// An external tool that must not run twice.
pub const CHARGE: &str = "charge";

/// An external tool whose calls are repeated twice after a failure, first after [`PAUSE_MS`].
pub const FLAKY: &str = "flaky";
/// A tool of the process with the same repetitions.
pub const FETCH: &str = "fetch";
/// The pause before the first repetition.
pub const PAUSE_MS: u64 = 1_000;

/// The deadline of an external call.
pub const SERVICE_MS: u64 = 60_000;

/// A tool's reaction to a call.
pub enum Act {
    Give(String),
    GiveAnd(String, AfterExecution),
    Fail(String),
    Hang,
    Panic,
    /// Waits for the latch first.
    After(Latch, Box<Act>),
}

/// A successful result.
pub fn give(json: &str) -> Act {
    Act::Give(json.to_owned())
}

type Play = Box<dyn Fn(&ToolCall) -> Act + Send + Sync>;

/// The executor of `look`, `touch` and `write`.
pub struct Tools {
    play: Play,
    starts: Mutex<Vec<ToolCall>>,
    pub gauge: Arc<Gauge>,
}

impl Tools {
    pub fn new(play: impl Fn(&ToolCall) -> Act + Send + Sync + 'static) -> Self {
        Tools { play: Box::new(play), starts: Mutex::default(), gauge: Arc::default() }
    }

    /// Every start so far: the call's key as APIs spell it, and its tool.
    pub fn starts(&self) -> Vec<(String, String)> {
        self.starts.lock().unwrap().iter().map(|call| (call.idempotency_key(), call.tool.to_string())).collect()
    }

    /// The number of starts of one tool.
    pub fn starts_of(&self, tool: &str) -> usize {
        self.starts().iter().filter(|(_, started)| started == tool).count()
    }
}

#[async_trait]
impl Executor for Tools {
    fn offers(&self) -> Vec<OfferedTool> {
        let effects = [(LOOK, EffectClass::Read), (TOUCH, EffectClass::Idempotent), (WRITE, EffectClass::Write)];
        let fetch = OfferedTool { retry: Some(RETRIES), ..OfferedTool::plain(FETCH, EffectClass::Read) };
        effects.into_iter().map(|(name, effect)| OfferedTool::plain(name, effect)).chain([fetch]).collect()
    }

    async fn run(&self, call: ToolCall) -> ToolReport {
        let mut act = (self.play)(&call);
        self.starts.lock().unwrap().push(call);
        let in_flight = self.gauge.enter();
        while let Act::After(latch, then) = act {
            latch.passed().await;
            act = *then;
        }
        let report = match act {
            Act::Give(json) => ToolReport { status: TaskStatus::Success, result: json.into(), after: None, failure: None },
            Act::GiveAnd(json, after) => ToolReport { status: TaskStatus::Success, result: json.into(), after: Some(after), failure: None },
            Act::Fail(json) => ToolReport { status: TaskStatus::Failed, result: json.into(), after: None, failure: None },
            Act::Hang => std::future::pending().await,
            Act::Panic | Act::After(..) => panic!("the tool panics because the test says so"),
        };
        in_flight.finish();
        report
    }
}

const RETRIES: CallRetries = CallRetries { max: 2, backoff_ms: PAUSE_MS };

/// The external tools.
pub fn services() -> BTreeMap<ToolName, ToolSpec> {
    let tool = |name: &str, effect| ToolSpec {
        name: name.into(),
        description: String::new(),
        parameters: serde_json::json!({ "type": "object" }),
        route: Route::External,
        effect,
        after_execution: AfterExecution::Suspend,
        deadline_ms: SERVICE_MS,
        remote: None,
        retry: None,
        strict: None,
        untrusted: false,
        agent: None,
    };
    let flaky = ToolSpec { retry: Some(RETRIES), ..tool(FLAKY, EffectClass::Read) };
    [tool(LOOKUP, EffectClass::Read), tool(CHARGE, EffectClass::Write), flaky].into_iter().map(|tool| (tool.name.clone(), tool)).collect()
}
