//! The laws that hold after every step of every run, scripted or random.

use std::collections::BTreeSet;

use windlass_kernel::{
    CallNumber, Cause, Decision, Effect, EffectClass, Event, HeadStatus, IgnoreReason, InheritedCall, Input, ItemId, ItemKind, Opening,
    Origin, Route, Run, Timestamp, Transition, Verdict, budget, content::ClientAnswer, fold, newly_outstanding, outstanding,
};

use super::driver::{Driver, OUTPUT_BEFORE};

/// Checks the step that was just made. Panics with the name of the law that it broke.
pub fn hold(driver: &mut Driver, before: &Run, input: &Input, made: &Transition) {
    the_journal_folds_to_the_state(driver);
    a_run_survives_storage(&driver.run);
    an_ignored_input_changes_nothing(before, made);
    an_ended_run_is_final(before, made);
    iterations_count_one_by_one(before, made);
    calls_are_numbered_densely(before, made);
    the_output_box_holds_what_was_appended(driver);
    results_are_in_the_order_of_their_calls(driver, made);
    an_ending_has_one_deliverable_and_it_is_last(driver);
    effects_follow_from_the_state(before, &driver.run);
    nothing_starts_past_a_budget(driver, before, input, made);
    no_write_starts_twice(driver, before, input);
    the_head_takes_only_known_edges(before, &driver.run);
    a_wait_has_calls_and_a_deadline_unless_parked(&driver.run);
    an_interrupt_holds_something_that_waits(&driver.run);
    a_gated_call_starts_only_after_an_approval(driver);
    a_client_approves_calls_before_they_are_made(driver, input, made);
}

fn an_interrupt_holds_something_that_waits(run: &Run) {
    let numbers: BTreeSet<u64> = run.interrupts.iter().map(|interrupt| interrupt.number).collect();
    assert_eq!(numbers.len(), run.interrupts.len(), "every interrupt has a number of its own");
    let holds: BTreeSet<Option<CallNumber>> = run.interrupts.iter().map(|interrupt| interrupt.call).collect();
    assert_eq!(holds.len(), run.interrupts.len(), "a run or a call is held once");
    for interrupt in &run.interrupts {
        let waits = interrupt.call.is_none_or(|call| run.call(call).is_some_and(|call| !call.is_received()));
        assert!(waits, "an interrupt holds the run, or a call that waits: {interrupt:?}");
    }
}

/// S11: what a rule holds is owed only after as many people as the rule wants have approved it.
fn a_gated_call_starts_only_after_an_approval(driver: &Driver) {
    for event in &driver.journal {
        let Event::Interrupted(interrupt) = event else { continue };
        let (Cause::Approval, Some(call)) = (interrupt.cause, interrupt.call) else { continue };
        let is_of = |event: &&Event| matches!(event, Event::Resolved { interrupt: number, verdict: Verdict::Approved | Verdict::TimedOut, .. } if *number == interrupt.number);
        let people = driver.journal.iter().fold(BTreeSet::new(), |people, event| with_approval(people, event, interrupt.number));
        match driver.journal.iter().find(is_of) {
            None => assert!(!driver.starts.contains_key(&call), "a call without an approval is never started"),
            Some(Event::Resolved { by: Some(_), .. }) => {
                assert!(people.len() >= usize::from(interrupt.needs), "enough people approved the call as it is")
            }
            Some(_) => {}
        }
    }
}

/// The people who approved the call of an interrupt as it is now. An edit is an approval by its author, and what was approved before it was
/// another call.
fn with_approval<'a>(mut people: BTreeSet<&'a str>, event: &'a Event, number: u64) -> BTreeSet<&'a str> {
    if let Event::Edited { interrupt, by, .. } = event
        && *interrupt == number
    {
        return BTreeSet::from([&**by]);
    }
    if let Event::Approved { interrupt, by } | Event::Resolved { interrupt, by: Some(by), .. } = event
        && *interrupt == number
    {
        people.insert(by);
    }
    people
}

/// S11: a call that the client of a request approves is open only in a run that inherited it with its approval.
fn a_client_approves_calls_before_they_are_made(driver: &mut Driver, input: &Input, made: &Transition) {
    if let Input::Entered(Opening::InheritCalls(left)) = input
        && made.ignored().is_none()
    {
        let is_approved = |call: &InheritedCall| call.approval.as_ref().is_some_and(|approval| approval.answer == ClientAnswer::Approved);
        let approved = (1..).map(CallNumber).zip(left).filter(|(_, call)| is_approved(call));
        driver.client_approved = approved.map(|(number, _)| number).collect();
    }
    // A person's action is what that person wants.
    let is_turn = made.run.origin == Origin::Turn;
    for call in made.run.calls().iter().filter(|call| is_turn && !call.is_received()) {
        let needs_approval = driver.manifest.needs_client_approval(call.tool.as_str());
        assert!(!needs_approval || driver.client_approved.contains(&call.call), "{} is made without an approval", call.tool);
    }
}

/// S8, also for the journal as a store keeps it.
fn the_journal_folds_to_the_state(driver: &Driver) {
    assert_eq!(fold(&driver.journal).as_ref(), Some(&driver.run), "folding the journal gives the state");
    assert_eq!(driver.run.next_number, driver.journal.len() as u64, "the journal is numbered densely");
    let stored = serde_json::to_vec(&driver.journal).expect("events are plain data");
    let read: Vec<Event> = serde_json::from_slice(&stored).expect("events are read back");
    assert_eq!(read, driver.journal, "the journal is read back as it was written");
}

fn a_run_survives_storage(run: &Run) {
    let stored = serde_json::to_vec(run).expect("a run is plain data");
    assert_eq!(serde_json::from_slice::<Run>(&stored).expect("a run is read back"), *run, "a run is read back as it was written");
}

fn an_ignored_input_changes_nothing(before: &Run, made: &Transition) {
    let ignored = made.events.iter().filter(|event| matches!(event, Event::Ignored { .. })).count();
    if ignored == 0 {
        assert!(!made.events.is_empty(), "every input leaves an event");
        return;
    }
    assert_eq!(made.events.len(), 1, "an ignored input is one event");
    assert!(made.items.is_empty() && made.appended.is_empty(), "an ignored input writes nothing");
    assert_eq!(made.run, Run { next_number: before.next_number + 1, ..before.clone() }, "an ignored input changes nothing");
}

fn an_ended_run_is_final(before: &Run, made: &Transition) {
    if before.has_ended() {
        assert_eq!(made.ignored(), Some(IgnoreReason::AlreadyEnded), "an ended run is final");
    }
}

/// S3.
fn iterations_count_one_by_one(before: &Run, made: &Transition) {
    let mut iteration = before.iteration;
    for event in &made.events {
        match event {
            Event::IterationStarted { iteration: begun, .. } => {
                iteration += 1;
                assert_eq!(*begun, iteration, "an iteration is one more than the iteration before");
            }
            Event::ActionStarted { .. } => iteration += 1,
            Event::Reasoned { iteration: of, .. }
            | Event::Replied { iteration: of, .. }
            | Event::Cut { iteration: of, .. }
            | Event::Compacting { iteration: of }
            | Event::Compacted { iteration: of, .. } => {
                assert_eq!(*of, iteration, "a reply belongs to the iteration that asked for it")
            }
            Event::Accepted { .. }
            | Event::Leased
            | Event::CallsInherited { .. }
            | Event::Heartbeat
            | Event::AttemptFailed { .. }
            | Event::Reported { .. }
            | Event::ChildBegun { .. }
            | Event::LeaseEnded { .. }
            | Event::CallRetried { .. }
            | Event::Interrupted(_)
            | Event::Approved { .. }
            | Event::Edited { .. }
            | Event::Resolved { .. }
            | Event::CallParked { .. }
            | Event::CallReleased { .. }
            | Event::Parked { .. }
            | Event::Unparked
            | Event::OwnerChanged { .. }
            | Event::Ignored { .. }
            | Event::Steered { .. }
            | Event::BudgetBreached { .. }
            | Event::Ended { .. } => {}
        }
    }
    assert_eq!(made.run.iteration, iteration, "only an iteration's start counts");
}

fn calls_are_numbered_densely(before: &Run, made: &Transition) {
    let made_calls = |event: &Event| match event {
        Event::Replied { calls, .. } | Event::CallsInherited { calls, .. } => calls.iter().map(|call| call.call.0).collect(),
        Event::ActionStarted { call, .. } => vec![call.call.0],
        Event::Accepted { .. }
        | Event::Leased
        | Event::Cut { .. }
        | Event::Reasoned { .. }
        | Event::Compacting { .. }
        | Event::Compacted { .. }
        | Event::Heartbeat
        | Event::IterationStarted { .. }
        | Event::AttemptFailed { .. }
        | Event::Reported { .. }
        | Event::ChildBegun { .. }
        | Event::LeaseEnded { .. }
        | Event::CallRetried { .. }
        | Event::Interrupted(_)
        | Event::Approved { .. }
        | Event::Edited { .. }
        | Event::Resolved { .. }
        | Event::CallParked { .. }
        | Event::CallReleased { .. }
        | Event::Parked { .. }
        | Event::Unparked
        | Event::OwnerChanged { .. }
        | Event::Ignored { .. }
        | Event::Steered { .. }
        | Event::BudgetBreached { .. }
        | Event::Ended { .. } => Vec::new(),
    };
    let numbers: Vec<u32> = made.events.iter().flat_map(made_calls).collect();
    let dense: Vec<u32> = (before.calls_used + 1..=made.run.calls_used).collect();
    assert_eq!(numbers, dense, "calls are numbered densely");
}

fn the_output_box_holds_what_was_appended(driver: &Driver) {
    assert_eq!(
        driver.run.output.length as usize,
        OUTPUT_BEFORE as usize + driver.appended.len(),
        "the box is as long as what was appended"
    );
    let distinct: BTreeSet<ItemId> = driver.appended.iter().copied().collect();
    assert_eq!(distinct.len(), driver.appended.len(), "nothing is appended twice");
}

fn results_are_in_the_order_of_their_calls(driver: &Driver, made: &Transition) {
    let whose = |item: &ItemId| {
        driver
            .journal
            .iter()
            .find_map(|event| if let Event::Reported { call, item: of, .. } = event { (of == item).then_some(*call) } else { None })
    };
    let calls: Vec<CallNumber> = made.appended.iter().filter_map(whose).collect();
    assert!(calls.is_sorted(), "results are appended in the order of their calls: {calls:?}");
    let results = made.appended.iter().filter(|item| driver.kinds.get(item) == Some(&ItemKind::Result)).count();
    assert_eq!(results, calls.len(), "only results that were taken are appended");
}

/// C-03, C-59, C-60.
fn an_ending_has_one_deliverable_and_it_is_last(driver: &Driver) {
    let ended = usize::from(driver.run.has_ended());
    let endings = driver.journal.iter().filter(|event| matches!(event, Event::Ended { .. })).count();
    let is_deliverable = |item: &&ItemId| driver.kinds.get(item) == Some(&ItemKind::Deliverable);
    assert_eq!(endings, ended, "a run ends once");
    assert_eq!(driver.appended.iter().filter(is_deliverable).count(), ended, "an ending has one deliverable");
    assert_eq!(driver.appended.last().filter(is_deliverable).is_some(), ended == 1, "the deliverable is the last item");
}

fn effects_follow_from_the_state(before: &Run, after: &Run) {
    let (old, new): (BTreeSet<Effect>, BTreeSet<Effect>) =
        (outstanding(before).into_iter().collect(), outstanding(after).into_iter().collect());
    let owed = newly_outstanding(before, after);
    assert_eq!(owed.iter().copied().collect::<BTreeSet<_>>(), &new - &old, "newly owed is the difference of what is owed");
    assert_eq!(outstanding(after).len(), new.len(), "nothing is owed twice");
    if after.is_held() || after.has_ended() {
        assert!(new.is_empty(), "a held or ended run is owed nothing");
    }
}

/// S10. After a person's release or a takeover the run is owed effects again that were allowed before.
fn nothing_starts_past_a_budget(driver: &Driver, before: &Run, input: &Input, made: &Transition) {
    let again = matches!(input, Input::OwnerChanged(_) | Input::Answered(_) | Input::InterruptTimedOut(_));
    let run = &made.run;
    if matches!(input, Input::OwnerChanged(left) if left.lost > 0) && !outstanding(run).is_empty() && run.calls().is_empty() {
        let limit = budget::limits(run, &driver.manifest.budgets).tokens;
        assert!(limit.is_none_or(|limit| run.tokens() < limit), "the model is not asked again once what was lost has used up the tokens");
    }
    let opened: Vec<CallNumber> =
        run.calls().iter().filter(|call| call.call.0 > before.calls_used && !call.is_received()).map(|call| call.call).collect();
    let owed = newly_outstanding(before, run);
    let starts_anew = matches!(input, Input::InterruptTimedOut(_))
        || matches!(input, Input::Answered(answer) if matches!(answer.decision, Decision::Approve | Decision::Release | Decision::Raise { .. }));
    if starts_anew && !owed.is_empty() {
        let limits = budget::limits(run, &driver.manifest.budgets);
        assert!(limits.tokens.is_none_or(|limit| run.tokens() < limit), "a decision starts nothing once the tokens are used up");
        let end = budget::wall_end(run, &driver.manifest.budgets, driver.now);
        assert!(end.is_none_or(|end| driver.now < end || end == Timestamp(i64::MAX)), "a decision starts nothing once the time is up");
    }
    if again || run.is_held() || (owed.is_empty() && opened.is_empty()) {
        return;
    }
    let budgets = &budget::limits(run, &driver.manifest.budgets);
    if driver.run.origin == Origin::Action {
        return;
    }
    assert!(run.iteration <= budgets.iterations, "no iteration past the limit");
    if !opened.is_empty() {
        let used = u64::from(before.calls_used) + opened.len() as u64;
        assert!(budgets.calls.is_none_or(|limit| used <= u64::from(limit)), "no call past the limit");
    }
    assert!(budgets.tokens.is_none_or(|limit| run.tokens() < limit), "nothing starts once the tokens are used up");
    let cost = budget::cost(run, budgets).unwrap_or(0);
    assert!(budgets.cost.is_none_or(|budget| cost < budget.limit), "nothing starts once the cost is used up");
    let starts_at = |effect: &Effect| match effect {
        Effect::CallModel { not_before, .. } => not_before.map_or(driver.now, |at| at.max(driver.now)),
        Effect::StartTool { .. } | Effect::StartChild { .. } => driver.now,
    };
    let latest = owed.iter().map(starts_at).max().unwrap_or(driver.now);
    let wall_end = budget::wall_end(run, &driver.manifest.budgets, driver.now);
    // At the highest timestamp there is no later time to compare with.
    assert!(wall_end.is_none_or(|end| latest < end || end == Timestamp(i64::MAX)), "nothing starts once the time is up");
}

/// S6: the engine starts what is newly owed, and a new owner starts everything that is owed.
fn no_write_starts_twice(driver: &mut Driver, before: &Run, input: &Input) {
    let started = if matches!(input, Input::OwnerChanged(_)) { outstanding(&driver.run) } else { newly_outstanding(before, &driver.run) };
    for effect in started {
        let Effect::StartTool { call } = effect else { continue };
        *driver.starts.entry(call).or_default() += 1;
        let open = driver.run.call(call).expect("an owed call is one of the iteration");
        let released = driver.journal.iter().filter(|event| matches!(event, Event::Resolved { verdict: Verdict::Released, .. })).count();
        let is_repeat = |event: &&Event| matches!(event, Event::CallRetried { call: repeated, .. } if *repeated == call);
        let repeated = driver.journal.iter().filter(is_repeat).count();
        let may = if open.effect == EffectClass::Write { 1 + released + repeated } else { usize::MAX };
        assert!(
            driver.starts[&call] as usize <= may,
            "a write starts once, and once more for each release by a person and each reported failure"
        );
        assert_eq!(open.route, Route::InProcess, "only calls of this process are started by it");
    }
}

/// C-11: dispatched → running ↔ suspended → idle. A run that begins with calls was never running before them, and a run can be parked from
/// any status.
fn the_head_takes_only_known_edges(before: &Run, after: &Run) {
    use HeadStatus::{Dispatched, Idle, Running, Suspended};
    if before.is_held() || after.is_held() {
        return;
    }
    let edge = (before.head_status(), after.head_status());
    let known = match edge {
        (_, Idle) | (Dispatched, Dispatched | Running) | (Running, Running | Suspended) | (Suspended, Suspended | Running) => true,
        (Dispatched, Suspended) => before.origin == Origin::Action || after.iteration == 0,
        (Idle, Dispatched | Running | Suspended) | (Running | Suspended, Dispatched) => false,
    };
    assert!(known, "no edge {edge:?}");
}

/// C-15, C-42.
fn a_wait_has_calls_and_a_deadline_unless_parked(run: &Run) {
    // A child run may take as long as its parent, so that a wait for it alone has no deadline.
    let free = run.calls().iter().filter(|call| run.is_free(call) && call.not_before.unwrap_or(call.deadline) < Timestamp::NEVER).count();
    let has_timeout = run.interrupts.iter().any(|interrupt| interrupt.until.is_some_and(|until| until < Timestamp::NEVER));
    assert_eq!(run.resume_deadline().is_some(), free > 0 && !run.is_held() || has_timeout, "what is free has a deadline");
    let not_before = outstanding(run).into_iter().find_map(|effect| match effect {
        Effect::CallModel { not_before, .. } => not_before,
        Effect::StartTool { .. } | Effect::StartChild { .. } => None,
    });
    assert_eq!(run.wake_at(), run.resume_deadline().or(not_before), "the end of a wait or a pause makes the run due");
    if run.head_status() == HeadStatus::Suspended && !run.is_held() {
        assert!(run.waiting_count() > 0, "a suspended run waits for something");
    }
}
