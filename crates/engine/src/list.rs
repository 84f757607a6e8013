//! Lists of runs: which runs match, what state each is in, and why it waits.

use futures_util::future::join_all;
use windlass_kernel::{AgentName, Cause, Event, HeadStatus, OpenCall, Phase, Route, Run, RunId, TaskStatus, Tenant, Timestamp};
use windlass_ports::{JournalEntry, ListedRun, RunScan, RunSet, RunStatus, RunView, StoreError};

use crate::engine::Engine;

/// The largest number of rows that one request reads. A filter that few runs match gives short pages, with a cursor for the rest.
const ROWS_READ_MAX: usize = 2_000;
/// Rows that are read with one query.
const ROWS_AT_ONCE: usize = 200;
/// Ids are made by a server's clock, and stored times come from the store's clock. The two may differ by this much.
const CLOCK_SKEW_MS: u64 = 60_000;
/// The number of last journal entries that are searched for the beginning of a wait.
const LAST_ENTRIES: u64 = 32;
/// The number of tools that the description of a wait names.
const TOOLS_NAMED_MAX: usize = 3;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It waits for the runs before it on its head.
    Queued,
    /// A model call is in progress, or will be made after a pause.
    Thinking,
    /// Tool calls are in progress.
    Waiting,
    /// A person must decide something.
    Parked,
    /// The run has ended.
    Ended,
}

impl RunState {
    /// All states.
    pub const ALL: [RunState; 5] = [RunState::Queued, RunState::Thinking, RunState::Waiting, RunState::Parked, RunState::Ended];

    /// The state as the APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Thinking => "thinking",
            RunState::Waiting => "waiting",
            RunState::Parked => "parked",
            RunState::Ended => "ended",
        }
    }

    /// Reads what `as_str` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The state of a run.
    pub fn of(status: RunStatus, run: &Run) -> Self {
        match (&run.phase, status) {
            (Phase::Ended { .. }, _) | (_, RunStatus::Ended) => RunState::Ended,
            (_, RunStatus::Queued) => RunState::Queued,
            (_, RunStatus::Active) if run.is_interrupted() => RunState::Parked,
            (Phase::Accepted | Phase::Thinking { .. }, RunStatus::Active) => RunState::Thinking,
            (Phase::Waiting { .. }, RunStatus::Active) => RunState::Waiting,
        }
    }

    /// The state of a listed run. An unreadable run counts as parked, because a person must decide about it.
    pub fn of_listed(run: &ListedRun) -> Self {
        match (&run.view, run.status) {
            (Some(view), status) => Self::of(status, &view.state),
            (None, RunStatus::Ended) => RunState::Ended,
            (None, RunStatus::Queued) => RunState::Queued,
            (None, RunStatus::Active) => RunState::Parked,
        }
    }
}

/// Why a run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// For the runs before it.
    Queued,
    /// For the pause before the next attempt of a model call.
    ModelRetry,
    /// For calls that the server runs.
    ToolCall,
    /// For calls that a worker claims and reports.
    ExternalCall,
    /// For child runs.
    Child,
    /// For a person: a rule demands approval of a call.
    Approval,
    /// For a person: the model asks something.
    Question,
    /// For a person: it is unknown whether a write took effect.
    UnknownOutcome,
    /// For a person: a budget is used up.
    Budget,
    /// For a person: the run has lost too many servers.
    OwnersLost,
    /// For a person: a step of the run panicked.
    Panicked,
    /// For a person: the stored state of the run is unreadable.
    Unreadable,
}

impl WaitKind {
    /// The wait for a person's decision with that cause.
    fn of(cause: Cause) -> Self {
        match cause {
            Cause::Approval => WaitKind::Approval,
            Cause::Question => WaitKind::Question,
            Cause::UnknownOutcome => WaitKind::UnknownOutcome,
            Cause::Budget => WaitKind::Budget,
            Cause::OwnersLost => WaitKind::OwnersLost,
            Cause::Panicked => WaitKind::Panicked,
        }
    }

    /// The kind as the APIs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitKind::Queued => "queued",
            WaitKind::ModelRetry => "model_retry",
            WaitKind::ToolCall => "tool_call",
            WaitKind::ExternalCall => "external_call",
            WaitKind::Child => "child",
            WaitKind::Approval => "approval",
            WaitKind::Question => "question",
            WaitKind::UnknownOutcome => "unknown_outcome",
            WaitKind::Budget => "budget",
            WaitKind::OwnersLost => "owners_lost",
            WaitKind::Panicked => "panicked",
            WaitKind::Unreadable => "unreadable",
        }
    }
}

/// What a run waits for, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The reason for the wait.
    pub kind: WaitKind,
    /// The tools, the model or the run that it waits for.
    pub what: Option<String>,
    /// When the wait began, if the journal shows it.
    pub since: Option<Timestamp>,
    /// When the wait ends by itself.
    pub until: Option<Timestamp>,
}

/// The conditions that the runs of a list must meet. A field that is not set excludes no run.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// The run is in this state.
    pub state: Option<RunState>,
    /// The run's agent has this name.
    pub agent: Option<AgentName>,
    /// The run is a child run of this one.
    pub parent: Option<RunId>,
    /// The run has ended with this status.
    pub outcome: Option<TaskStatus>,
    /// The run was accepted at this time or later.
    pub since: Option<Timestamp>,
    /// The run was accepted before this time.
    pub until: Option<Timestamp>,
    /// The run's id, agent or instruction contains this text, ignoring case.
    pub text: Option<String>,
    /// The run is older than this one.
    pub after: Option<RunId>,
    /// The largest number of runs on the list.
    pub limit: usize,
}

/// A run on a list, with what it waits for and its title.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The run.
    pub run: ListedRun,
    /// The state of the run.
    pub state: RunState,
    /// What the run waits for, if it waits.
    pub wait: Option<Wait>,
    /// The first line of the run's newest instruction.
    pub title: Option<String>,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct RunList {
    /// The runs, newest first.
    pub runs: Vec<RunEntry>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<RunId>,
}

impl Engine {
    /// The runs of a tenant that match a filter, newest first.
    pub async fn list_runs(&self, tenant: &Tenant, filter: &RunFilter) -> Result<RunList, StoreError> {
        let set = match (filter.parent, &filter.agent, filter.state) {
            (Some(parent), ..) => RunSet::Children(parent),
            (None, Some(agent), _) => RunSet::Named(agent.clone()),
            (None, None, Some(RunState::Queued | RunState::Thinking | RunState::Waiting | RunState::Parked)) => RunSet::Open,
            (None, None, Some(RunState::Ended) | None) => RunSet::All,
        };
        let mut below = lesser(filter.after, filter.until.map(|until| first_id_at(until.plus_ms(CLOCK_SKEW_MS))));
        let (mut found, mut read) = (Vec::new(), 0);
        loop {
            let wanted = (filter.limit - found.len()).max(1);
            let limit = if filter.is_narrow() { ROWS_AT_ONCE } else { wanted };
            let page = self.views().scan_runs(tenant, &RunScan { set: set.clone(), below, limit }).await?;
            read += limit;
            let mut candidates = Vec::new();
            let mut is_end = false;
            for run in page.runs {
                is_end = is_too_old(&run, filter);
                if is_end || (filter.text.is_none() && candidates.len() == wanted) {
                    break;
                }
                candidates.extend(Some(run).filter(|run| filter.fits(run)));
            }
            // The queries about each of the candidates run concurrently.
            for entry in join_all(candidates.into_iter().map(|run| self.entry(tenant, run, filter))).await {
                found.extend(entry?);
                if found.len() == filter.limit {
                    let next = found.last().map(|entry| entry.run.id);
                    return Ok(RunList { runs: found, next });
                }
            }
            if is_end {
                return Ok(RunList { runs: found, next: None });
            }
            match page.next {
                None => return Ok(RunList { runs: found, next: None }),
                Some(next) if read >= ROWS_READ_MAX => return Ok(RunList { runs: found, next: Some(next) }),
                Some(next) => below = Some(next),
            }
        }
    }

    /// The list entry of one run.
    pub async fn run_entry(&self, tenant: &Tenant, view: RunView) -> Result<RunEntry, StoreError> {
        let title = self.title(tenant, &view).await?;
        let run = ListedRun {
            id: view.id,
            agent: view.agent.clone(),
            agent_name: view.agent_name.clone(),
            status: view.status,
            created_at: view.created_at,
            ended_at: view.ended_at,
            view: Some(view),
        };
        let wait = self.wait(tenant, &run).await?;
        Ok(RunEntry { state: RunState::of_listed(&run), run, wait, title })
    }

    /// The entry of a run that fits the filter. `None` if it does not contain the text that is searched for.
    async fn entry(&self, tenant: &Tenant, run: ListedRun, filter: &RunFilter) -> Result<Option<RunEntry>, StoreError> {
        let title = match &run.view {
            Some(view) => self.title(tenant, view).await?,
            None => None,
        };
        if filter.text.as_deref().is_some_and(|text| !contains(&run, title.as_deref(), text)) {
            return Ok(None);
        }
        let wait = self.wait(tenant, &run).await?;
        Ok(Some(RunEntry { state: RunState::of_listed(&run), run, wait, title }))
    }

    async fn title(&self, tenant: &Tenant, view: &RunView) -> Result<Option<String>, StoreError> {
        let content = self.views().instruction(tenant, view.state.context.id).await?;
        Ok(content.and_then(|content| crate::title::title(&content)))
    }

    async fn wait(&self, tenant: &Tenant, run: &ListedRun) -> Result<Option<Wait>, StoreError> {
        let Some(view) = &run.view else {
            let is_open = run.status != RunStatus::Ended;
            return Ok(is_open.then_some(Wait { kind: WaitKind::Unreadable, what: None, since: None, until: None }));
        };
        if RunState::of(view.status, &view.state) == RunState::Queued {
            let head = self.views().head(&view.agent).await?;
            let before = head.filter(|head| head.status != HeadStatus::Idle).and_then(|head| head.run);
            let what = before.filter(|before| *before != view.id).map(|run| run.to_string());
            return Ok(Some(Wait { kind: WaitKind::Queued, what, since: Some(view.created_at), until: None }));
        }
        let Some(wait) = wait_of(view, self.now()) else { return Ok(None) };
        let from = view.state.next_number.saturating_sub(LAST_ENTRIES);
        let entries = self.views().journal(tenant, view.id, from, LAST_ENTRIES as usize).await?;
        Ok(Some(Wait { since: began(wait.kind, &entries), ..wait }))
    }
}

impl RunFilter {
    /// Whether a run fits, judged by its row alone. The text is compared later, because that needs another query.
    fn fits(&self, run: &ListedRun) -> bool {
        let outcome = run.view.as_ref().and_then(|view| outcome(&view.state));
        self.state.is_none_or(|wanted| wanted == RunState::of_listed(run))
            && self.outcome.is_none_or(|wanted| outcome == Some(wanted))
            && self.since.is_none_or(|since| run.created_at >= since)
            && self.until.is_none_or(|until| run.created_at < until)
            && self.agent.as_ref().is_none_or(|agent| run.agent_name.as_ref() == Some(agent))
            // The set of the children has those, too, that are in no list.
            && (self.parent.is_none() || !run.view.as_ref().is_some_and(|view| view.unlisted))
    }

    /// Whether the filter may exclude runs of the set that is read.
    fn is_narrow(&self) -> bool {
        (self.parent.is_some() && self.agent.is_some())
            || self.state.is_some()
            || self.outcome.is_some()
            || self.text.is_some()
            || self.since.is_some()
            || self.until.is_some()
    }
}

/// What an active run waits for, according to its state.
fn wait_of(view: &RunView, now: Timestamp) -> Option<Wait> {
    let wait = |kind, what, until| Some(Wait { kind, what, since: None, until });
    if let Some(hold) = view.state.hold() {
        let what = hold.budget.map(|passed| passed.breach.kind.as_str().to_owned());
        return wait(WaitKind::of(hold.cause), what, hold.until);
    }
    match &view.state.phase {
        Phase::Thinking { not_before: Some(at), .. } if *at > now => {
            wait(WaitKind::ModelRetry, Some(view.manifest.model.clone()), Some(*at))
        }
        Phase::Waiting { calls } => {
            let of = |is_wanted: &dyn Fn(&OpenCall) -> bool| tools(calls.iter().filter(|call| is_wanted(call)));
            let until = view.state.resume_deadline();
            let is_open = |call: &OpenCall, route: Route| view.state.is_free(call) && call.route == route;
            let held = view.state.interrupts.iter().map(|open| open.cause).min();
            let parked = of(&|call| view.state.call_hold(call.call).is_some_and(|open| Some(open.cause) == held));
            let external = of(&|call| is_open(call, Route::External));
            let own = of(&|call| is_open(call, Route::InProcess));
            let children = of(&|call| is_open(call, Route::Child));
            match (parked, external, own, children) {
                (Some(tools), ..) => wait(held.map_or(WaitKind::UnknownOutcome, WaitKind::of), Some(tools), until),
                (None, Some(tools), ..) => wait(WaitKind::ExternalCall, Some(tools), until),
                (None, None, Some(tools), _) => wait(WaitKind::ToolCall, Some(tools), until),
                (None, None, None, Some(tools)) => wait(WaitKind::Child, Some(tools), until),
                (None, None, None, None) => None,
            }
        }
        Phase::Thinking { .. } | Phase::Accepted | Phase::Ended { .. } => None,
    }
}

/// The names of the called tools, shortened to a few. `None` if there is no call.
fn tools<'a>(calls: impl Iterator<Item = &'a OpenCall>) -> Option<String> {
    let mut names: Vec<&str> = calls.map(|call| call.tool.as_str()).collect();
    names.dedup();
    let more = names.len().saturating_sub(TOOLS_NAMED_MAX);
    names.truncate(TOOLS_NAMED_MAX);
    let text = names.join(", ");
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(text),
        (false, more) => Some(format!("{text} and {more} more")),
    }
}

/// When a wait of that kind began, according to the last entries of the journal.
fn began(kind: WaitKind, entries: &[JournalEntry]) -> Option<Timestamp> {
    let begins = |event: &Event| match kind {
        WaitKind::ModelRetry => matches!(event, Event::AttemptFailed { .. }),
        WaitKind::ToolCall | WaitKind::ExternalCall | WaitKind::Child => {
            matches!(event, Event::Replied { .. } | Event::CallsInherited { .. } | Event::ActionStarted { .. })
        }
        WaitKind::UnknownOutcome => matches!(event, Event::Interrupted(_) | Event::CallParked { .. }),
        WaitKind::Approval | WaitKind::Question | WaitKind::Budget => matches!(event, Event::Interrupted(_)),
        WaitKind::OwnersLost | WaitKind::Panicked => matches!(event, Event::Interrupted(_) | Event::Parked { .. }),
        WaitKind::Queued | WaitKind::Unreadable => false,
    };
    entries.iter().rev().find(|entry| begins(&entry.event)).map(|entry| entry.at)
}

/// How a run ended, if it has.
fn outcome(run: &Run) -> Option<TaskStatus> {
    match &run.phase {
        Phase::Ended { status, .. } => Some(*status),
        Phase::Accepted | Phase::Thinking { .. } | Phase::Waiting { .. } => None,
    }
}

fn contains(run: &ListedRun, title: Option<&str>, text: &str) -> bool {
    let text = text.to_lowercase();
    let is_in = |place: &str| place.to_lowercase().contains(&text);
    run.id.to_string().contains(&text) || run.agent_name.as_ref().is_some_and(|name| is_in(name.as_str())) || title.is_some_and(is_in)
}

/// Whether the run, and with it every older one, was accepted before `filter.since`.
fn is_too_old(run: &ListedRun, filter: &RunFilter) -> bool {
    filter.since.is_some_and(|since| run.created_at.plus_ms(CLOCK_SKEW_MS) < since)
}

/// The lowest id that can be given at a time: ids begin with the millisecond at which they were made.
fn first_id_at(at: Timestamp) -> RunId {
    let ms = u64::try_from(at.0).unwrap_or(0).min((1 << 48) - 1);
    RunId(uuid::Uuid::from_u128(u128::from(ms) << 80))
}

fn lesser(a: Option<RunId>, b: Option<RunId>) -> Option<RunId> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
