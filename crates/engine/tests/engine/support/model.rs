//! A model that follows the script of a test.

use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, stream};
use windlass_kernel::{FailureCause, RequestedCall, Tenant, Usage};
use windlass_ports::{Model, ModelError, ModelEvent, ModelMessage, ModelRequest, ModelStream, Models, Retry};

use super::gauge::{Gauge, Latch};

/// The model's reaction to a request.
pub enum Turn {
    Say(String),
    /// Calls of these tools with these arguments.
    Call(Vec<(&'static str, &'static str)>),
    Fail(&'static str, Retry),
    /// Streams text, after reporting usage if it is given, and fails.
    BreakOff {
        reported: Option<Usage>,
        text: String,
    },
    /// Answers with text, and reports its model name and usage.
    SayAs {
        upstream: &'static str,
        usage: Usage,
        text: String,
    },
    Hang,
    /// Accepts the request and sends nothing.
    Stall,
    Panic,
    /// Waits for the latch first.
    After(Latch, Box<Turn>),
}

/// Text that ends the run.
pub fn say(text: &str) -> Turn {
    Turn::Say(text.to_owned())
}

/// Calls without arguments.
pub fn call(tools: &[&'static str]) -> Turn {
    Turn::Call(tools.iter().map(|tool| (*tool, "{}")).collect())
}

type Play = Box<dyn Fn(&ModelRequest) -> Turn + Send + Sync>;

/// The only configured model.
pub struct Script {
    play: Play,
    concurrency: usize,
    requests: Mutex<Vec<ModelRequest>>,
    pub gauge: Arc<Gauge>,
}

impl Script {
    pub fn new(concurrency: usize, play: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Script { play: Box::new(play), concurrency, requests: Mutex::default(), gauge: Arc::default() }
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// How often runs of this task called the model.
    pub fn count(&self, task: &str) -> usize {
        self.requests().iter().filter(|request| request.task() == task).count()
    }
}

/// Accessors of a request for tests.
pub trait RequestExt {
    /// The task of the run.
    fn task(&self) -> &str;
    /// The results of its tool calls, oldest first.
    fn results(&self) -> Vec<String>;
}

impl RequestExt for ModelRequest {
    fn task(&self) -> &str {
        match self.messages.first() {
            Some(ModelMessage::User(text)) => text,
            Some(_) | None => "",
        }
    }

    fn results(&self) -> Vec<String> {
        let outputs = self.messages.iter().filter_map(|message| match message {
            ModelMessage::ToolResult { output, .. } => Some(output.clone()),
            ModelMessage::User(_)
            | ModelMessage::Message { .. }
            | ModelMessage::StrayOutput { .. }
            | ModelMessage::Other(_)
            | ModelMessage::Assistant { .. } => None,
        });
        outputs.collect()
    }
}

impl Model for Script {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let turn = (self.play)(&request);
        self.requests.lock().unwrap().push(request);
        let in_flight = self.gauge.enter();
        let taken = matches!(turn, Turn::Stall).then_some(Ok(ModelEvent::Taken));
        let answer = async move {
            let events = perform(turn).await;
            in_flight.finish();
            stream::iter(events)
        };
        Box::pin(stream::iter(taken).chain(stream::once(answer).flatten()))
    }

    fn provider(&self) -> &str {
        "script"
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }
}

async fn perform(mut turn: Turn) -> Vec<Result<ModelEvent, ModelError>> {
    while let Turn::After(latch, then) = turn {
        latch.passed().await;
        turn = *then;
    }
    match turn {
        Turn::Say(text) => vec![Ok(ModelEvent::Text(text))],
        Turn::Call(calls) => calls.into_iter().enumerate().map(|(index, call)| Ok(requested(index, call))).collect(),
        Turn::Fail(code, retry) => {
            vec![Err(ModelError { code: code.into(), cause: FailureCause::Other, message: "it did not work".into(), retry })]
        }
        Turn::BreakOff { reported, text } => {
            let reported = reported.map(|usage| Ok(ModelEvent::Usage(usage)));
            let error = ModelError {
                code: "stream_cut".into(),
                cause: FailureCause::BadAnswer,
                message: "it broke off".into(),
                retry: Retry::Backoff,
            };
            reported.into_iter().chain([Ok(ModelEvent::Text(text)), Err(error)]).collect()
        }
        Turn::SayAs { upstream, usage, text } => {
            let reported = [ModelEvent::Model(upstream.to_owned()), ModelEvent::Usage(usage), ModelEvent::Text(text)];
            reported.into_iter().map(Ok).collect()
        }
        Turn::Hang | Turn::Stall => std::future::pending().await,
        Turn::Panic | Turn::After(..) => panic!("the model panics because the test says so"),
    }
}

fn requested(index: usize, (tool, arguments): (&str, &str)) -> ModelEvent {
    ModelEvent::Call(RequestedCall { provider_id: format!("call_{index}"), tool: tool.to_owned(), arguments: arguments.to_owned() })
}

/// A configuration with this model alone, under two names.
pub struct Only(pub Arc<Script>);

/// The same model under another name.
struct Namesake(Arc<Script>);

impl Model for Namesake {
    fn call(&self, request: ModelRequest) -> ModelStream {
        self.0.call(request)
    }

    fn provider(&self) -> &str {
        "namesake"
    }

    fn line(&self) -> &str {
        self.0.line()
    }

    fn concurrency(&self) -> usize {
        self.0.concurrency()
    }
}

impl Models for Only {
    fn resolve(&self, _: &Tenant, name: &str) -> Option<Arc<dyn Model>> {
        match name {
            "script" => Some(self.0.clone()),
            "namesake" => Some(Arc::new(Namesake(self.0.clone()))),
            _ => None,
        }
    }

    fn names(&self, tenant: &Tenant) -> Vec<String> {
        self.default_name(tenant).map(str::to_owned).into_iter().collect()
    }

    fn default_name(&self, _: &Tenant) -> Option<&str> {
        Some("script")
    }
}
