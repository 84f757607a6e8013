//! The laws over random runs: any manifest and any inputs, sensible or not. `support::laws` checks every step.

use proptest::prelude::*;
use windlass_kernel::{
    AfterExecution, Budgets, CallNumber, Cause, EffectClass, Event, Input, ItemId, ItemKind, Manifest, NewItem, Origin, Phase, Report,
    ReportCause, ResultField, Route, Run, SUBMIT_RESULT, Spent, TaskStatus, Timestamp, ToolSpec, Usage, content::ClientAnswer, fold,
};

use crate::support::{
    driver::{Driver, item_id},
    script::{LeftCall, ScriptedCall, ScriptedInput},
    setup::{Setup, gate, manifest, retry, tool},
};

proptest! {
    #[test]
    fn c_011_c_015_c_042_s_03_s_06_s_08_s_10_every_step_of_every_run_keeps_the_laws(
        setup in any_setup(),
        nexts in prop::collection::vec(any_next(), 1..60),
    ) {
        drive(&setup, nexts);
    }

    #[test]
    fn c_003_c_059_c_060_a_stop_ends_any_run_with_its_deliverable(
        setup in any_setup(),
        nexts in prop::collection::vec(any_next(), 0..30),
    ) {
        let mut driver = drive(&setup, nexts);
        take(&mut driver, ScriptedInput::Stop { reason: "enough".into(), streamed: None });
        prop_assert!(driver.run.has_ended());
    }

    #[test]
    fn a_run_whose_calls_are_all_answered_ends(
        setup in any_setup(),
        replies in prop::collection::vec(prop::collection::vec(any_wanted(), 0..4), 10),
    ) {
        let mut driver = Driver::new(setup);
        let mut replies = replies.into_iter();
        while !driver.run.has_ended() {
            let asked = sensible(&driver.run, 0, &mut replies, TaskStatus::Success, None);
            take(&mut driver, asked);
            prop_assert!(driver.journal.len() < 1_000, "the run goes round for ever");
        }
    }

    #[test]
    fn c_086_the_order_and_the_repetition_of_reports_change_nothing(setup in any_setup(), iteration in any_iteration()) {
        let straight: Vec<usize> = (0..iteration.reports.len()).collect();
        prop_assert_eq!(play_iteration(&setup, &iteration, &straight), play_iteration(&setup, &iteration, &iteration.order));
    }

    #[test]
    fn a_journal_that_does_not_begin_at_the_beginning_is_no_run(
        setup in any_setup(),
        nexts in prop::collection::vec(any_next(), 1..10),
    ) {
        let driver = drive(&setup, nexts);
        prop_assert_eq!(fold(&driver.journal[1..]), None);
        prop_assert_eq!(fold(&[] as &[Event]), None);
    }
}

/// The next input of a random run.
#[derive(Clone, Debug)]
enum Next {
    /// An input that fits the state of the run.
    Sensible { pick: usize, calls: Vec<ScriptedCall>, status: TaskStatus, after: Option<AfterExecution> },
    /// Any input.
    Any(ScriptedInput),
    /// The clock is set, possibly back.
    At(Timestamp),
}

fn drive(setup: &Setup, nexts: Vec<Next>) -> Driver {
    let mut driver = Driver::new(setup.clone());
    for next in nexts {
        match next {
            Next::Sensible { pick, calls, status, after } => {
                let asked = sensible(&driver.run, pick, &mut std::iter::once(calls), status, after);
                take(&mut driver, asked);
            }
            Next::Any(asked) => take(&mut driver, asked),
            Next::At(now) => driver.now = now,
        }
    }
    driver
}

fn take(driver: &mut Driver, asked: ScriptedInput) {
    let input = driver.input(asked, &mut |_, _| ());
    driver.take(input);
}

fn sensible(
    run: &Run,
    pick: usize,
    replies: &mut dyn Iterator<Item = Vec<ScriptedCall>>,
    status: TaskStatus,
    after: Option<AfterExecution>,
) -> ScriptedInput {
    match run.hold().map(|hold| hold.budget) {
        Some(Some(_)) if run.iteration > 20 => return ScriptedInput::EndByAnswer,
        Some(Some(passed)) => return ScriptedInput::Raise(passed.limit_min().saturating_add(100)),
        Some(None) => return ScriptedInput::Resume,
        None => {}
    }
    match &run.phase {
        Phase::Accepted => ScriptedInput::Entered((run.origin == Origin::Action).then(|| wanted(TOOLS[pick % TOOLS.len()], "{}"))),
        Phase::Thinking { .. } => ScriptedInput::Reply {
            text: "words".into(),
            calls: replies.next().unwrap_or_default(),
            usage: Usage { tokens_in: 3, tokens_out: 4, ..Usage::default() },
        },
        Phase::Waiting { calls } => {
            let waiting: Vec<_> = calls.iter().filter(|call| !call.is_received()).collect();
            let call = waiting[pick % waiting.len()];
            match run.call_hold(call.call).map(|interrupt| interrupt.cause) {
                Some(Cause::Approval) => ScriptedInput::Approve { call: call.call, by: Some(format!("person {}", run.next_number)) },
                Some(_) => ScriptedInput::Record { call: call.call, status },
                None => ScriptedInput::Report { call: call.call, status, after, below: None },
            }
        }
        Phase::Ended { .. } => ScriptedInput::TakenOver { lost: 0, streamed: None },
    }
}

/// One iteration: the calls of the model, their results, and another order of the results, with repetitions.
#[derive(Clone, Debug)]
struct Iteration {
    calls: Vec<ScriptedCall>,
    reports: Vec<(TaskStatus, Option<AfterExecution>)>,
    order: Vec<usize>,
}

/// The run without the numbers that count the events of its journal.
fn without_numbers(mut run: Run) -> Run {
    run.next_number = 0;
    run.interrupts.iter_mut().for_each(|interrupt| interrupt.number = 0);
    run
}

/// What an iteration leads to: the run without the length of its journal, the output box, and the kernel's own items.
fn play_iteration(setup: &Setup, iteration: &Iteration, order: &[usize]) -> (Run, Vec<ItemId>, Vec<NewItem>) {
    let mut driver = Driver::new(Setup { origin: Origin::Turn, ..setup.clone() });
    take(&mut driver, ScriptedInput::Entered(None));
    take(&mut driver, ScriptedInput::Reply { text: String::new(), calls: iteration.calls.clone(), usage: Usage::default() });
    let mut written = Vec::new();
    for index in order {
        let (status, after) = iteration.reports[*index];
        let item = item_id(1_000_000 + *index as u128);
        driver.kinds.insert(item, ItemKind::Result);
        let call = CallNumber(*index as u32 + 1);
        written.extend(
            driver.take(Input::Reported(Report { call, retry: 0, cause: ReportCause::Tool, status, item, after, below: None })).items,
        );
    }
    (without_numbers(driver.run), driver.appended, written)
}

const TOOLS: [&str; 6] = ["t0", "t1", "t2", "t3", "t4", "gone"];

fn wanted(tool: &str, arguments: &str) -> ScriptedCall {
    ScriptedCall { tool: tool.into(), arguments: arguments.into() }
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let origin = prop_oneof![4 => Just(Origin::Turn), 1 => Just(Origin::Action)];
    let fields = prop::collection::vec((prop::sample::select(vec!["x", "y"]), any::<bool>()), 0..3);
    let gates =
        prop::collection::vec(prop::sample::select(vec!["write", "tainted 3000ms", "* 2000ms approve", "read 1000ms end", "twice"]), 0..2);
    let client_approves = prop::collection::vec(prop::sample::select(TOOLS.to_vec()).prop_map(Into::into), 0..2);
    (origin, prop::collection::vec(any_tool(), 5), any_budgets(), fields, gates, any::<bool>(), client_approves).prop_map(
        |(origin, mut tools, budgets, fields, gates, budgets_park, client_approves)| {
            for (index, tool) in tools.iter_mut().enumerate() {
                tool.name = TOOLS[index].into();
            }
            let field = |(name, required): (&str, bool)| ResultField { name: name.into(), description: String::new(), required };
            let result_fields = fields.into_iter().map(field).collect();
            let gates = gates.into_iter().map(gate).collect();
            Setup {
                origin,
                parent: None,
                manifest: Manifest { tools, budgets, result_fields, gates, budgets_park, client_approves, ..manifest() },
            }
        },
    )
}

fn any_tool() -> impl Strategy<Value = ToolSpec> {
    let route = prop_oneof![6 => Just(Route::InProcess), 3 => Just(Route::External), 1 => Just(Route::Client), 2 => Just(Route::Child)];
    let effect = prop::sample::select(vec![EffectClass::Read, EffectClass::Idempotent, EffectClass::Write, EffectClass::Write]);
    let after = prop_oneof![5 => Just(AfterExecution::Suspend), 1 => Just(AfterExecution::Terminate)];
    let deadline = prop::sample::select(vec![0, 1, 1_000, 60_000, u64::MAX]);
    let retry = prop::option::weighted(0.3, prop::sample::select(vec!["0/5ms", "1/0ms", "2/700ms"]).prop_map(retry));
    (route, effect, after, deadline, any::<bool>(), retry).prop_map(|(route, effect, after_execution, deadline_ms, untrusted, retry)| {
        ToolSpec {
            route,
            untrusted,
            retry,
            agent: None,
            effect,
            after_execution,
            deadline_ms,
            remote: None,
            strict: None,
            ..tool("unnamed")
        }
    })
}

fn any_budgets() -> impl Strategy<Value = Budgets> {
    let tokens = prop::option::of(prop::sample::select(vec![0, 1, 50, 200, u64::MAX]));
    let wall_ms = prop::option::of(prop::sample::select(vec![0, 1, 2_000, 9_000, u64::MAX]));
    let iterations = prop_oneof![1 => 0..3_u32, 6 => 3..9_u32];
    (iterations, prop::option::of(0..9_u32), tokens, wall_ms).prop_map(|(iterations, calls, tokens, wall_ms)| Budgets {
        iterations,
        calls,
        tokens,
        wall_ms,
        children: None,
        cost: None,
    })
}

fn any_next() -> impl Strategy<Value = Next> {
    let sensible = (any::<usize>(), prop::collection::vec(any_wanted(), 0..4), any_status(), any_after())
        .prop_map(|(pick, calls, status, after)| Next::Sensible { pick, calls, status, after });
    let at = prop_oneof![20 => 0..10_000_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    prop_oneof![6 => sensible, 6 => any_input().prop_map(Next::Any), 1 => at.prop_map(|at| Next::At(Timestamp(at)))]
}

fn any_input() -> impl Strategy<Value = ScriptedInput> {
    let call = || (0..8_u32).prop_map(CallNumber);
    let retry_ms = prop_oneof![3 => (0..2_000_u64).prop_map(Some), 1 => Just(None), 1 => Just(Some(u64::MAX))];
    prop_oneof![
        2 => prop::option::of(any_wanted()).prop_map(ScriptedInput::Entered),
        3 => ("[a-z]{0,3}", prop::collection::vec(any_wanted(), 0..4), any_usage()).prop_map(|(text, calls, usage)| ScriptedInput::Reply { text, calls, usage }),
        2 => (retry_ms, any_usage(), any_lost_tokens()).prop_map(|(retry_ms, usage, lost)| {
            ScriptedInput::Failed { code: "busy".into(), retry_ms, spent: Spent { usage, lost }, streamed: None }
        }),
        1 => Just(ScriptedInput::Failed { code: "gone".into(), retry_ms: None, spent: Spent::default(), streamed: Some("half a".into()) }),
        1 => any_lost_tokens().prop_map(|lost| ScriptedInput::Cut { text: "half a word".into(), lost }),
        1 => Just(ScriptedInput::Quiet),
        2 => Just(ScriptedInput::Steer),
        1 => Just(ScriptedInput::Reasoned("hm".into())),
        1 => prop::collection::vec(any_wanted(), 0..4).prop_map(|calls| ScriptedInput::Thoughtful {
            before: "hm".into(),
            text: "so".into(),
            between: "and".into(),
            calls,
        }),
        4 => (call(), any_status(), any_after()).prop_map(|(call, status, after)| ScriptedInput::Report { call, status, after, below: None }),
        2 => call().prop_map(ScriptedInput::Begun),
        2 => call().prop_map(ScriptedInput::Timeout),
        2 => call().prop_map(ScriptedInput::LeaseEnded),
        1 => call().prop_map(ScriptedInput::Stale),
        3 => call().prop_map(ScriptedInput::RetryDue),
        4 => (any_lost_tokens(), prop::option::of(Just("half".to_owned()))).prop_map(|(lost, streamed)| ScriptedInput::TakenOver { lost, streamed }),
        2 => Just(ScriptedInput::Panicked),
        2 => (call(), any_status()).prop_map(|(call, status)| ScriptedInput::Record { call, status }),
        2 => call().prop_map(ScriptedInput::Say),
        2 => call().prop_map(ScriptedInput::Release),
        2 => call().prop_map(ScriptedInput::Tell),
        2 => Just(ScriptedInput::Resume),
        2 => (call(), prop::option::of(prop::sample::select(vec!["ann", "bob"]))).prop_map(|(call, by)| ScriptedInput::Approve { call, by: by.map(str::to_owned) }),
        1 => call().prop_map(ScriptedInput::ApproveUnseen),
        1 => (call(), any::<bool>()).prop_map(|(call, is_seen)| ScriptedInput::Edit { call, by: Some("ann".to_owned()), is_seen }),
        2 => prop::collection::vec(any_left(), 1..4).prop_map(ScriptedInput::TakeOver),
        1 => call().prop_map(|call| ScriptedInput::Reject { call, comment: "no".into() }),
        1 => Just(ScriptedInput::EndByAnswer),
        2 => prop::sample::select(vec![0, 5, 300, u64::MAX]).prop_map(ScriptedInput::Raise),
        1 => call().prop_map(ScriptedInput::InterruptTimeout),
        1 => Just(ScriptedInput::Stop { reason: "because".into(), streamed: Some("half".into()) }),
    ]
}

fn any_wanted() -> impl Strategy<Value = ScriptedCall> {
    let tool = prop_oneof![12 => prop::sample::select(TOOLS.to_vec()), 1 => Just(SUBMIT_RESULT)];
    let arguments = prop::sample::select(vec!["{}", "{}", r#"{"x":1}"#, r#"{"y":null,"x":2}"#, r#"{"x":1,"y":"\ud800"}"#, "oops", ""]);
    (tool, arguments).prop_map(|(tool, arguments)| wanted(tool, arguments))
}

/// A call that an earlier run left, with an answer of its client or without one.
fn any_left() -> impl Strategy<Value = LeftCall> {
    let rejected = ClientAnswer::Rejected { reason: "no".into() };
    let answer = prop::option::of(prop::sample::select(vec![ClientAnswer::Approved, rejected, ClientAnswer::Missing]));
    (any_wanted(), answer, any::<bool>()).prop_map(|(call, answer, tainted)| LeftCall { call, answer, address: None, tainted })
}

fn any_status() -> impl Strategy<Value = TaskStatus> {
    use TaskStatus::{Canceled, Failed, Partial, Success, Timeout};
    prop::sample::select(vec![Success, Success, Failed, Canceled, Timeout, Partial])
}

fn any_after() -> impl Strategy<Value = Option<AfterExecution>> {
    prop_oneof![6 => Just(None), 2 => Just(Some(AfterExecution::Suspend)), 1 => Just(Some(AfterExecution::Terminate))]
}

fn any_lost_tokens() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 4 => 1..40_u64, 1 => Just(u64::MAX)]
}

fn any_usage() -> impl Strategy<Value = Usage> {
    let tokens = || prop_oneof![9 => 0..60_u64, 1 => Just(u64::MAX)];
    (tokens(), tokens()).prop_map(|(tokens_in, tokens_out)| Usage { tokens_in, tokens_out, ..Usage::default() })
}

fn any_iteration() -> impl Strategy<Value = Iteration> {
    prop::collection::vec((any_wanted(), any_status(), any_after()), 1..7)
        .prop_flat_map(|rows| {
            let length = rows.len();
            (Just(rows), prop::collection::vec(0..length, 0..4))
        })
        .prop_flat_map(|(rows, repeated)| {
            let order: Vec<usize> = (0..rows.len()).chain(repeated).collect();
            (Just(rows), Just(order).prop_shuffle())
        })
        .prop_map(|(rows, order)| Iteration {
            calls: rows.iter().map(|(call, ..)| call.clone()).collect(),
            reports: rows.iter().map(|(_, status, after)| (*status, *after)).collect(),
            order,
        })
}
