//! `POST /v1/responses`: starts the run of a request, or joins the run that an earlier sending of it started.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use windlass_engine::{Begun, EngineError, JoinGuard, ReaderGuard, Respond, Responded, Unread, Watch};
use windlass_kernel::{AgentName, RunId};
use windlass_ports::{Lineage, StoreError};

use super::{
    answered::answered,
    approval_answers,
    body::WireBody,
    chain, conversations,
    error::WireError,
    failed, hosted,
    join::{self, Found, Identity},
    manifest::{self, Pinned},
    note::{Note, Spelling},
    object::object,
    reader::{Known, ReadError, Reader},
    request::Create,
    request_identity::HistoryHash,
    stream::{self, Events, Unseen},
};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    in_flight::RequestBytes,
    request::trace_context,
    waiting::news_or_time,
};

/// The longest time between two reads of a run while a client waits for its end.
const WAIT: Duration = Duration::from_secs(1);

pub(super) async fn create(
    State(state): State<DoorState>,
    caller: Caller,
    headers: HeaderMap,
    Extension(in_flight): Extension<RequestBytes>,
    WireBody(body): WireBody,
) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let create = Create::read(&body)?;
    let identity = Identity::of_request(&caller, &headers, &body)?;
    let context = CreateContext::of(&caller, &headers, &create, identity);
    let started = start_or_join(&state, &context).await?;
    let (stream, background) = (create.stream, create.background);
    // The run has its own copy. Release the request's bytes before the wait, which may be long.
    drop(context);
    drop((create, body));
    in_flight.release();
    answer(&state, stream, background, started).await
}

/// What starting a response needs, whether the request came over HTTP or a socket.
pub(super) struct CreateContext<'a> {
    pub caller: &'a Caller,
    pub headers: &'a HeaderMap,
    pub create: &'a Create,
    pub identity: Identity,
    /// The response that this one continues. It differs from `create.previous` if that names a warm-up: then it is the response that the
    /// warm-up continues.
    pub from: Option<&'a str>,
    /// Responses with `store: false` that this one may still continue, because they were made on the same socket.
    pub own: &'a [RunId],
    /// How long a response with `store: false` is kept after its end, so that its socket can continue it.
    pub kept_ms: u64,
}

impl<'a> CreateContext<'a> {
    /// The context of an HTTP request, which shares no state with other requests.
    pub fn of(caller: &'a Caller, headers: &'a HeaderMap, create: &'a Create, identity: Identity) -> Self {
        CreateContext { caller, headers, create, identity, from: create.previous.as_deref(), own: &[], kept_ms: 0 }
    }
}

/// A request whose run exists, with the guard that registers its client as a reader of the run.
pub(super) struct StartedResponse {
    pub known: Known,
    /// Wakes when the run has ended or is parked.
    pub rests: Watch,
    pub unseen: Unseen,
    pub reader: ReaderGuard,
    /// The hash of the conversation before the response; `None` if later requests are not compared with it.
    pub history: Option<HistoryHash>,
}

/// Starts the run of a request, or finds the existing run that the request joins.
pub(super) async fn start_or_join(state: &DoorState, context: &CreateContext<'_>) -> Result<StartedResponse, WireError> {
    let CreateContext { caller, create, identity, .. } = context;
    if let Some(rest) = join::find_rest(state, caller, identity, &create.input).await? {
        let followed = earlier(state, caller, rest.run, &rest.fingerprint).await?;
        return Ok(attend(state, followed, identity, rest.unseen, rest.history));
    }
    let checked_runs = match join::find(state, caller, identity).await? {
        // The guard keeps other requests from joining the run until this client is registered as its reader.
        Found::Run(run, _guard) => {
            let followed = earlier(state, caller, run, &identity.fingerprint).await?;
            return Ok(attend(state, followed, identity, Unseen::default(), identity.history()));
        }
        Found::Repeated(run, _guard) => {
            let view = state.engine.views().run(caller.tenant(), run).await?;
            let known = view.and_then(Known::of).ok_or(ReadError::Gone)?;
            return Ok(attend(state, with_rests(state, known), identity, Unseen::default(), identity.history()));
        }
        Found::Nothing(checked_runs) => checked_runs,
    };
    // Admission comes first: reading the history and asking tool servers costs more.
    state.engine.admit_run(caller.tenant(), None).await?;
    let ((started, _guard), note) = start(state, context, checked_runs).await?;
    let Responded { run: id, agent, begun } = started;
    let followed = match begun {
        Some(begun) => {
            let Begun { manifest, at, rests, tail } = begun;
            (Known { id, agent, note: Arc::new(note), manifest, created_at: at, tail: Some(tail) }, rests)
        }
        None => earlier(state, caller, id, &identity.fingerprint).await?,
    };
    Ok(attend(state, followed, identity, Unseen::default(), identity.history()))
}

/// How often a request is prepared again because its conversation changed in the meantime.
const ATTEMPTS_MAX: usize = 8;

/// Prepares a request and starts its run. If the conversation changed between the two, it prepares the request again. `checked_runs` is the
/// number of candidate runs that were checked already and can't be joined.
async fn start(
    state: &DoorState,
    context: &CreateContext<'_>,
    checked_runs: usize,
) -> Result<((Responded, Option<JoinGuard>), Note), WireError> {
    for _ in 0..ATTEMPTS_MAX {
        let Prepared { request, note } = prepare(state, context).await?;
        match join::start(state, context.caller, &context.identity, checked_runs, request).await {
            Err(error) if error.code() == "conversation_moved" => {}
            started => return Ok((started?, note)),
        }
    }
    Err(EngineError::ConversationBusy.into())
}

/// A request that passed every check.
pub(super) struct Prepared {
    pub request: Respond,
    pub note: Note,
}

/// Checks a request and builds what starts its run. Stores nothing, but contacts the tool servers that the request uses.
pub(super) async fn prepare(state: &DoorState, context: &CreateContext<'_>) -> Result<Prepared, WireError> {
    let CreateContext { caller, headers, create, .. } = context;
    let (mut history, conversation) = match &create.conversation {
        None => (chain::history(state, caller, context.from, context.own).await?, None),
        Some(id) => {
            let (mut history, found) = conversations::history(state, caller, create, id).await?;
            chain::read_call_ids(state, caller, &mut history, &create.input).await?;
            (history, Some(found))
        }
    };
    let input = chain::input(state, caller, &mut history, &create.input).await?;
    // A run that only makes a summary makes no calls: deferred calls stay deferred.
    if create.compacts && history.deferred.as_ref().is_some_and(|deferred| approval_answers::has_answers(&deferred.calls)) {
        let message = "a request that only summarises the conversation makes no calls, so it can't answer a request for approval; answer it \
            in a request of its own";
        return Err(WireError::invalid("input", message).with_code("approval_not_taken"));
    }
    let deferred = history.deferred.filter(|_| !create.compacts);
    let Pinned { manifest, agent, serial } = manifest::pin(state, caller, create).await?;
    let note = Note {
        store: create.store,
        background: create.background,
        spelling: spelling(state, caller, headers, create),
        names: create.client_names.clone(),
        ignored_tools: hosted::ignored(headers, create)?,
        fingerprint: context.identity.fingerprint.clone(),
        ..Note::new(create.model.clone().unwrap_or_else(|| manifest.model.clone()), echo(create))
    };
    let request = Respond {
        tenant: caller.tenant().clone(),
        agent,
        serial,
        manifest,
        input,
        parent: history.parent,
        conversation,
        left: deferred,
        note: note.encode(),
        dedupe: None,
        request: context.identity.hash(),
        erase_ms: (!create.store).then_some(state.responses.erase_ms.max(context.kept_ms)),
        lineage: Lineage { source: Some(caller.name()), ..trace_context(headers)? },
    };
    Ok(Prepared { request, note })
}

fn attend(
    state: &DoorState,
    (known, rests): (Known, Watch),
    identity: &Identity,
    unseen: Unseen,
    history: Option<HistoryHash>,
) -> StartedResponse {
    let unread = if known.note.store { Unread::GoesOn } else { Unread::Stops };
    let reader = state.engine.attend(&known.agent, known.id, unread, identity.hash());
    StartedResponse { known, rests, unseen, reader, history }
}

/// The HTTP response: a stream of events, or the response object, at once if it runs in the background and at its end otherwise.
async fn answer(state: &DoorState, stream: bool, background: bool, started: StartedResponse) -> Result<Response, WireError> {
    let StartedResponse { known, rests, unseen, reader: guard, .. } = started;
    if stream {
        let events = Events::new(Reader::new(state, known, true), unseen, state.responses.heartbeat_ms);
        return Ok(stream::response(events, Some(guard)));
    }
    let is_found_again = known.tail.is_none();
    let mut reader = Reader::new(state, known, false);
    let read = match background {
        true => reader.catch_up().await,
        false => wait(&mut reader, rests).await,
    };
    read.map_err(|error| if is_found_again && matches!(error, ReadError::Gone) { spent() } else { error.into() })?;
    let response = match failed::without_output(&reader.projection).filter(|_| !background) {
        Some(error) => error.into_response(),
        None => answer::ok(&object(&reader.projection)),
    };
    Ok(answered(response, guard).await)
}

/// The run that an earlier request with the same key started. Refused if that request was a different one, or if the run was erased: it is
/// not started again, because its calls may have been writes.
async fn earlier(state: &DoorState, caller: &Caller, id: RunId, fingerprint: &str) -> Result<(Known, Watch), WireError> {
    let view = state.engine.views().run(caller.tenant(), id).await?;
    let known = view.and_then(Known::of).ok_or_else(spent)?;
    if known.note.fingerprint == fingerprint {
        return Ok(with_rests(state, known));
    }
    let message = "this Idempotency-Key was used for another request; use a fresh key for a new one";
    Err(WireError::conflict("idempotency_key_reused", message).at("Idempotency-Key"))
}

/// Adds a watch that wakes when the run has ended or is parked, also if that happened before this request.
fn with_rests(state: &DoorState, known: Known) -> (Known, Watch) {
    let rests = state.engine.watch_settled(&known.agent).from_before();
    (known, rests)
}

fn spent() -> WireError {
    let message = "the response that this Idempotency-Key was used for was deleted or erased; use a fresh key for a new one";
    WireError::conflict("idempotency_key_spent", message).at("Idempotency-Key")
}

/// Waits until the response has ended, or is parked and needs a person's decision. The reader is up to date on return. A store that is
/// unavailable is asked again; every other error ends the wait.
pub(super) async fn wait(reader: &mut Reader, mut rests: Watch) -> Result<(), ReadError> {
    loop {
        news_or_time(&mut rests, WAIT).await;
        let read = match reader.catch_up().await {
            Ok(()) if reader.projection.is_over() || reader.projection.is_parked => return Ok(()),
            Ok(()) => reader.check_not_erased().await,
            Err(error) => Err(error),
        };
        match read {
            Ok(()) => {}
            Err(ReadError::Store(StoreError::Unavailable(why))) => tracing::warn!(why = why.as_str(), "a response waits for the store"),
            Err(error) => return Err(error),
        }
    }
}

/// The fields of the request that the response object repeats, with their defaults.
pub(super) fn echo(create: &Create) -> Map<String, Value> {
    let sampling = &create.sampling;
    let fields = json!({
        "previous_response_id": create.previous,
        "instructions": create.instructions,
        "tool_choice": create.echo.tool_choice,
        "truncation": sampling.truncation.unwrap_or("disabled"),
        "parallel_tool_calls": create.parallel_tool_calls,
        "text": create.echo.text,
        "top_p": sampling.top_p.unwrap_or(1.0),
        "presence_penalty": sampling.presence_penalty.unwrap_or(0.0),
        "frequency_penalty": sampling.frequency_penalty.unwrap_or(0.0),
        "top_logprobs": sampling.top_logprobs.unwrap_or(0),
        "temperature": sampling.temperature.unwrap_or(1.0),
        "reasoning": create.echo.reasoning,
        "max_output_tokens": create.max_output_tokens,
        "max_tool_calls": create.max_tool_calls,
        "service_tier": sampling.service_tier.filter(|tier| *tier != "auto").unwrap_or("default"),
        "metadata": create.metadata,
        "safety_identifier": sampling.safety_identifier,
        "prompt_cache_key": sampling.prompt_cache_key,
        "user": sampling.user,
    });
    match fields {
        Value::Object(mut fields) => {
            if let Some(id) = &create.conversation {
                fields.insert("conversation".into(), json!({ "id": id }));
            }
            fields
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The wire variants that the request's headers and `include` ask for.
fn spelling(state: &DoorState, caller: &Caller, headers: &HeaderMap, create: &Create) -> Spelling {
    let header = |name: &str, value: &str| headers.get(name).is_some_and(|given| given.as_bytes().eq_ignore_ascii_case(value.as_bytes()));
    let included = |value: &str| create.include.iter().any(|given| given == value);
    let standard = match headers.get("windlass-status") {
        Some(value) => value.as_bytes().eq_ignore_ascii_case(b"standard"),
        None => caller.standard_status().unwrap_or(state.responses.standard_status),
    };
    Spelling {
        pairs: header("windlass-items", "pairs") || included("windlass:function_pairs"),
        lifecycle: header("windlass-events", "lifecycle") || included("windlass:lifecycle_events"),
        standard,
        sealed: included("reasoning.encrypted_content"),
        raw: included("windlass:raw_reasoning"),
    }
}

/// The agent that a model name refers to, as in `agent/NAME`.
pub(super) fn agent_of(model: &str) -> Option<AgentName> {
    model.strip_prefix("agent/").filter(|name| !name.is_empty()).map(AgentName::from)
}
