//! Starting child runs: a call of an agent is a run of its own, with the agent's settings and at most the rights of the run that asked.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::{Value, value::RawValue};
use tokio::{sync::mpsc, task::AbortHandle};
use windlass_kernel::{
    AgentKey, AgentName, Budgets, CallKey, ItemKind, Manifest, Opening, ParentCall, RunId, Tenant,
    content::{self, Call},
};
use windlass_ports::{Lineage, MessageKind, RunScan, RunSet, RunView, StoreError, child_head, codec};

use crate::{
    api::EngineError,
    effects::read_call,
    engine::{Engine, Inner},
    messages,
    roster::RunOptions,
    submit::{NewTurn, enqueued},
    worker_message::{ChildStarted, EffectError, Refused, WorkerMessage},
};

/// The longest pause between attempts to record a child run while the store is unavailable.
const PAUSE_MS_MAX: u64 = 5_000;

/// Children that are read at once.
const PAGE: usize = 256;

/// A child run that is about to be started, from the committed row of its call.
pub(crate) struct ChildStart {
    pub tenant: Tenant,
    /// The id of the child run, which was drawn with the call.
    pub child: RunId,
    pub parent: ParentCall,
    /// The agent whose settings the child run has.
    pub agent: AgentName,
    /// What the child may use of the budgets of its parent.
    pub share: Budgets,
    /// The manifest of the parent.
    pub manifest: Arc<Manifest>,
    /// The content of the call, if it is in memory.
    pub content: Option<Bytes>,
}

/// Starts a child run. The worker of the parent gets the outcome.
pub(crate) fn start(inner: Arc<Inner>, start: ChildStart, mailbox: mpsc::Sender<WorkerMessage>) -> AbortHandle {
    let engine = inner.clone();
    let task = async move {
        let ParentCall { run, call, .. } = start.parent;
        let outcome = match AssertUnwindSafe(record(&inner, start)).catch_unwind().await {
            Ok(result) => result,
            Err(_) => Err(EffectError::Panicked),
        };
        let _ = mailbox.send(WorkerMessage::ChildStarted(Box::new(ChildStarted { run, call, outcome }))).await;
    };
    engine.tasks.spawn(task)
}

async fn record(inner: &Arc<Inner>, start: ChildStart) -> Result<(), EffectError<Refused>> {
    let engine = Engine::of(inner.clone());
    let mut pause_ms = 50;
    loop {
        // An earlier attempt may have taken longer than the lease.
        if !inner.lease.holds() {
            return Err(EffectError::NotStarted);
        }
        inner.crash.before_effect("child_start");
        let outcome = engine.start_child(&start).await;
        inner.crash.after_effect("child_start");
        match outcome {
            Ok(()) => return Ok(()),
            // The parent has ended meanwhile, or another server has it: its worker finds out.
            Err(StartError::Engine(EngineError::ParentGone | EngineError::Draining)) => return Err(EffectError::NotStarted),
            Err(StartError::Engine(EngineError::Store(StoreError::Unavailable(_)))) => {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
            }
            Err(StartError::Engine(error)) => {
                let message = format!("the agent {} could not be started: {error}", start.agent);
                return Err(EffectError::Failed(Refused { code: "agent_not_started", message }));
            }
            Err(StartError::Refused(refused)) => return Err(EffectError::Failed(refused)),
        }
    }
}

/// Why a child run is not on record.
enum StartError {
    Engine(EngineError),
    Refused(Refused),
}

impl<E> From<E> for StartError
where
    EngineError: From<E>,
{
    fn from(error: E) -> Self {
        StartError::Engine(error.into())
    }
}

fn refused<T>(code: &'static str, message: String) -> Result<T, StartError> {
    Err(StartError::Refused(Refused { code, message }))
}

impl Engine {
    /// The child runs of a run.
    pub(crate) async fn children_of(&self, tenant: &Tenant, parent: RunId) -> Result<Vec<RunId>, EngineError> {
        let (mut found, mut below) = (Vec::new(), None);
        loop {
            let scan = RunScan { set: RunSet::Children(parent), below, limit: PAGE };
            let page = self.views().scan_runs(tenant, &scan).await?;
            found.extend(page.runs.iter().map(|run| run.id));
            below = page.next;
            if below.is_none() {
                return Ok(found);
            }
        }
    }

    async fn start_child(&self, start: &ChildStart) -> Result<(), StartError> {
        let (inner, tenant) = (self.inner(), &start.tenant);
        // A start that was repeated after a crash finds the run, whatever has changed since.
        if self.views().run(tenant, start.child).await?.is_some() {
            return Ok(());
        }
        let parent = self.views().run(tenant, start.parent.run).await?.ok_or(EngineError::ParentGone)?;
        let agent = AgentKey { tenant: tenant.clone(), agent: start.agent.clone() };
        let Some(spec) = inner.roster.agent(tenant, &start.agent) else {
            return refused("unknown_agent", format!("there is no agent {} any more", start.agent));
        };
        let key = CallKey { run: start.parent.run, call: start.parent.call };
        let content = match &start.content {
            Some(content) => content.clone(),
            None => read_call(inner, tenant, key).await.or_else(|why| refused("unreadable_call", why))?,
        };
        let input = match task(&content, spec.parameters.is_some()) {
            Ok(input) => input,
            Err(message) => return refused("bad_arguments", message),
        };
        let offers = self.offers(tenant, &spec.tools).await?;
        let pinned = self.pin(&agent, RunOptions { offers, ..RunOptions::default() })?;
        let mut manifest = Manifest::clone(&pinned.manifest);
        manifest.narrow(&start.manifest);
        if start.share.cost.is_some() && manifest.budgets.cost.is_none() {
            // The parent's limit holds for the child too, whose cost must be known by the prices of its own model.
            let Ok(cost) = inner.roster.cost_budget(Some(u64::MAX), &manifest.model) else {
                let message = format!("the model {} of the agent has no price, and this run has a cost budget", manifest.model);
                return refused("unpriced_model", message);
            };
            manifest.budgets.cost = cost;
        }
        manifest.budgets = manifest.budgets.within(start.share);
        // Only the root of a tree waits for higher limits.
        manifest.budgets_park = false;
        let instruction = self.item(ItemKind::Instruction, content::encode(&content::Instruction::Text(input)))?;
        let new = NewTurn {
            agent: child_head(tenant, start.child),
            agent_name: Some(start.agent.clone()),
            kind: MessageKind::Turn,
            manifest: Arc::new(codec::pin_manifest(manifest)),
            dedupe: None,
            input: vec![instruction],
            parent: None,
            note: None,
            erase_ms: parent.erase_ms,
            takes: None,
            follows: None,
            child_of: Some(start.parent.clone()),
            conversation: None,
            request: None,
            at: inner.clock.now(),
        };
        let outcome = self.submit(start.child, new, lineage(&parent), Opening::Ask).await?;
        Ok(enqueued(start.child, outcome).map(drop)?)
    }
}

/// The place of a child in the execution graph: below the iteration that asked for it.
fn lineage(parent: &RunView) -> Lineage {
    let step = messages::step_id(parent.id, parent.state.iteration);
    Lineage { parent_step: Some(step), caller: None, ..parent.lineage.clone() }
}

/// What the child is asked: the text of `input`, or the whole arguments if its agent declares parameters of its own.
fn task(content: &[u8], has_parameters: bool) -> Result<String, String> {
    let call: Call = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if has_parameters {
        let arguments: &RawValue = serde_json::from_str(&call.arguments).map_err(|error| error.to_string())?;
        return Ok(arguments.get().to_owned());
    }
    let arguments: Value = serde_json::from_str(&call.arguments).map_err(|error| error.to_string())?;
    let input = arguments.get("input").and_then(Value::as_str).map(str::to_owned);
    input.ok_or_else(|| "the arguments must be {\"input\": \"what the agent is to do\"}; call again with that".to_owned())
}
