//! What a parent gives its children and gets back from them: rights, budgets and taint.

use windlass_kernel::{
    Below, BoxId, BoxRange, Budgets, CallNumber, Event, ItemId, Manifest, OpenCall, Origin, Progress, Route, RunId, TaskStatus, Timestamp,
    budget, fold,
};

use crate::support::setup;

#[test]
fn taint_comes_up_from_children() {
    let range = BoxRange { id: BoxId(uuid::Uuid::nil()), length: 0 };
    let accepted = Event::Accepted { origin: Origin::Turn, context: range, output: range, caller: None, parent: None };
    let tool = setup::tool("helper child");
    let call = OpenCall {
        call: CallNumber(1),
        tool: tool.name,
        route: Route::Child,
        effect: tool.effect,
        after: tool.after_execution,
        untrusted: false,
        deadline: Timestamp::NEVER,
        child: Some(RunId(uuid::Uuid::from_u128(1))),
        retry: 0,
        not_before: None,
        progress: Progress::Begun,
    };
    let reported = |below| Event::Reported {
        call: call.call,
        status: TaskStatus::Success,
        item: ItemId(uuid::Uuid::nil()),
        after: tool.after_execution,
        below,
    };
    let made = Event::CallsInherited { at: Timestamp(0), calls: vec![call.clone()], tainted: false };
    let read = |below| fold([&accepted, &made, &reported(below)]).unwrap().tainted;
    assert!(!read(None) && !read(Some(Box::new(Below { lost: 1, ..Below::default() }))));
    assert!(read(Some(Box::new(Below { tainted: true, ..Below::default() }))));
}

fn names(manifest: &Manifest) -> Vec<&str> {
    manifest.tools.iter().map(|tool| tool.name.as_str()).collect()
}

fn narrowed(child: &str, parent: &str, levels: (u32, u32)) -> Manifest {
    let mut child = Manifest { levels: levels.0, ..setup::parse(child).manifest };
    child.narrow(&Manifest { levels: levels.1, ..setup::parse(parent).manifest });
    child
}

#[test]
fn a_child_may_call_only_what_its_parent_may() {
    let tools = "tools: look, pay write, helper child";
    let free = narrowed(tools, "tools: helper child", (3, 3));
    assert_eq!((names(&free), free.allowed.len(), free.levels), (vec!["look", "pay", "helper"], 0, 2));
    let limited = narrowed(tools, "tools: helper child\nallowed: helper, look", (3, 3));
    assert_eq!((names(&limited), limited.allowed.len()), (vec!["look", "helper"], 2));
    let both = narrowed("tools: look, pay\nallowed: pay, look", "allowed: look, other", (0, 1));
    assert_eq!((names(&both), both.allowed.iter().map(|name| name.as_str()).collect::<Vec<_>>()), (vec!["look"], vec!["look"]));
    let nothing = narrowed("tools: look, pay\nallowed: pay", "allowed: look", (0, 1));
    assert_eq!(names(&nothing), Vec::<&str>::new(), "an empty list would allow everything");
}

#[test]
fn the_last_level_of_a_tree_sees_no_agents() {
    for (own, parents, left) in [(9, 1, 0), (0, 9, 0), (1, 9, 1), (9, 3, 2)] {
        let child = narrowed("tools: look, helper child", "tools: helper child", (own, parents));
        assert_eq!(child.levels, left, "{own} below {parents}");
        assert_eq!(names(&child).contains(&"helper"), left > 0, "{own} below {parents}");
    }
}

#[test]
fn the_rules_of_the_parent_come_before_those_of_the_child() {
    let child = narrowed("gates: pay approve, look", "gates: pay twice, look", (0, 1));
    let rules: Vec<_> = child.gates.iter().map(|gate| (gate.tool.as_deref().unwrap(), gate.approvers)).collect();
    assert_eq!(rules, [("pay", 2), ("look", 0), ("pay", 0)]);
}

#[test]
fn what_is_left_is_shared_out() {
    let setup = setup::parse("tools: helper child\nbudgets: 10 iterations, 9 calls, 101 tokens, 7 children");
    let range = BoxRange { id: BoxId(uuid::Uuid::nil()), length: 0 };
    let accepted = Event::Accepted { origin: setup.origin, context: range, output: range, caller: None, parent: None };
    let mut run = fold([&accepted]).unwrap();
    (run.calls_used, run.children_used, run.lost) = (2, 2, 30);
    run.below = Below { lost: 11, calls: 1, children: 1, ..Below::default() };
    let share = budget::share(&run, &setup.manifest.budgets, 2, Timestamp(0));
    assert_eq!((share.calls, share.tokens, share.children, share.wall_ms), (Some(3), Some(30), Some(2), None));
    let own = Budgets { iterations: 4, calls: Some(1), tokens: None, wall_ms: Some(5), children: Some(9), cost: None };
    let pinned = own.within(share);
    assert_eq!((pinned.iterations, pinned.calls, pinned.tokens, pinned.wall_ms, pinned.children), (4, Some(1), Some(30), Some(5), Some(2)));
    let none = budget::share(
        &run,
        &Budgets { iterations: 1, calls: Some(1), tokens: Some(3), wall_ms: None, children: None, cost: None },
        1,
        Timestamp(0),
    );
    assert_eq!((none.calls, none.tokens, none.children), (Some(0), Some(0), None), "nothing is left");
}
