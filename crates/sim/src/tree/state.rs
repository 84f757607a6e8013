//! The rows and the processes of a world, and the steps that change them.

use windlass_kernel::{
    AfterExecution, AgentName, BoxId, BoxRange, Budgets, CallNumber, Effect, EffectClass, Event, Input, ItemId, Manifest, Moment, Opening,
    Origin, ParentCall, Reply, Report, ReportCause, RequestedCall, Route, Run, RunId, StreamedText, TaskStatus, Timestamp, ToolSpec,
    Transition, apply, outstanding, step,
};

use super::{TreeGuard, TreePromise, TreeWorld};

/// The tool by which the parent asks for a child.
const HELPER: &str = "agent__helper";

/// The index of the parent's row. Those of the children follow.
const PARENT: usize = 0;

/// The rows of all runs, and the faults that are left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TreeState {
    rows: Vec<TreeRow>,
    crashes: u8,
    stops: u8,
    lost_answers: u8,
}

/// A run with its head, its inbox and the processes that have it in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TreeRow {
    id: RunId,
    run: Run,
    seq: u8,
    inbox: Vec<TreeMessage>,
    is_due: bool,
    /// Whether the owner died with work of the run.
    owner_is_lost: bool,
    workers: Vec<TreeWorker>,
    /// The parent's sequence number when the child was recorded.
    parent_seq: u8,
    /// A result that is not sent yet. In the product there is none: it is in the commit.
    unsent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TreeMessage {
    Result(CallNumber),
    Stop,
}

/// A process that has a run in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TreeWorker {
    run: Run,
    seq: u8,
    draft: Option<TreeDraft>,
}

/// A transition that is not committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TreeDraft {
    run: Run,
    taken: usize,
    stops: Vec<RunId>,
    reports: bool,
}

/// A step of a world. The numbers are those of a run's row and of one of its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process loads a run that is due, or whose owner is lost.
    Load(usize),
    /// A process that has the run finds it due.
    Notice(usize, usize),
    /// The model answers.
    Think(usize, usize),
    /// A child run is recorded.
    StartChild(usize, CallNumber),
    /// A draft is committed, or fenced.
    Commit(usize, usize),
    /// A draft is committed, and its process does not learn that.
    LoseAnswer(usize, usize),
    /// The result of an ended child is sent by itself. Without a guard only.
    Send(usize),
    /// The process dies that was to send it.
    LoseResult(usize),
    /// A person stops the parent at another process.
    Stop,
    /// A process dies.
    Crash(usize, usize),
}

impl Step {
    /// Whether it is a fault or a request from outside, which need not happen.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Step::LoseAnswer(..) | Step::LoseResult(_) | Step::Stop | Step::Crash(..))
    }
}

fn id(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

fn manifest() -> Manifest {
    let helper = ToolSpec {
        name: HELPER.into(),
        description: String::new(),
        parameters: serde_json::json!({}),
        route: Route::Child,
        effect: EffectClass::Idempotent,
        after_execution: AfterExecution::Suspend,
        deadline_ms: u64::MAX,
        retry: None,
        strict: None,
        remote: None,
        untrusted: false,
        agent: Some("helper".into()),
    };
    let budgets = Budgets { iterations: 10, calls: None, tokens: None, wall_ms: None, children: None, cost: None };
    Manifest { tools: vec![helper], levels: 1, ..Manifest::plain("m", budgets) }
}

impl TreeRow {
    fn new(id: RunId, parent: Option<ParentCall>, parent_seq: u8) -> Self {
        let range = BoxRange { id: BoxId(uuid::Uuid::nil()), length: 0 };
        let parent = parent.map(Box::new);
        let accepted = Event::Accepted { origin: Origin::Turn, context: range, output: range, caller: None, parent };
        let run = apply(None, &accepted).expect("every journal begins with `accepted`");
        TreeRow { id, run, seq: 0, inbox: Vec::new(), is_due: true, owner_is_lost: false, workers: Vec::new(), parent_seq, unsent: false }
    }

    /// Whether a process that loads the run would find anything to do.
    fn has_work(&self) -> bool {
        let is_orphan = self.owner_is_lost && !outstanding(&self.run).is_empty();
        let is_new = self.run.iteration == 0;
        !self.run.has_ended() && (is_orphan || (self.is_due && (is_new || !self.inbox.is_empty())))
    }
}

impl TreeState {
    pub(super) fn begin(world: &TreeWorld) -> Self {
        let parent = TreeRow::new(RunId(id(1)), None, 0);
        TreeState { rows: vec![parent], crashes: world.crashes, stops: world.stops, lost_answers: world.lost_answers }
    }

    /// Every step that is possible now.
    pub(super) fn steps(&self, world: &TreeWorld) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if row.workers.is_empty() && row.has_work() {
                steps.push(Step::Load(index));
            }
            if row.unsent {
                steps.push(Step::Send(index));
                if self.crashes > 0 {
                    steps.push(Step::LoseResult(index));
                }
            }
            for (number, worker) in row.workers.iter().enumerate() {
                steps.extend(self.steps_of(world, index, number, worker));
            }
        }
        if self.stops > 0 && !self.rows[PARENT].run.has_ended() {
            steps.push(Step::Stop);
        }
        steps
    }

    fn steps_of(&self, world: &TreeWorld, index: usize, number: usize, worker: &TreeWorker) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.crashes > 0 {
            steps.push(Step::Crash(index, number));
        }
        if worker.draft.is_some() {
            steps.push(Step::Commit(index, number));
            if self.lost_answers > 0 {
                steps.push(Step::LoseAnswer(index, number));
            }
            return steps;
        }
        if self.rows[index].is_due && !self.rows[index].inbox.is_empty() {
            steps.push(Step::Notice(index, number));
        }
        let answers = index == PARENT || !world.hangs;
        steps.extend(outstanding(&worker.run).into_iter().filter_map(|effect| match effect {
            Effect::CallModel { .. } => answers.then_some(Step::Think(index, number)),
            Effect::StartChild { call } => Some(Step::StartChild(number, call)),
            Effect::StartTool { .. } => None,
        }));
        steps
    }

    /// The promises that this state breaks. `is_calm`: only faults are possible.
    pub(super) fn broken(&self, world: &TreeWorld, is_calm: bool) -> Vec<TreePromise> {
        let mut broken = Vec::new();
        let (parent, children) = (&self.rows[PARENT].run, &self.rows[PARENT + 1..]);
        if children.len() > world.children {
            broken.push(TreePromise::OneChild);
        }
        let open = children.iter().filter(|child| !child.run.has_ended()).count();
        if is_calm && parent.has_ended() && open > 0 {
            broken.push(TreePromise::NoOrphan);
        }
        if is_calm && !parent.has_ended() && open == 0 {
            broken.push(TreePromise::ParentEnds);
        }
        broken
    }

    pub(super) fn after(&self, step: &Step, world: &TreeWorld, removed: Option<TreeGuard>) -> Self {
        let mut next = self.clone();
        match step {
            Step::Load(index) => next.load(*index),
            Step::Notice(index, number) => {
                next.rows[*index].workers.remove(*number);
                next.load(*index);
            }
            Step::Think(index, number) => next.think(world, *index, *number),
            Step::StartChild(number, call) => next.start_child(*number, *call, removed),
            Step::Commit(index, number) => next.commit(*index, *number, removed),
            Step::LoseAnswer(index, number) => {
                next.lost_answers -= 1;
                let kept = next.rows[*index].workers[*number].clone();
                next.commit(*index, *number, removed);
                // It sends the same commit again.
                let workers = &mut next.rows[*index].workers;
                workers.insert((*number).min(workers.len()), kept);
            }
            Step::Send(index) => {
                next.rows[*index].unsent = false;
                next.report(*index, None);
            }
            Step::LoseResult(index) => {
                next.crashes -= 1;
                next.rows[*index].unsent = false;
            }
            Step::Stop => {
                next.stops -= 1;
                let stopped = Input::Stopped { reason: String::new(), streamed: StreamedText::default() };
                next.take(PARENT, [stopped], 0);
            }
            Step::Crash(index, number) => {
                next.crashes -= 1;
                let row = &mut next.rows[*index];
                row.workers.remove(*number);
                row.owner_is_lost = true;
            }
        }
        next
    }

    /// A process loads a run and drafts what it has to catch up with.
    fn load(&mut self, index: usize) {
        let row = &self.rows[index];
        let mut inputs = Vec::new();
        if row.run.iteration == 0 && row.run.next_number == 1 {
            inputs.push(Input::Entered(Opening::Ask));
        } else if row.owner_is_lost && !outstanding(&row.run).is_empty() {
            inputs.push(Input::owner_changed());
        }
        inputs.extend(row.inbox.iter().map(|message| match message {
            TreeMessage::Stop => Input::Stopped { reason: String::new(), streamed: StreamedText::default() },
            TreeMessage::Result(call) => Input::Reported(Report {
                retry: 0,
                call: *call,
                cause: ReportCause::Tool,
                status: TaskStatus::Success,
                item: ItemId(uuid::Uuid::nil()),
                after: None,
                below: None,
            }),
        }));
        let taken = row.inbox.len();
        self.take(index, inputs, taken);
    }

    /// A new process of a run, with a draft of these inputs.
    fn take(&mut self, index: usize, inputs: impl IntoIterator<Item = Input>, taken: usize) {
        let row = &mut self.rows[index];
        let draft = drafted(index, &row.run, inputs, taken);
        row.workers.push(TreeWorker { run: row.run.clone(), seq: row.seq, draft: Some(draft) });
    }

    fn think(&mut self, world: &TreeWorld, index: usize, number: usize) {
        let worker = &mut self.rows[index].workers[number];
        let asks = index == PARENT && worker.run.iteration == 1;
        let call = RequestedCall { provider_id: String::new(), tool: HELPER.into(), arguments: "{}".into() };
        let calls = if asks { vec![call; world.children] } else { Vec::new() };
        worker.draft = Some(drafted(index, &worker.run, [Input::Replied(Reply { calls, ..Reply::default() })], 0));
    }

    /// The effect of a process of the parent, which may have lost its run by now.
    fn start_child(&mut self, number: usize, call: CallNumber, removed: Option<TreeGuard>) {
        let parent = &self.rows[PARENT];
        let Some(child) = parent.workers[number].run.call(call).and_then(|open| open.child) else { return };
        let has_room = removed != Some(TreeGuard::OneChildPerCall) || self.rows.len() < 4;
        let is_known = self.rows.iter().any(|row| row.id == child) && (removed != Some(TreeGuard::OneChildPerCall) || !has_room);
        let is_open = parent.run.call(call).is_some_and(|open| !open.is_received());
        if !is_known && !is_open && removed != Some(TreeGuard::ParentGone) {
            // The process loads the run again.
            self.rows[PARENT].workers.remove(number);
            return;
        }
        if !is_known {
            let answers = ParentCall { run: parent.id, head: AgentName::from("a"), call, tainted: false };
            let seq = parent.seq;
            self.rows.push(TreeRow::new(child, Some(answers), seq));
        }
        let worker = &mut self.rows[PARENT].workers[number];
        worker.draft = Some(drafted(PARENT, &worker.run, [Input::ChildBegun(call)], 0));
    }

    /// Commits a draft, if the guard holds. A draft that was applied before succeeds again.
    fn commit(&mut self, index: usize, number: usize, removed: Option<TreeGuard>) {
        let row = &mut self.rows[index];
        let worker = row.workers.remove(number);
        let Some(draft) = worker.draft else { return };
        let is_applied = row.seq == worker.seq + 1 && row.run == draft.run;
        if row.seq != worker.seq && !is_applied {
            return;
        }
        if !is_applied {
            row.run = draft.run.clone();
            row.seq += 1;
            row.inbox.drain(..draft.taken);
            row.is_due = !row.inbox.is_empty();
            row.owner_is_lost = false;
            if removed != Some(TreeGuard::StopsInEnd) {
                draft.stops.iter().for_each(|child| self.stop(*child, removed));
            }
            if draft.reports {
                match removed {
                    Some(TreeGuard::ReportInEnd) => self.rows[index].unsent = true,
                    _ => self.report(index, removed),
                }
            }
        }
        let row = &mut self.rows[index];
        if !outstanding(&row.run).is_empty() && !row.run.has_ended() {
            row.workers.insert(number.min(row.workers.len()), TreeWorker { run: draft.run, seq: row.seq, draft: None });
        }
    }

    fn report(&mut self, child: usize, removed: Option<TreeGuard>) {
        let (Some(parent), seen) = (self.rows[child].run.parent.clone(), self.rows[child].parent_seq) else { return };
        let row = &mut self.rows[PARENT];
        let is_guarded = removed == Some(TreeGuard::ReportOnlyCounts) && row.seq != seen;
        if row.run.has_ended() || is_guarded || row.inbox.contains(&TreeMessage::Result(parent.call)) {
            return;
        }
        row.inbox.push(TreeMessage::Result(parent.call));
        row.is_due |= removed != Some(TreeGuard::ReportIsDue);
    }

    fn stop(&mut self, child: RunId, removed: Option<TreeGuard>) {
        let Some(row) = self.rows.iter_mut().find(|row| row.id == child && !row.run.has_ended()) else { return };
        row.inbox.push(TreeMessage::Stop);
        let is_running = !outstanding(&row.run).is_empty();
        row.is_due |= !is_running || removed != Some(TreeGuard::StopWakesRunning);
    }
}

/// The transition of these inputs, one after the other.
fn drafted(index: usize, before: &Run, inputs: impl IntoIterator<Item = Input>, taken: usize) -> TreeDraft {
    let mut draft = TreeDraft { run: before.clone(), taken, stops: Vec::new(), reports: false };
    let manifest = manifest();
    for input in inputs {
        // The same ids whenever the same input meets the same state, so that equal states are recognised.
        let mut last = (index as u128) << 64 | u128::from(draft.run.next_number) << 8;
        let mut fresh = || {
            last += 1;
            ItemId(id(last | 1 << 120))
        };
        let made: Transition = step(&draft.run, &manifest, input, &mut Moment { now: Timestamp(0), fresh: &mut fresh });
        draft.stops.extend(made.stops);
        draft.reports |= made.report.is_some();
        draft.run = made.run;
    }
    draft
}
