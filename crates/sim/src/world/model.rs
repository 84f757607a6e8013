//! A provider that usually answers. Some streams break off, some never end, some calls are refused.

use std::sync::Arc;

use futures_util::{FutureExt, stream};
use windlass_kernel::{FailureCause, RequestedCall, Tenant, Usage};
use windlass_ports::{Model, ModelError, ModelEvent, ModelRequest, ModelStream, Models, Retry, Views};

use super::{Fact, World, node::Node, pass_ms, tools};

/// A process's connection to the provider.
pub(super) struct SimModels {
    model: Arc<SimModel>,
}

struct SimModel {
    world: Arc<World>,
    node: Arc<Node>,
}

impl SimModels {
    pub fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        SimModels { model: Arc::new(SimModel { world: world.clone(), node: node.clone() }) }
    }
}

impl Models for SimModels {
    fn resolve(&self, _: &Tenant, name: &str) -> Option<Arc<dyn Model>> {
        (name == "model").then(|| self.model.clone() as Arc<dyn Model>)
    }

    fn names(&self, tenant: &Tenant) -> Vec<String> {
        self.default_name(tenant).map(str::to_owned).into_iter().collect()
    }

    fn default_name(&self, _: &Tenant) -> Option<&str> {
        Some("model")
    }
}

/// An event of an answer, and the time until it comes. `None` never comes.
type Piece = (u64, Option<Result<ModelEvent, ModelError>>);

impl Model for SimModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        if self.node.is_dead() {
            return Box::pin(stream::pending());
        }
        self.world.log(
            &self.node.name,
            format_args!("calls the model, {} iteration {} attempt {}", request.run, request.iteration, request.attempt),
        );
        self.check(&request);
        let pieces = self.answer(&request);
        let node = self.node.clone();
        Box::pin(stream::unfold((pieces.into_iter(), node), |(mut pieces, node)| async move {
            let (delay, piece) = pieces.next()?;
            pass_ms(delay).await;
            node.wait_until_running().await;
            match piece {
                Some(piece) => Some((piece, (pieces, node))),
                None => std::future::pending().await,
            }
        }))
    }

    fn provider(&self) -> &str {
        "provider"
    }

    fn concurrency(&self) -> usize {
        2
    }
}

impl SimModel {
    /// S2: a process calls the model only under a valid lease, and only if a committed row owes the call.
    fn check(&self, request: &ModelRequest) {
        if !self.world.slots.lock().holds_lease(self.node.id) {
            let text = format!("{} calls the model for iteration {} of {} without a lease", self.node.name, request.iteration, request.run);
            self.world.break_promise("S2", text);
        }
        let Some(agent) = self.world.checks.lock().agent_of(request.run) else {
            return self.world.break_promise("S2", format_args!("the model is asked for {}, which is not recorded", request.run));
        };
        let found = self.world.data.run(&agent.tenant, request.run).now_or_never();
        let iteration = found.and_then(Result::ok).flatten().map_or(0, |view| view.state.iteration);
        if iteration < request.iteration {
            let text = format!("the model is called for iteration {} of {}, committed is {iteration}", request.iteration, request.run);
            self.world.break_promise("S2", text);
        }
    }

    fn answer(&self, request: &ModelRequest) -> Vec<Piece> {
        let world = &self.world;
        let is_retry = world.ledger.lock().said_429.remove(&(request.run, request.iteration));
        if is_retry && request.attempt > 1 {
            world.saw(Fact::RetryAfter429);
        }
        let delay = if world.is_calm() { world.between(10, 500) } else { world.between(10, 6_000) };
        let mut pieces = self.text(request, delay);
        if world.fault(world.options.provider, 100) {
            match world.between(0, 3) {
                0 => {
                    world.saw(Fact::StreamCut);
                    pieces.truncate(1);
                    pieces.push((1, Some(Err(failure("stream_cut", Retry::Backoff)))));
                }
                1 => {
                    world.saw(Fact::ModelStalled);
                    pieces.truncate(1);
                    pieces.push((1, None));
                }
                2 => {
                    world.ledger.lock().said_429.insert((request.run, request.iteration));
                    pieces = vec![(5, Some(Err(failure("rate_limited", Retry::AfterMs(world.between(10, 20_000))))))];
                }
                _ => {
                    let retry = if world.chance(1, 4) { Retry::Never } else { Retry::Backoff };
                    pieces = vec![(5, Some(Err(failure("overloaded", retry))))];
                }
            }
        }
        pieces
    }

    /// Text, then calls, or the end of the reply.
    fn text(&self, request: &ModelRequest, delay: u64) -> Vec<Piece> {
        let world = &self.world;
        let ends = request.iteration >= 4 || world.chance(2, 5);
        let mut pieces: Vec<Piece> = vec![(delay, Some(Ok(ModelEvent::Text(format!("lap {}", request.iteration)))))];
        let calls = if ends { 0 } else { world.between(1, 3) };
        for index in 0..calls {
            let tool = if world.chance(1, 40) { "nothing" } else { world.pick(&tools::NAMES) };
            let arguments = if world.chance(1, 40) { "half an obj" } else { "{}" };
            let call = RequestedCall { provider_id: format!("call_{index}"), tool: tool.into(), arguments: arguments.into() };
            pieces.push((world.between(0, 20), Some(Ok(ModelEvent::Call(call)))));
        }
        let usage = Usage { tokens_in: world.between(1, 20), tokens_out: world.between(1, 30), ..Usage::default() };
        pieces.push((0, Some(Ok(ModelEvent::Usage(usage)))));
        pieces
    }
}

fn failure(code: &str, retry: Retry) -> ModelError {
    ModelError { code: code.into(), cause: FailureCause::Other, message: "it did not work".into(), retry }
}
