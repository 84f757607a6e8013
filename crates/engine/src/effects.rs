//! Model calls and tool calls of this process. Each runs in a task of its own and sends its outcome to its worker's mailbox.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{sync::mpsc, task::AbortHandle};
use windlass_kernel::{
    AgentKey, BoxRange, CallKey, Epoch, FailureCause, FailureCode, Manifest, ModelCallId, Remote, Reply, RunId, Spent, Tenant, Timestamp,
    ToolChoice, ToolName, ToolServer, content::Call, parameters::Parameters,
};
use windlass_ports::{Executor, Item, Model, ModelError, ModelRequest, ModelTool, Retry, StoreError, ToolCall, ToolReport, ToolServers};

use crate::{
    compaction::{PromptPlan, SUMMARY_BYTES_MAX},
    engine::Inner,
    failover::ModelChoice,
    gather::{self, Limits, Replay, ReplyError, Streamer},
    prompt,
    prompt_size::PromptTooLarge,
    stream_buffer::StreamBuffer,
    token_meter::TokenMeter,
    watched::{self, Attempt},
    worker_message::{EffectError, ModelDone, ToolDone, WorkerMessage},
};

/// A model call that is about to be made.
pub(crate) struct ModelCall {
    pub agent: AgentKey,
    /// The agent as operators know it.
    pub agent_id: AgentKey,
    pub epoch: Epoch,
    pub run: RunId,
    pub id: ModelCallId,
    pub manifest: Arc<Manifest>,
    pub tools: Arc<[ModelTool]>,
    pub output: BoxRange,
    /// What kind of call it is, and how its prompt is measured.
    pub plan: PromptPlan,
    /// The buffer for its streamed text, if the run streams.
    pub buffer: Option<Arc<StreamBuffer>>,
    /// The items of its prompt, if they are in memory.
    pub context: Option<Vec<Item>>,
    /// How long the call may take once it has a permit.
    pub deadline: Duration,
    /// How long the call may take in all, waiting for a permit included: the rest of the run's wall time budget.
    pub patience: Duration,
}

/// Starts a model call, whose outcome is sent to the worker.
pub(crate) fn start_model(inner: Arc<Inner>, call: ModelCall, mailbox: mpsc::Sender<WorkerMessage>) -> AbortHandle {
    let engine = inner.clone();
    let task = async move {
        let (run, id, patience) = (call.run, call.id, call.patience);
        let attempted = Attempt { agent: call.agent_id.clone(), run, epoch: call.epoch, id };
        let (manifest, tools, plan) = (call.manifest.clone(), call.tools.clone(), call.plan);
        let mut observed = CallObservation::default();
        let asked = AssertUnwindSafe(ask(&inner, call, &mut observed, &mailbox)).catch_unwind();
        let mut outcome = match tokio::time::timeout(patience, asked).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(EffectError::Panicked),
            Err(_) => Err(EffectError::Failed(too_slow())),
        };
        let CallObservation { context, meter } = observed;
        let prompt = || context.as_ref().map_or(0, |items| plan.tokens(&manifest, items, &tools));
        let spent = match &mut outcome {
            Ok(reply) => {
                let earlier = meter.spent_earlier(prompt);
                reply.usage.add(earlier.usage);
                reply.lost = earlier.lost;
                // A model in this process answers at once. That is not worth a field in every journal.
                reply.model.first_token_ms = meter.first_token_ms().filter(|ms| *ms > 0);
                Spent::default()
            }
            Err(_) => meter.spent(prompt),
        };
        attempted.observe(&inner, &manifest.model, &outcome, &spent, &meter);
        let _ = mailbox.send(WorkerMessage::ModelDone(Box::new(ModelDone { run, id, context, spent, outcome }))).await;
    };
    engine.tasks.spawn(task)
}

/// What is observed of a model call, also when it fails or panics.
#[derive(Default)]
struct CallObservation {
    /// The items of the prompt.
    context: Option<Vec<Item>>,
    meter: TokenMeter,
}

async fn ask(
    inner: &Arc<Inner>,
    call: ModelCall,
    observed: &mut CallObservation,
    mailbox: &mpsc::Sender<WorkerMessage>,
) -> Result<Reply, EffectError<ModelError>> {
    let items = match call.context {
        Some(items) => match inner.prompt_excess(&items) {
            Some(excess) => return Err(EffectError::Failed(too_large(excess))),
            None => items,
        },
        None => read_prompt(inner, &call.agent.tenant, call.output).await.map_err(EffectError::Failed)?,
    };
    let plan = call.plan;
    let mut messages = prompt::messages(&items, &call.manifest, plan.kept_bytes_max());
    observed.context = Some(items);
    let meter = &mut observed.meter;
    let model = model_of(inner, &call.agent.tenant, &call.manifest.model, call.id.attempt)?;
    if let Some((tokens, context)) = plan.excess_tokens(&call.manifest, &messages, &call.tools) {
        let message = format!("there are about {tokens} tokens to read, and {context} fit");
        return Err(EffectError::Failed(failure(FailureCode::ContextLengthExceeded, FailureCause::TooLong, &message, Retry::Never)));
    }
    if plan.is_summary {
        messages = plan.summary_prompt(messages);
    }
    let _permit = watched::permit(inner, model.as_ref(), &call.manifest.model, &call.agent.tenant).await;
    // Reading the prompt and waiting for a permit may have taken longer than the lease.
    if !inner.lease.holds() {
        return Err(EffectError::NotStarted);
    }
    inner.crash.before_effect("model_call");
    meter.start(inner.clock.now());
    let parameters = match plan.is_summary {
        // A summary is another answer than the one that the request wants in this form.
        true => call.manifest.parameters.as_ref().map(Parameters::without_form),
        false => call.manifest.parameters.clone(),
    };
    let request = ModelRequest {
        model: call.manifest.model.clone(),
        run: call.run,
        iteration: call.id.iteration,
        attempt: call.id.attempt,
        instructions: call.manifest.instructions.clone(),
        messages,
        tools: if plan.is_summary { Arc::new([]) } else { call.tools },
        choice: if plan.is_summary { ToolChoice::Auto } else { call.manifest.choice.clone() },
        one_call: call.manifest.one_call,
        parameters: parameters.map(Arc::new),
        prefill: None,
    };
    let bytes = if plan.is_summary { SUMMARY_BYTES_MAX } else { usize::MAX };
    let limits = Limits { bytes: inner.settings.reply_bytes_max.min(bytes), calls: inner.settings.calls_per_iteration_max };
    let streamer = call.buffer.map(|buffer| Streamer {
        inner: inner.clone(),
        agent: call.agent,
        run: call.run,
        epoch: call.epoch,
        id: call.id,
        buffer,
        heartbeats_only: plan.is_summary,
        mailbox: mailbox.clone(),
    });
    let reply = async {
        match streamer {
            Some(streamer) => stream_answer(model.as_ref(), request, limits, streamer, meter).await,
            None => gather::gather(model.call(request), limits, inner.clock.as_ref(), meter).await,
        }
    };
    let reply = tokio::time::timeout(call.deadline, reply).await;
    inner.crash.after_effect("model_call");
    reply.unwrap_or_else(|_| Err(ReplyError::Failed(too_slow()))).map_err(|why| match why {
        ReplyError::Failed(error) => EffectError::Failed(error),
        ReplyError::ReplayMismatch => EffectError::ReplayMismatch,
        ReplyError::Closed => EffectError::NotStarted,
    })
}

/// Reads the items of a prompt from the store, unless they are over the limit of one prompt. In that case no content is read.
async fn read_prompt(inner: &Inner, tenant: &Tenant, prompt: BoxRange) -> Result<Vec<Item>, ModelError> {
    match inner.stored_prompt_excess(tenant, prompt).await {
        Ok(None) => inner.prompt_items(tenant, prompt).await.map_err(|error| unreadable(&error)),
        Ok(Some(excess)) => Err(too_large(excess)),
        Err(error) => Err(unreadable(&error)),
    }
}

/// The model that makes this attempt. It may have been removed from the configuration since the run started.
fn model_of(inner: &Inner, tenant: &Tenant, name: &str, attempt: u32) -> Result<Arc<dyn Model>, EffectError<ModelError>> {
    let choice = ModelChoice::of(inner.models.as_ref(), tenant, name, attempt, inner.settings.attempts_max);
    let gone =
        || EffectError::Failed(failure(FailureCode::UnknownModel, FailureCause::Other, "the model is no longer configured", Retry::Never));
    choice.map(|choice| choice.model).ok_or_else(gone)
}

/// Streams an answer. A model that does not repeat the text streamed before is called again with that text as a prefill, if it accepts
/// one.
async fn stream_answer(
    model: &dyn Model,
    request: ModelRequest,
    limits: Limits,
    streamer: Streamer,
    meter: &mut TokenMeter,
) -> Result<Reply, ReplyError> {
    let streamed = streamer.buffer.streamed_text().text;
    if streamed.is_empty() || !model.takes_prefill(&streamed) {
        return gather::stream_answer(model.call(request), Replay::FromStart, limits, streamer, meter).await;
    }
    match gather::stream_answer(model.call(request.clone()), Replay::FromStart, limits, streamer.clone(), meter).await {
        Err(ReplyError::ReplayMismatch) => {}
        reply => return reply,
    }
    meter.next_call();
    meter.start(streamer.inner.clock.now());
    let request = ModelRequest { prefill: Some(streamed), ..request };
    gather::stream_answer(model.call(request), Replay::AfterPrefix, limits, streamer, meter).await.map_err(|why| match why {
        // A model that refuses the prefill cannot continue the text.
        ReplyError::Failed(ModelError { retry: Retry::Never, .. }) => ReplyError::ReplayMismatch,
        ReplyError::Failed(_) | ReplyError::ReplayMismatch | ReplyError::Closed => why,
    })
}

/// A tool call that is about to be started, from its committed row.
pub(crate) struct ToolStart {
    pub tenant: Tenant,
    pub key: CallKey,
    /// How often the call was repeated after a reported failure.
    pub retry: u32,
    pub tool: ToolName,
    /// The server that offers the tool, if one does.
    pub remote: Option<(ToolServer, Remote)>,
    pub deadline: Timestamp,
    /// The content of the call, if it is in memory.
    pub content: Option<Bytes>,
}

/// Starts a tool of this process, whose outcome is sent to the worker.
pub(crate) fn start_tool(inner: Arc<Inner>, start: ToolStart, mailbox: mpsc::Sender<WorkerMessage>) -> AbortHandle {
    let engine = inner.clone();
    let task = async move {
        let CallKey { run, call } = start.key;
        let outcome = match AssertUnwindSafe(run_tool(&inner, start)).catch_unwind().await {
            Ok(result) => result,
            Err(_) => Err(EffectError::Panicked),
        };
        let _ = mailbox.send(WorkerMessage::ToolDone(Box::new(ToolDone { run, call, outcome }))).await;
    };
    engine.tasks.spawn(task)
}

async fn run_tool(inner: &Inner, start: ToolStart) -> Result<ToolReport, EffectError<String>> {
    let content = match start.content {
        Some(content) => content,
        None => read_call(inner, &start.tenant, start.key).await.map_err(EffectError::Failed)?,
    };
    let call: Call = serde_json::from_slice(&content).map_err(|error| EffectError::Failed(error.to_string()))?;
    let gone = || EffectError::Failed(format!("nobody runs the tool {} any more", start.tool));
    let runner = match start.remote {
        Some((server, remote)) => Runner::Server(inner.servers.as_ref().ok_or_else(gone)?, server, remote),
        None => Runner::Executor(inner.roster.executor(&start.tool).ok_or_else(gone)?),
    };
    // Reading the call may have taken longer than the lease.
    if !inner.lease.holds() {
        return Err(EffectError::NotStarted);
    }
    inner.crash.before_effect("tool_start");
    let ToolStart { tenant, key, retry, tool, deadline, .. } = start;
    let call = ToolCall { tenant, key, retry, tool, arguments: call.arguments, deadline };
    let report = match runner {
        Runner::Server(servers, server, remote) => servers.run(&server, &remote.name, call).await,
        Runner::Executor(executor) => executor.run(call).await,
    };
    inner.crash.after_effect("tool_start");
    Ok(report)
}

/// What runs a call in this process.
enum Runner<'a> {
    Server(&'a Arc<dyn ToolServers>, ToolServer, Remote),
    Executor(&'a Arc<dyn Executor>),
}

pub(crate) async fn read_call(inner: &Inner, tenant: &Tenant, key: CallKey) -> Result<Bytes, String> {
    let unreadable = |error: StoreError| error.to_string();
    let rows = inner.views.calls(tenant, key.run, key.call, 1).await.map_err(unreadable)?;
    let row = rows.into_iter().find(|row| row.call == key.call).ok_or("the call is not in the store")?;
    let item = inner.views.item(tenant, row.item).await.map_err(unreadable)?.ok_or("the call has no content")?;
    Ok(item.content)
}

fn unreadable(error: &StoreError) -> ModelError {
    failure(FailureCode::ContextUnreadable, FailureCause::Other, &error.to_string(), Retry::Backoff)
}

fn too_large(excess: PromptTooLarge) -> ModelError {
    failure(FailureCode::PromptTooLarge, FailureCause::TooLong, &excess.to_string(), Retry::Never)
}

fn too_slow() -> ModelError {
    let message = "the model took too long; see limits.model_deadline, and budgets.wall_time of the agent";
    failure(FailureCode::ModelTimeout, FailureCause::TimedOut, message, Retry::Backoff)
}

fn failure(code: FailureCode, cause: FailureCause, message: &str, retry: Retry) -> ModelError {
    ModelError { code, cause, message: message.to_owned(), retry }
}
