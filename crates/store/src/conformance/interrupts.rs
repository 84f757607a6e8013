//! What waits for a person, and what people decided.

use std::{collections::BTreeMap, sync::Arc};

use windlass_kernel::{
    ASK_PERSON, AgentKey, Answer, CallNumber, Cause, Decision, Event, Gate, Input, Interrupt, ItemKind, NewItem, OnTimeout, Opening,
    Origin, RequestedCall, RunId, StreamedText, TaskStatus, Tenant, Timestamp, Verdict, content,
};
use windlass_ports::{
    CallStatus, ClosedInterrupt, Enqueued, GivenUp, InterruptId, InterruptScan, InterruptView, MessageKind, NewMessage, NewRun, StoreError,
    TenantErasure,
};

use super::{
    Full,
    erasing_tenants::erase_whole,
    fixtures::{CHARGE, Kit, LOOKUP, NODE, START, agent, calls, final_reply, foreign, report_input},
};

/// Names with everything that text may have.
const PEOPLE: [&str; 2] = ["ann \"\\0\\\0", "\u{1F980}, ]"];

/// A kit whose runs hold calls of `CHARGE` until they are approved.
fn gated(store: &Arc<dyn Full>, gate: Gate) -> Kit {
    Kit::with_gates(store, vec![Gate { tool: Some(CHARGE.into()), ..gate }])
}

fn stop() -> Input {
    Input::Stopped { reason: String::new(), streamed: StreamedText::default() }
}

fn answer(open: &Interrupt, by: &str, decision: Decision) -> Input {
    Input::Answered(Answer { interrupt: open.number, shows: open.shows, by: Some(by.into()), decision })
}

/// The open interrupt of an agent's run.
/// The open interrupt, without its time, which a row has in a column of its own.
async fn open(kit: &Kit, agent: &AgentKey) -> Interrupt {
    Interrupt { at: None, ..kit.load(agent).await.run.unwrap().state.interrupts[0].clone() }
}

async fn list(store: &Arc<dyn Full>, tenant: &Tenant, scan: InterruptScan) -> Vec<InterruptView> {
    store.interrupts(tenant, &InterruptScan { limit: 100, ..scan }).await.unwrap()
}

fn everything() -> InterruptScan {
    InterruptScan { with_closed: true, ..InterruptScan::default() }
}

/// A run that calls these tools.
async fn calling(kit: &Kit, agent: &AgentKey, tools: &[&str], at: Timestamp) -> RunId {
    let (run, _) = kit.begin(agent, at).await;
    kit.advance(agent, calls(tools), at).await;
    run
}

/// An interrupt is listed as the run has it, with its run and the time. Another tenant can't see it.
pub async fn an_open_interrupt_is_listed_for_its_tenant(store: Arc<dyn Full>) {
    let rule = Gate { until_ms: Some(5_000), on_timeout: OnTimeout::End, approvers: 2, ..Gate::default() };
    let (kit, named, other) = (gated(&store, rule), agent("a"), foreign("a"));
    let new = kit.entering(NewRun { agent_name: Some("clerk".into()), ..kit.new_run(&named, START) });
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    let at = START.plus_ms(7);
    kit.advance(&named, calls(&[LOOKUP, CHARGE]), at).await;
    let interrupt = open(&kit, &named).await;
    assert_eq!((interrupt.needs, interrupt.until, interrupt.shows.is_some()), (2, Some(at.plus_ms(5_000)), true));
    let expected = InterruptView { run, agent: named, agent_name: Some("clerk".into()), interrupt, created_at: at, closed: None };
    let (tenant, id) = (&expected.agent.tenant, expected.id());
    assert_eq!(list(&store, tenant, InterruptScan::default()).await, std::slice::from_ref(&expected));
    assert_eq!(store.interrupt(tenant, id).await.unwrap().as_ref(), Some(&expected));
    assert_eq!(list(&store, &other.tenant, everything()).await, []);
    assert_eq!(list(&store, &other.tenant, InterruptScan { run: Some(run), ..everything() }).await, []);
    assert_eq!(store.interrupt(&other.tenant, id).await.unwrap(), None);
    assert_eq!(store.interrupt(tenant, InterruptId { number: id.number + 1, ..id }).await.unwrap(), None);
}

/// The names of the people who approved are kept in their order, and the last one that the rule wants closes the interrupt.
pub async fn approvals_are_recorded_until_there_are_enough(store: Arc<dyn Full>) {
    let (kit, agent) = (gated(&store, Gate { approvers: 3, ..Gate::default() }), agent("a"));
    calling(&kit, &agent, &[CHARGE], START).await;
    let opened = open(&kit, &agent).await;
    for (index, name) in PEOPLE.into_iter().enumerate() {
        kit.advance(&agent, answer(&opened, name, Decision::Approve), START).await;
        let row = list(&store, &agent.tenant, InterruptScan::default()).await.remove(0);
        assert_eq!(row.interrupt, open(&kit, &agent).await);
        assert_eq!(row.interrupt.approvals.len(), index + 1);
        assert!(store.claim_calls(kit.claim(CHARGE, "w", 1, START)).await.unwrap().is_empty());
    }
    let at = START.plus_ms(9);
    kit.advance(&agent, answer(&opened, "last", Decision::Approve), at).await;
    assert_eq!(list(&store, &agent.tenant, InterruptScan::default()).await, []);
    let row = list(&store, &agent.tenant, everything()).await.remove(0);
    assert_eq!(row.interrupt.approvals.iter().map(|name| &**name).collect::<Vec<_>>(), PEOPLE);
    assert_eq!(row.closed, Some(ClosedInterrupt { verdict: Verdict::Approved, by: Some("last".into()), at }));
    assert_eq!(store.claim_calls(kit.claim(CHARGE, "w", 1, at)).await.unwrap().len(), 1);
}

/// An edit gives the call another item, which a claim then gets, and the approvals of the earlier arguments count no more.
pub async fn an_edit_replaces_the_call_and_the_approvals(store: Arc<dyn Full>) {
    let (kit, agent) = (gated(&store, Gate { approvers: 2, ..Gate::default() }), agent("a"));
    calling(&kit, &agent, &[CHARGE], START).await;
    let shown = open(&kit, &agent).await;
    kit.advance(&agent, answer(&shown, "ann", Decision::Approve), START).await;
    let requested = RequestedCall { provider_id: "p".into(), tool: CHARGE.into(), arguments: r#"{"sum":1}"#.into() };
    let item = NewItem::own(kit.item_id(), ItemKind::Call, content::edited_call(CallNumber(1), &requested));
    let edited = item.id;
    let (guard, mut commit) = kit.prepare(&agent, answer(&shown, "bob", Decision::Edit { item: edited }), START).await;
    commit.items.push(item.clone());
    store.commit(guard, commit).await.unwrap();
    let row = list(&store, &agent.tenant, InterruptScan::default()).await.remove(0);
    assert_eq!((row.interrupt.shows, row.interrupt.approvals.as_slice()), (Some(edited), ["bob".into()].as_slice()));
    assert_eq!(row.interrupt, open(&kit, &agent).await);
    assert!(store.claim_calls(kit.claim(CHARGE, "w", 1, START)).await.unwrap().is_empty());
    kit.advance(&agent, answer(&row.interrupt, "ann", Decision::Approve), START).await;
    let row = list(&store, &agent.tenant, everything()).await.remove(0);
    assert_eq!((row.interrupt.shows, row.closed.is_some()), (Some(edited), true));
    let claimed = store.claim_calls(kit.claim(CHARGE, "w", 1, START)).await.unwrap();
    assert_eq!(claimed.iter().map(|call| call.content.clone()).collect::<Vec<_>>(), [item.content]);
}

/// How an interrupt of each kind is made: a call that waits for approval, a question, a write whose outcome is unknown, and a run that is held.
async fn interrupted(store: &Arc<dyn Full>, cause: Cause, agent: &AgentKey) -> (Kit, RunId) {
    let rule = Gate { until_ms: Some(10), ..Gate::default() };
    let last_id = u64::from(agent.agent.as_str().as_bytes()[0]) * 1_000;
    let kit = match cause {
        Cause::Approval => Kit::starting_at(store, last_id).gated(vec![rule]),
        Cause::Budget => Kit::starting_at(store, last_id).of_one_iteration(),
        Cause::Question | Cause::UnknownOutcome | Cause::OwnersLost | Cause::Panicked => Kit::starting_at(store, last_id),
    };
    let tool = if cause == Cause::Question { ASK_PERSON } else { CHARGE };
    let run = calling(&kit, agent, &[tool], START).await;
    match cause {
        Cause::Approval | Cause::Question => {}
        Cause::Budget => {
            kit.report(agent, run, 1, START).await;
            kit.take_report(agent, START).await;
        }
        Cause::UnknownOutcome => drop(kit.advance(agent, Input::LeaseEnded(CallNumber(1)), START).await),
        Cause::OwnersLost | Cause::Panicked => drop(kit.advance(agent, Input::Panicked, START).await),
    }
    (kit, run)
}

/// Every verdict is recorded with its time, and with the name of the person if one decided.
pub async fn every_verdict_is_recorded(store: Arc<dyn Full>) {
    let (late, name) = (START.plus_ms(20), PEOPLE[0]);
    for (index, verdict) in Verdict::ALL.into_iter().enumerate() {
        let cause = match verdict {
            Verdict::Approved | Verdict::Rejected | Verdict::TimedOut => Cause::Approval,
            Verdict::Answered => Cause::Question,
            Verdict::Recorded | Verdict::Released | Verdict::ReportedToModel | Verdict::Reported => Cause::UnknownOutcome,
            Verdict::Raised => Cause::Budget,
            Verdict::Resumed | Verdict::Ended | Verdict::Stopped => Cause::Panicked,
        };
        let agent = agent(&char::from(b'a' + index as u8).to_string());
        let (kit, run) = interrupted(&store, cause, &agent).await;
        let interrupt = open(&kit, &agent).await;
        assert_eq!(interrupt.cause, cause);
        let result = kit.item(ItemKind::Result, b"{}");
        let by_person = |decision| Some(answer(&interrupt, name, decision));
        let input = match verdict {
            Verdict::Approved => by_person(Decision::Approve),
            Verdict::Rejected => by_person(Decision::Reject { comment: "no".into() }),
            Verdict::Recorded => by_person(Decision::Record { status: TaskStatus::Success, item: result.id }),
            Verdict::Answered => by_person(Decision::Answer { item: result.id }),
            Verdict::Released => by_person(Decision::Release),
            Verdict::ReportedToModel => by_person(Decision::Tell),
            Verdict::Raised => by_person(Decision::Raise { limit: 2 }),
            Verdict::Resumed => by_person(Decision::Resume),
            Verdict::Ended => by_person(Decision::End),
            Verdict::TimedOut => Some(Input::InterruptTimedOut(interrupt.number)),
            Verdict::Stopped => Some(stop()),
            Verdict::Reported => None,
        };
        let is_answer = matches!(input, Some(Input::Answered(_)));
        match input {
            Some(input) => {
                let (guard, mut commit) = kit.prepare(&agent, input, late).await;
                commit.items.extend(Some(result).filter(|_| matches!(verdict, Verdict::Recorded | Verdict::Answered)));
                store.commit(guard, commit).await.unwrap();
            }
            None => {
                kit.report(&agent, run, 1, late).await;
                kit.take_report(&agent, late).await;
            }
        }
        let row = store.interrupt(&agent.tenant, InterruptId { run, number: interrupt.number }).await.unwrap().unwrap();
        let by = is_answer.then(|| name.into());
        assert_eq!(row.closed, Some(ClosedInterrupt { verdict, by, at: late }), "{verdict:?}");
        assert_eq!(row.interrupt, Interrupt { budget: None, at: None, ..interrupt }, "the row keeps what was asked");
    }
    assert_eq!(list(&store, &agent("a").tenant, InterruptScan::default()).await, []);
}

/// A call that waits for a service is claimed after its run is resumed, and not while the run is held.
pub async fn a_held_run_hands_out_no_calls(store: Arc<dyn Full>) {
    let (kit, held, free) = (Kit::new(&store), agent("a"), agent("b"));
    let run = calling(&kit, &held, &[LOOKUP, LOOKUP], START).await;
    let claim = |worker| store.claim_calls(kit.claim(LOOKUP, worker, 1, START));
    assert_eq!(claim("w1").await.unwrap().len(), 1);
    kit.advance(&held, Input::Panicked, START).await;
    assert_eq!(claim("w2").await.unwrap(), []);
    let other = calling(&kit, &free, &[LOOKUP], START.plus_ms(1)).await;
    assert_eq!(claim("w3").await.unwrap()[0].run, other, "other runs are not affected");
    let interrupt = open(&kit, &held).await;
    // A report that arrives meanwhile changes the head, which stays held.
    kit.report(&held, run, 1, START).await;
    kit.take_report(&held, START).await;
    assert_eq!(claim("w4").await.unwrap(), []);
    kit.advance(&held, answer(&interrupt, "ann", Decision::Resume), START).await;
    let claimed = claim("w5").await.unwrap();
    assert_eq!((claimed[0].run, claimed[0].call.0), (run, 2));
}

/// A held run that ends leaves a head that is not held: the next run hands out its calls.
pub async fn the_run_after_a_held_one_is_free(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    calling(&kit, &agent, &[LOOKUP], START).await;
    kit.begin(&agent, START).await;
    kit.advance(&agent, Input::Panicked, START).await;
    assert!(kit.advance(&agent, stop(), START).await.next_leased);
    kit.advance(&agent, Input::Entered(Opening::Ask), START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    assert_eq!(store.claim_calls(kit.claim(LOOKUP, "w", 2, START)).await.unwrap().len(), 1);
}

/// A call that is made when its run is entered may be held by the same commit.
pub async fn a_run_may_be_entered_with_an_interrupt(store: Arc<dyn Full>) {
    let (kit, agent) = (gated(&store, Gate::default()), agent("a"));
    let mut new = kit.new_run(&agent, START);
    let Event::Accepted { context, output, caller, .. } = new.accepted else { panic!("the first event") };
    new.accepted = Event::Accepted { origin: Origin::Action, context, output, caller, parent: None };
    new.state = windlass_kernel::apply(None, &new.accepted).unwrap();
    new.kind = MessageKind::UiAction;
    let requested = RequestedCall { provider_id: String::new(), tool: CHARGE.into(), arguments: "{}".into() };
    new.enter = Some(kit.commit(new.run, &new.state, Input::Entered(Opening::Act(requested)), START));
    let run = new.run;
    for _ in 0..2 {
        store.enqueue(new.clone()).await.unwrap();
        let listed = list(&store, &agent.tenant, everything()).await;
        assert_eq!(listed.iter().map(|row| (row.run, row.interrupt.cause)).collect::<Vec<_>>(), [(run, Cause::Approval)]);
    }
    assert_eq!(store.calls(&agent.tenant, run, CallNumber(1), 1).await.unwrap()[0].status, CallStatus::Parked);
}

/// A commit that is sent again changes nothing, and neither does one whose guard no longer holds.
pub async fn a_repeated_commit_writes_its_interrupts_once(store: Arc<dyn Full>) {
    let (kit, agent) = (gated(&store, Gate { approvers: 2, ..Gate::default() }), agent("a"));
    kit.begin(&agent, START).await;
    let (guard, commit) = kit.prepare(&agent, calls(&[CHARGE]), START).await;
    let stale = kit.prepare(&agent, calls(&[CHARGE, CHARGE]), START).await;
    store.commit(guard.clone(), commit.clone()).await.unwrap();
    store.commit(guard, commit).await.unwrap();
    assert!(matches!(store.commit(stale.0, stale.1).await, Err(StoreError::Fenced)));
    assert_eq!(list(&store, &agent.tenant, everything()).await.len(), 1);
    let (guard, commit) = kit.prepare(&agent, answer(&open(&kit, &agent).await, "ann", Decision::Approve), START).await;
    store.commit(guard.clone(), commit.clone()).await.unwrap();
    store.commit(guard, commit).await.unwrap();
    assert_eq!(list(&store, &agent.tenant, everything()).await[0].interrupt.approvals.len(), 1);
}

/// Lists are in the order of time, then of the runs; a page begins after a given row.
pub async fn interrupts_are_listed_page_by_page_and_filtered(store: Arc<dyn Full>) {
    let kit = gated(&store, Gate::default());
    let tenant = agent("").tenant;
    let mut runs = Vec::new();
    for (index, ms) in [5, 3, 3, 9].into_iter().enumerate() {
        let key = agent(&format!("head{index}"));
        let agent_name = (index > 1).then(|| "clerk".into());
        let new = kit.entering(NewRun { agent_name, ..kit.new_run(&key, START) });
        runs.push(new.run);
        store.enqueue(new).await.unwrap();
        kit.advance(&key, calls(&[CHARGE, CHARGE]), START.plus_ms(ms)).await;
    }
    kit.advance(&agent("head3"), Input::Panicked, START.plus_ms(9)).await;
    let whole = list(&store, &tenant, InterruptScan::default()).await;
    let order: Vec<RunId> = whole.iter().map(|row| row.run).collect();
    assert_eq!(order, [1, 1, 2, 2, 0, 0, 3, 3, 3].map(|index| runs[index]));
    assert!(whole.iter().map(|row| (row.created_at, row.id())).is_sorted());
    for limit in [1, 2, 4] {
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = store.interrupts(&tenant, &InterruptScan { limit, after, ..InterruptScan::default() }).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some((last.created_at, last.id()));
            paged.extend(page);
        }
        assert_eq!(paged, whole);
    }
    kit.advance(&agent("head1"), answer(&whole[0].interrupt, "ann", Decision::Reject { comment: String::new() }), START).await;
    let count = async |scan: InterruptScan| list(&store, &tenant, scan).await.len();
    assert_eq!((count(InterruptScan::default()).await, count(everything()).await), (8, 9));
    for with_closed in [false, true] {
        let scan = || InterruptScan { with_closed, ..InterruptScan::default() };
        let closed = usize::from(with_closed);
        assert_eq!(count(InterruptScan { run: Some(runs[1]), ..scan() }).await, 1 + closed);
        assert_eq!(count(InterruptScan { cause: Some(Cause::Approval), ..scan() }).await, 7 + closed);
        assert_eq!(count(InterruptScan { cause: Some(Cause::Panicked), run: Some(runs[3]), ..scan() }).await, 1);
        assert_eq!(count(InterruptScan { agent: Some("clerk".into()), ..scan() }).await, 5);
        assert_eq!(count(InterruptScan { agent: Some("head1".into()), ..scan() }).await, 1 + closed);
        assert_eq!(count(InterruptScan { agent: Some("head2".into()), ..scan() }).await, 0, "the run has a named agent");
    }
    let after = Some((whole[6].created_at, whole[6].id()));
    let rest = list(&store, &tenant, InterruptScan { run: Some(runs[3]), after, ..InterruptScan::default() }).await;
    assert_eq!(rest, whole[7..]);
}

/// Interrupts are erased with the content of their run.
pub async fn interrupts_are_erased_with_their_run(store: Arc<dyn Full>) {
    let (kit, gone, stays) = (gated(&store, Gate::default()), agent("a"), agent("b"));
    let erased = calling(&kit, &gone, &[CHARGE], START).await;
    let kept = calling(&kit, &stays, &[CHARGE], START).await;
    store.erase(gone.tenant.clone(), erased).await.unwrap();
    assert_eq!(list(&store, &gone.tenant, everything()).await.len(), 2, "an open run is not erased");
    kit.advance(&gone, stop(), START).await;
    store.erase(gone.tenant.clone(), erased).await.unwrap();
    let left = list(&store, &gone.tenant, everything()).await;
    assert_eq!(left.iter().map(|row| row.run).collect::<Vec<_>>(), [kept]);
}

/// And with their tenant.
pub async fn tm_05_interrupts_are_erased_with_their_tenant(store: Arc<dyn Full>) {
    let (kit, own, other) = (gated(&store, Gate::default()), agent("a"), foreign("a"));
    for agent in [&own, &other] {
        calling(&kit, agent, &[CHARGE], START).await;
        kit.advance(agent, stop(), START).await;
    }
    let refused = store.erase_tenant(own.tenant.clone(), Default::default(), 100).await.unwrap();
    assert!(matches!(refused, TenantErasure::Erased { .. }), "{refused:?}");
    erase_whole(&store, &own.tenant).await;
    assert_eq!(list(&store, &own.tenant, everything()).await, []);
    assert_eq!(list(&store, &other.tenant, everything()).await.len(), 1);
}

/// A run that is given up because it can't be read leaves nothing for a person to decide.
pub async fn a_run_that_is_given_up_has_no_open_interrupts(store: Arc<dyn Full>) {
    let (kit, agent) = (gated(&store, Gate::default()), agent("a"));
    let run = calling(&kit, &agent, &[CHARGE, CHARGE], START).await;
    let message = NewMessage {
        kind: MessageKind::Answer,
        call: None,
        retry: 0,
        item: None,
        outcome: None,
        after: None,
        source: None,
        reason: None,
        key: None,
    };
    let deliverable = kit.item(ItemKind::Deliverable, b"{\"text\":\"given up\"}");
    store.quarantine(agent.clone(), run, "unreadable".into()).await.unwrap();
    let now = START.plus_ms(3);
    store
        .abandon(agent.clone(), GivenUp { run, node: NODE, deliverable, message, result: kit.item_id(), children: Vec::new(), now })
        .await
        .unwrap();
    let closed = Some(ClosedInterrupt { verdict: Verdict::Stopped, by: None, at: now });
    let rows = list(&store, &agent.tenant, everything()).await;
    assert_eq!(rows.into_iter().map(|row| row.closed).collect::<Vec<_>>(), [closed.clone(), closed]);
}

/// The totals count the open interrupts of all tenants.
pub async fn open_interrupts_are_counted_by_cause(store: Arc<dyn Full>) {
    let kit = gated(&store, Gate::default());
    let counted = async || {
        let totals = store.totals().await.unwrap();
        (totals.open_interrupts.into_iter().collect::<BTreeMap<_, _>>(), totals.oldest_interrupt)
    };
    assert_eq!(counted().await, (BTreeMap::new(), None));
    let (own, other) = (agent("a"), foreign("a"));
    calling(&kit, &own, &[CHARGE], START.plus_ms(2)).await;
    calling(&kit, &other, &[CHARGE, CHARGE], START.plus_ms(1)).await;
    kit.advance(&own, Input::Panicked, START.plus_ms(3)).await;
    assert_eq!(counted().await, (BTreeMap::from([(Cause::Approval, 3), (Cause::Panicked, 1)]), Some(START.plus_ms(1))));
    kit.advance(&other, stop(), START.plus_ms(4)).await;
    assert_eq!(counted().await, (BTreeMap::from([(Cause::Approval, 1), (Cause::Panicked, 1)]), Some(START.plus_ms(2))));
}

/// A run without an interrupt leaves no rows.
pub async fn a_run_without_interrupts_has_no_rows(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let run = calling(&kit, &agent, &[CHARGE], START).await;
    kit.report(&agent, run, 1, START).await;
    let pending = kit.load(&agent).await.pending[0].clone();
    let (guard, mut commit) = kit.prepare(&agent, report_input(&pending), START).await;
    commit.consumed.push(pending.id);
    assert!(commit.interrupts.is_empty());
    store.commit(guard, commit).await.unwrap();
    kit.advance(&agent, final_reply("done"), START).await;
    assert_eq!(list(&store, &agent.tenant, everything()).await, []);
}

/// What an earlier version could have left in the recorded database of schema 11 besides the parked call of `bob`: the run of `ada` is parked
/// as a whole.
pub const PARK_ADA: &str = "INSERT INTO stretches (run, first, epoch, at, version, events)
    SELECT run, 4, 1, 1795033999000, 1, '[[\"parked\",{\"reason\":\"owners_lost\"}]]' FROM heads WHERE agent = 'ada'";

/// The state of this run can't be read.
pub const DAMAGE_BOB: &str = "UPDATE runs SET state_version = 99 WHERE agent = 'bob'";

/// Checks the interrupts of the recorded database after `PARK_ADA`, and answers them.
pub async fn check_interrupts_of_an_earlier_version(store: &Arc<dyn Full>, with_bob: bool) {
    let [ada, bob] = ["ada", "bob"].map(|name| AgentKey { tenant: "default".into(), agent: name.into() });
    let listed = list(store, &ada.tenant, everything()).await;
    let found: Vec<_> = listed.iter().map(|row| (&row.agent, row.interrupt.number, row.interrupt.cause, row.interrupt.call)).collect();
    let of_ada = (&ada, 4, Cause::OwnersLost, None);
    match with_bob {
        true => assert_eq!(found, [(&bob, 4, Cause::UnknownOutcome, Some(CallNumber(1))), of_ada]),
        false => assert_eq!(found, [of_ada]),
    }
    for row in &listed {
        let event = store.journal(&ada.tenant, row.run, row.interrupt.number, 1).await.unwrap().remove(0);
        assert_eq!((event.at, &row.closed, row.interrupt.needs), (row.created_at, &None, 1));
    }
    let kit = Kit::new(store);
    let now = listed[0].created_at.plus_ms(1_000_000);
    let claim = || store.claim_calls(windlass_ports::CallClaim { tenant: ada.tenant.clone(), ..kit.claim("echo", "w", 5, now) });
    assert_eq!(claim().await.unwrap(), []);
    kit.advance(&ada, answer(&open(&kit, &ada).await, "ann", Decision::Resume), now).await;
    assert_eq!(claim().await.unwrap().len(), 1);
    if with_bob {
        kit.advance(&bob, answer(&open(&kit, &bob).await, "ann", Decision::Tell), now).await;
    }
    assert_eq!(list(store, &ada.tenant, InterruptScan::default()).await, []);
}
