//! Requests become runs, wait in the queue, and end.

use std::sync::Arc;

use windlass_kernel::{BoxRange, Epoch, HeadStatus, Input, Opening, RunId, Seq, StreamedText, TaskStatus, fold};
use windlass_ports::{Enqueued, MessageKind, MessageStatus, Page, RunStatus, Withdrawn};

use super::{
    Full,
    fixtures::{Kit, LOOKUP, NODE, START, agent, calls, final_reply, foreign, guard},
};

const ALL: Page = Page { after: 0, limit: 1_000 };

/// Recording, leasing and entering are one commit.
pub async fn an_idle_agent_is_entered_at_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, enqueued) = kit.begin(&agent, START).await;
    let Enqueued::Entered { message, epoch, seq } = enqueued else { panic!("{enqueued:?}") };
    assert_eq!((epoch, seq), (Epoch(1), Seq(1)));
    let loaded = kit.load(&agent).await;
    assert_eq!((loaded.head.status, loaded.head.owner, loaded.head.seq), (HeadStatus::Running, Some(NODE), Seq(1)));
    let active = loaded.run.unwrap();
    assert_eq!((active.id, active.turn, active.state.iteration), (run, None, 1));
    let row = store.inbox(&agent, ALL).await.unwrap().remove(0);
    assert_eq!((row.id, row.status, row.epoch), (message, MessageStatus::Consumed, Some(epoch)));
    let numbers: Vec<u64> = store.journal(&agent.tenant, run, 0, 100).await.unwrap().iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

/// A lease without a worker is due at once, and the message of its turn is pending.
pub async fn without_room_the_run_is_dispatched(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let enqueued = store.enqueue(kit.new_run(&agent, START)).await.unwrap();
    let Enqueued::Dispatched { message, epoch } = enqueued else { panic!("{enqueued:?}") };
    assert_eq!(store.due(START, 10).await.unwrap(), std::slice::from_ref(&agent));
    let loaded = kit.load(&agent).await;
    assert_eq!((loaded.head.status, loaded.head.epoch), (HeadStatus::Dispatched, epoch));
    assert_eq!(loaded.run.unwrap().turn, Some(message));
    assert!(loaded.pending.is_empty(), "a run's own turn is not a message to it");
    let committed = kit.advance(&agent, Input::Entered(Opening::Ask), START).await;
    assert_eq!((committed.epoch, committed.pending), (epoch, 0));
    assert_eq!(store.inbox(&agent, ALL).await.unwrap()[0].status, MessageStatus::Consumed);
    assert!(store.due(START.plus_ms(1), 10).await.unwrap().is_empty());
}

/// Enter, call, report, resume, answer: the journal folds to the state, and the boxes have the conversation.
pub async fn a_whole_run_folds_to_its_state(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (run, _) = kit.begin(&agent, START).await;
    kit.advance(&agent, calls(&[LOOKUP]), START).await;
    let head = store.head(&agent).await.unwrap().unwrap();
    assert_eq!((head.status, head.waiting, head.runs), (HeadStatus::Suspended, 1, 1));
    assert!(head.deadline.is_some());
    kit.report(&agent, run, 1, START.plus_ms(5)).await;
    assert_eq!(kit.take_report(&agent, START.plus_ms(6)).await.pending, 0);
    let committed = kit.advance(&agent, final_reply("done"), START.plus_ms(7)).await;
    assert!(!committed.next_leased);
    let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
    assert_eq!((view.status, view.ordinal, view.kind), (RunStatus::Ended, 1, MessageKind::Turn));
    let events: Vec<_> = store.journal(&agent.tenant, run, 0, 100).await.unwrap().into_iter().map(|entry| entry.event).collect();
    assert_eq!(fold(&events), Some(view.state.clone()));
    let items = store.range_items(&agent.tenant, view.state.output).await.unwrap();
    let kinds: Vec<&str> = items.iter().map(|item| item.kind.as_str()).collect();
    assert_eq!(kinds, ["task.instruction", "tool.call", "tool.result", "task.deliverable"]);
    assert_eq!(view.deliverable, items.last().map(|item| item.id));
    let loaded = kit.load(&agent).await;
    assert_eq!(loaded.head.status, HeadStatus::Idle);
    assert!(loaded.run.is_none());
    assert_eq!(store.calls(&agent.tenant, run, windlass_kernel::CallNumber(0), 10).await.unwrap()[0].status.as_str(), "applied");
}

/// The door's data, of any bytes, and the time of the run's end.
pub async fn a_note_comes_back_with_the_run(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    for note in [None, Some(&b""[..]), Some(b"{\"a\0\xff\"}"), Some(&[7; 20_000])] {
        let mut new = kit.entering(kit.new_run(&agent, START));
        new.note = note.map(bytes::Bytes::copy_from_slice);
        let run = new.run;
        store.enqueue(new).await.unwrap();
        let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
        assert_eq!((view.note.as_deref(), view.ended_at), (note, None));
        kit.advance(&agent, final_reply("done"), START.plus_ms(9)).await;
        let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
        assert_eq!((view.note.as_deref(), view.ended_at), (note, Some(START.plus_ms(9))));
    }
}

/// One later run inherits the calls that a run did not make; a repeated request gets its own run first.
pub async fn calls_are_inherited_by_one_run(store: Arc<dyn Full>) {
    let (kit, tenant) = (Kit::new(&store), agent("a").tenant);
    let (left, _) = kit.begin(&agent("a"), START).await;
    let (kept, _) = kit.begin(&agent("x"), START).await;
    assert_eq!(store.inheriting_run(&tenant, left).await.unwrap(), None);
    let taking = |agent, key: Option<&str>| {
        let mut new = kit.entering(kit.new_run(&agent, START));
        (new.takes, new.dedupe) = (Some(left), key.map(str::to_owned));
        new
    };
    let first = taking(agent("b"), Some("key"));
    assert!(matches!(store.enqueue(first.clone()).await.unwrap(), Enqueued::Entered { .. }));
    assert_eq!(store.inheriting_run(&tenant, left).await.unwrap(), Some(first.run));
    let second = taking(agent("c"), Some("other key"));
    assert_eq!(store.enqueue(second.clone()).await.unwrap(), Enqueued::AlreadyInherited { by: first.run });
    assert!(store.run(&tenant, second.run).await.unwrap().is_none());
    assert!(store.head(&agent("c")).await.unwrap().is_none());
    assert!(store.open_box(&tenant, second.context.id).await.unwrap().is_none());
    assert!(matches!(store.enqueue(first.clone()).await.unwrap(), Enqueued::Duplicate { run, .. } if run == first.run));
    assert!(matches!(store.enqueue(taking(agent("c"), Some("key"))).await.unwrap(), Enqueued::Duplicate { run, .. } if run == first.run));
    kit.advance(&agent("b"), final_reply("done"), START).await;
    assert_eq!(
        store.enqueue(taking(agent("b"), None)).await.unwrap(),
        Enqueued::AlreadyInherited { by: first.run },
        "also when it is over"
    );
    let mut again = kit.new_run(&agent("c"), START);
    again.dedupe = Some("other key".into());
    assert!(matches!(store.enqueue(again).await.unwrap(), Enqueued::Dispatched { .. }), "a refused request used no key");
    assert!(matches!(store.enqueue(taking(foreign("a"), None)).await.unwrap(), Enqueued::Entered { .. }), "tenants are apart");
    assert_eq!(store.inheriting_run(&tenant, left).await.unwrap(), Some(first.run));
    assert_eq!(store.inheriting_run(&tenant, kept).await.unwrap(), None);
}

/// The end of a run leases the next one in the same commit, in the order of their requests.
pub async fn queued_runs_start_in_their_order(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let mut runs: Vec<RunId> = Vec::new();
    for number in 0..4 {
        let (run, enqueued) = kit.begin(&agent, START.plus_ms(number)).await;
        assert_eq!(matches!(enqueued, Enqueued::Queued { .. }), number > 0, "{enqueued:?}");
        runs.push(run);
    }
    let first = store.journal(&agent.tenant, runs[1], 0, 10).await.unwrap();
    assert_eq!((first.len(), first[0].epoch), (1, None));
    for (index, run) in runs.iter().enumerate() {
        let loaded = kit.load(&agent).await;
        assert_eq!((loaded.run.as_ref().unwrap().id, loaded.head.queued), (*run, 3 - index as u32));
        if index > 0 {
            assert_eq!(loaded.head.status, HeadStatus::Dispatched);
            assert_eq!(loaded.head.epoch, Epoch(index as u64 + 1), "each lease has its own epoch");
            assert_eq!(store.due(START.plus_ms(50), 10).await.unwrap().len(), 1);
            kit.advance(&agent, Input::Entered(Opening::Ask), START.plus_ms(50)).await;
        }
        let committed = kit.advance(&agent, final_reply("done"), START.plus_ms(50)).await;
        assert_eq!(committed.next_leased, index < 3);
    }
    assert_eq!(store.head(&agent).await.unwrap().unwrap().status, HeadStatus::Idle);
    assert_eq!(store.run_from(&agent, 3).await.unwrap().unwrap().id, runs[2]);
    assert!(store.run_from(&agent, 5).await.unwrap().is_none());
}

/// A person's action does not queue; nothing of it is stored.
pub async fn an_action_needs_an_idle_agent(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    let mut action = kit.new_run(&agent, START);
    action.kind = MessageKind::UiAction;
    let id = action.run;
    assert_eq!(store.enqueue(action).await.unwrap(), Enqueued::Busy);
    assert!(store.run(&agent.tenant, id).await.unwrap().is_none());
    assert_eq!(store.inbox(&agent, ALL).await.unwrap().len(), 1);
}

/// The same key is the same request, whatever else it has; in another tenant it is another request.
pub async fn a_repeated_key_finds_the_first_run(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let keyed = |agent| {
        let mut new = kit.entering(kit.new_run(&agent, START));
        new.dedupe = Some("key".into());
        new
    };
    let first = keyed(agent("a"));
    let run = first.run;
    let Enqueued::Entered { message, epoch, .. } = store.enqueue(first).await.unwrap() else { panic!("not entered") };
    let again = store.enqueue(keyed(agent("b"))).await.unwrap();
    let expected = Enqueued::Duplicate { run, agent: agent("a"), message, epoch: Some(epoch), queued: false };
    assert_eq!(again, expected);
    assert!(store.head(&agent("b")).await.unwrap().is_none());
    assert!(matches!(store.enqueue(keyed(foreign("a"))).await.unwrap(), Enqueued::Entered { .. }));
}

/// A request whose answer was lost is sent again with the run's own id.
pub async fn a_repeated_run_is_recorded_once(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    kit.begin(&agent, START).await;
    let new = kit.new_run(&agent, START);
    let Enqueued::Queued { message } = store.enqueue(new.clone()).await.unwrap() else { panic!("not queued") };
    let again = store.enqueue(new.clone()).await.unwrap();
    assert_eq!(again, Enqueued::Duplicate { run: new.run, agent: agent.clone(), message, epoch: None, queued: true });
    assert_eq!(store.head(&agent).await.unwrap().unwrap().queued, 1);
}

/// Both limits refuse without storing anything, and an ended run makes room.
pub async fn too_many_runs_are_refused(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let limited = |agent, queued, open| {
        let mut new = kit.entering(kit.new_run(&agent, START));
        new.admission.queued_per_agent_max = queued;
        new.admission.open_per_tenant_max = open;
        store.enqueue(new)
    };
    assert!(matches!(limited(agent("a"), 1, 2).await.unwrap(), Enqueued::Entered { .. }));
    assert!(matches!(limited(agent("a"), 1, 2).await.unwrap(), Enqueued::Queued { .. }));
    assert_eq!(limited(agent("a"), 1, 9).await.unwrap(), Enqueued::AgentFull);
    assert_eq!(limited(agent("b"), 1, 2).await.unwrap(), Enqueued::TenantFull);
    assert!(store.head(&agent("b")).await.unwrap().is_none());
    assert!(matches!(limited(foreign("b"), 1, 2).await.unwrap(), Enqueued::Entered { .. }), "a tenant's limit is its own");
    kit.advance(&agent("a"), final_reply("done"), START).await;
    assert!(matches!(limited(agent("b"), 1, 2).await.unwrap(), Enqueued::Entered { .. }));
}

/// Repeated requests get their runs, whatever would refuse a new run, and whichever requests are in their group.
pub async fn a_repeated_run_is_found_where_no_other_may_enter(store: Arc<dyn Full>) {
    let kit = Kit::new(&store);
    let mut repeats = Vec::new();
    for n in 0..40 {
        let mut new = kit.entering(kit.new_run(&agent(&format!("a{n}")), START));
        match n % 5 {
            0 => new.kind = MessageKind::UiAction,
            1 => new.takes = Some(kit.run_id()),
            _ => {}
        }
        assert!(matches!(store.enqueue(new.clone()).await.unwrap(), Enqueued::Entered { .. }));
        match n % 5 {
            2 => new.admission.queued_per_agent_max = 0,
            3 => new.context.parent = Some(BoxRange { id: kit.box_id(), length: 1 }),
            _ => {}
        }
        new.admission.open_per_tenant_max = 40;
        repeats.push(new);
    }
    let others = (0..40).map(|n| {
        let mut new = kit.entering(kit.new_run(&agent(&format!("b{n}")), START));
        new.admission.open_per_tenant_max = 40;
        new
    });
    let both: Vec<_> = repeats.into_iter().zip(others).collect();
    let ask = both.iter().map(|(again, other)| futures_util::future::join(store.enqueue(again.clone()), store.enqueue(other.clone())));
    let answers = futures_util::future::join_all(ask).await;
    for (n, ((found, refused), (again, _))) in answers.into_iter().zip(&both).enumerate() {
        let found = found.unwrap();
        assert!(matches!(&found, Enqueued::Duplicate { run, .. } if *run == again.run), "{n}: {found:?}");
        assert_eq!(refused.unwrap(), Enqueued::TenantFull, "{n}");
    }
}

/// A queued run can be ended; one that has begun, or belongs to another agent, can't.
pub async fn a_queued_run_can_be_withdrawn(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let (active, _) = kit.begin(&agent, START).await;
    let new = kit.new_run(&agent, START);
    store.enqueue(new.clone()).await.unwrap();
    let (last, _) = kit.begin(&agent, START).await;
    let stop = kit.commit(new.run, &new.state, Input::Stopped { reason: "no".into(), streamed: StreamedText::default() }, START);
    assert_eq!(store.withdraw(foreign("a"), stop.clone()).await.unwrap(), Withdrawn::NotQueued);
    assert_eq!(store.withdraw(agent.clone(), stop.clone()).await.unwrap(), Withdrawn::Done);
    assert_eq!(store.withdraw(agent.clone(), stop).await.unwrap(), Withdrawn::NotQueued);
    let view = store.run(&agent.tenant, new.run).await.unwrap().unwrap();
    assert_eq!((view.status, view.epoch), (RunStatus::Ended, None));
    assert!(view.deliverable.is_some());
    let journal = store.journal(&agent.tenant, new.run, 0, 10).await.unwrap();
    assert_eq!(fold(journal.iter().map(|entry| &entry.event)), Some(view.state));
    let rows = store.inbox(&agent, ALL).await.unwrap();
    assert_eq!(rows.iter().find(|row| row.run == Some(new.run)).unwrap().status, MessageStatus::Skipped);
    assert_eq!(store.head(&agent).await.unwrap().unwrap().queued, 1);
    let state = kit.load(&agent).await.run.unwrap().state;
    let active_stop = kit.commit(active, &state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START);
    assert_eq!(store.withdraw(agent.clone(), active_stop).await.unwrap(), Withdrawn::NotQueued);
    assert!(kit.advance(&agent, final_reply("done"), START).await.next_leased);
    assert_eq!(kit.load(&agent).await.run.unwrap().id, last, "the withdrawn run is passed over");
}

/// A box that does not exist, belongs to another tenant, or is too short starts no run.
pub async fn an_unknown_or_foreign_context_is_refused(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let first = kit.new_run(&agent, START);
    let context = BoxRange { id: first.context.id, length: 1 };
    store.enqueue(first).await.unwrap();
    for (whose, parent) in [
        (foreign("x"), context),
        (agent.clone(), BoxRange { id: kit.box_id(), length: 0 }),
        (agent.clone(), BoxRange { length: 2, ..context }),
    ] {
        let new = kit.new_run_after(&whose, Some(parent), Vec::new(), START);
        assert_eq!(store.enqueue(new.clone()).await.unwrap(), Enqueued::UnknownBox);
        assert!(store.run(&whose.tenant, new.run).await.unwrap().is_none());
    }
    let known = kit.new_run_after(&agent, Some(context), Vec::new(), START);
    assert!(matches!(store.enqueue(known).await.unwrap(), Enqueued::Queued { .. }));
}

/// A run whose budget is used up before it begins ends at once, and its agent is idle.
pub async fn a_run_may_end_as_it_is_entered(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    let mut new = kit.new_run(&agent, START);
    new.enter = Some(kit.commit(new.run, &new.state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START));
    let run = new.run;
    assert!(matches!(store.enqueue(new).await.unwrap(), Enqueued::Entered { .. }));
    let view = store.run(&agent.tenant, run).await.unwrap().unwrap();
    assert_eq!(view.status, RunStatus::Ended);
    assert!(matches!(view.state.phase, windlass_kernel::Phase::Ended { status: TaskStatus::Canceled, .. }));
    assert_eq!(store.head(&agent).await.unwrap().unwrap().status, HeadStatus::Idle);
    assert!(matches!(kit.begin(&agent, START).await.1, Enqueued::Entered { epoch: Epoch(2), .. }));
}

/// A run that is stopped before a worker entered consumes the message of its turn.
pub async fn a_stopped_run_leaves_no_turn_behind(store: Arc<dyn Full>) {
    let (kit, agent) = (Kit::new(&store), agent("a"));
    store.enqueue(kit.new_run(&agent, START)).await.unwrap();
    let loaded = kit.load(&agent).await;
    let run = loaded.run.as_ref().unwrap();
    let stop = kit.commit(run.id, &run.state, Input::Stopped { reason: String::new(), streamed: StreamedText::default() }, START);
    store.commit(guard(&agent, &loaded), stop).await.unwrap();
    assert_eq!(store.inbox(&agent, ALL).await.unwrap()[0].status, MessageStatus::Skipped);
    assert!(store.due(START.plus_ms(1), 10).await.unwrap().is_empty());
    assert!(kit.load(&agent).await.pending.is_empty());
}
