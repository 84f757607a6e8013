//! `GET /metrics`: what the meter counted, in the text format of OpenMetrics, which Prometheus reads.
//!
//! Label values come from enums and from the configuration; everything else is `other`. So the number of series is bounded whatever
//! clients, models and tool servers send. Runs, calls and users are never labels.

mod families;
mod labels;
mod scrape;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use windlass_kernel::Usage;
use windlass_ports::{EndedRun, Fact, Meter, ModelCalled, StoreFailure};

pub use labels::Configured;

use crate::{
    DoorState,
    auth::{Caller, Scope},
    error::ApiError,
};
use families::Families;
use labels::{Label, Labels, Names, effect, status};
pub(crate) use scrape::Scrape;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The label of streams of server-sent events; WebSockets have the label `socket`.
const STREAMS: Labels<1> = Labels([("kind", Label::Fixed("sse"))]);

/// The metrics of a server. The engine, the store and the doors report to it.
pub struct Metrics {
    families: Families,
    agents: Names,
    models: Names,
    tools: Names,
}

impl Metrics {
    /// Creates the metrics. Names outside of `configured` are counted under the label `other`.
    pub fn new(configured: Configured) -> Arc<Self> {
        let Configured { agents, models, tools } = configured;
        Arc::new(Metrics { families: Families::new(), agents: Names::new(agents), models: Names::new(models), tools: Names::new(tools) })
    }

    /// Counts a request that was answered after this number of seconds. `route` is the router's pattern of its path.
    pub(crate) fn answered(&self, door: &'static str, route: Option<&str>, code: u16, seconds: f64) {
        let route = route.map_or(Label::OTHER, |route| self.families.route(route));
        self.families
            .http_request_seconds
            .get_or_create(&Labels([("door", door.into()), ("route", route), ("code", labels::code(code))]))
            .observe(seconds);
    }

    /// Counts a stream to a client as open until the guard is dropped.
    pub(crate) fn stream(self: &Arc<Self>) -> OpenStream {
        self.families.streams.get_or_create(&STREAMS).inc();
        OpenStream(self.clone())
    }

    fn ended(&self, ended: &EndedRun<'_>) {
        let (agent, outcome) = (self.agents.label(ended.agent.agent.as_str()), Label::Fixed(status(ended.status)));
        let reason = Label::Fixed(ended.reason.kind());
        self.families.runs_ended.get_or_create(&Labels([("agent", agent.clone()), ("status", outcome.clone()), ("reason", reason)])).inc();
        self.families.run_seconds.get_or_create(&Labels([("agent", agent), ("status", outcome)])).observe(seconds(ended.ms));
    }

    fn model_called(&self, called: &ModelCalled<'_>) {
        let (families, model) = (&self.families, self.models.label(called.model));
        if let Some(ms) = called.ms {
            families.model_call_seconds.get_or_create(&Labels([("model", model.clone())])).observe(seconds(ms));
        }
        if let Some(ms) = called.first_token_ms {
            families.model_first_token_seconds.get_or_create(&Labels([("model", model.clone())])).observe(seconds(ms));
        }
        if let Some(code) = called.code {
            families.model_failures.get_or_create(&Labels([("model", model.clone()), ("code", labels::model_code(code))])).inc();
        }
        let Usage { tokens_in, tokens_out, cached, cache_written, reasoning } = called.usage;
        let kinds =
            [("in", tokens_in), ("out", tokens_out), ("cached", cached), ("cache_written", cache_written), ("reasoning", reasoning)];
        for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0) {
            let labels = [("model", model.clone()), ("agent", self.agents.label(called.agent.as_str())), ("kind", kind.into())];
            families.model_tokens.get_or_create(&Labels(labels)).inc_by(tokens);
        }
    }
}

impl Meter for Metrics {
    fn record(&self, fact: Fact<'_>) {
        let families = &self.families;
        match fact {
            Fact::RunsResumed(_) => {}
            Fact::RunStarted { agent, waited_ms, .. } => {
                let agent = self.agents.label(agent.agent.as_str());
                if let Some(ms) = waited_ms {
                    families.queue_wait_seconds.get_or_create(&Labels([("agent", agent)])).observe(seconds(ms));
                }
            }
            Fact::RunEnded(ended) => self.ended(&ended),
            Fact::IterationStarted(agent) => {
                families.iterations.get_or_create(&Labels([("agent", self.agents.label(agent.as_str()))])).inc();
            }
            Fact::TakenOver(agent) => drop(families.takeovers.get_or_create(&Labels([("agent", self.agents.label(agent.as_str()))])).inc()),
            Fact::Fenced => drop(families.fenced.inc()),
            Fact::CallParked(tool) => drop(families.calls_parked.get_or_create(&Labels([("tool", self.tools.label(tool))])).inc()),
            Fact::CallEnded { tool, effect: class, status: outcome, ms } => {
                let (tool, outcome) = (self.tools.label(tool), Label::Fixed(status(outcome)));
                if let Some(ms) = ms {
                    families
                        .tool_call_seconds
                        .get_or_create(&Labels([("tool", tool.clone()), ("status", outcome.clone())]))
                        .observe(seconds(ms));
                }
                families
                    .tool_calls
                    .get_or_create(&Labels([("tool", tool), ("effect", Label::Fixed(effect(class))), ("status", outcome)]))
                    .inc();
            }
            Fact::ModelQueued(model) => drop(families.model_waiting.get_or_create(&Labels([("model", self.models.label(model))])).inc()),
            Fact::ModelDequeued(model) => drop(families.model_waiting.get_or_create(&Labels([("model", self.models.label(model))])).dec()),
            Fact::ModelCalled(called) => self.model_called(&called),
            Fact::GroupCommitted { requests, micros } => {
                families.commit_seconds.observe(micros as f64 / 1e6);
                families.commit_group_size.observe(requests as f64);
            }
            Fact::StoreFailed(failure) => {
                let kind = match failure {
                    StoreFailure::Unavailable => "unavailable",
                    StoreFailure::Corrupt => "corrupt",
                };
                families.store_errors.get_or_create(&Labels([("kind", kind.into())])).inc();
            }
            Fact::Swept => families.swept(),
            Fact::OverQuota(kind) => drop(families.over_quota.get_or_create(&Labels([("quota", kind.name().into())])).inc()),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The guard of an open stream to a client.
pub(crate) struct OpenStream(Arc<Metrics>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.families.streams.get_or_create(&STREAMS).dec();
    }
}

/// `GET /metrics`. Needs no token from a process on this machine, except behind a proxy, where every client seems to be on this machine.
pub(crate) async fn metrics(State(state): State<DoorState>, request: Request) -> Result<Response, ApiError> {
    if let Some(caller) = request.extensions().get::<Caller>() {
        caller.needs(&Scope::Metrics)?;
    }
    let text = state.scrape.text(&state).await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}
