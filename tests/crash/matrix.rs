//! Every crash point of the server, once for each time that a scenario reaches it.
//!
//! That whole product runs on SQLite, and on PostgreSQL with `WINDLASS_LONG=1`. Otherwise PostgreSQL gets every point once, in the first
//! scenario that reaches it: the scenarios and the engine are the same, so that only the transaction of each kind of commit differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    panic::AssertUnwindSafe,
    process::Command,
    sync::Arc,
};

use futures_util::{FutureExt, StreamExt};
use windlass_tests::{NatsServer, Store, binary};

use crate::{
    checks::{self, Outcome},
    scenarios::{self, Scenario},
    world::{Order, World},
};

/// The smallest number of deaths at every point.
const TIMES_MIN: u32 = 3;

/// Kinds of commits that only a stream makes. `tests/streams` covers them.
const IN_STREAMS: [&str; 4] = ["commit.announce.", "commit.cut.", "commit.quiet.", "commit.erase."];

/// The number of servers that run at the same time.
const AT_ONCE: usize = 4;

type Reference = Arc<BTreeMap<String, Outcome>>;

/// One death: a scenario, a point and the number of the passage.
struct Cell {
    scenario: &'static Scenario,
    point: String,
    nth: u32,
    reference: Reference,
    nats: Arc<NatsServer>,
}

/// The result of one death.
struct Verdict {
    scenario: &'static str,
    point: String,
    nth: u32,
    is_reached: bool,
    restarts: u32,
    violations: Vec<String>,
}

/// Plays a scenario once for every chosen passage of a point, and dies there.
pub async fn run() {
    let points = points();
    check_lists(&points);
    let nats = Arc::new(NatsServer::start().await);
    let is_whole = Store::of_this_program() == Store::Sqlite || std::env::var_os("WINDLASS_LONG").is_some();
    let (mut cells, mut product, mut tried) = (Vec::new(), 0, BTreeSet::new());
    for scenario in &scenarios::ALL {
        let reference = Arc::new(reference(scenario, &nats).await);
        for (passed, times) in scenario.passes {
            product += 2 * times;
            let times = if is_whole { *times } else { u32::from(tried.insert(*passed)) };
            let each = ["before", "after"].into_iter().flat_map(|when| (1..=times).map(move |nth| (format!("{passed}.{when}"), nth)));
            cells.extend(each.map(|(point, nth)| Cell { scenario, point, nth, reference: reference.clone(), nats: nats.clone() }));
        }
    }
    // The work is not done in the order of the list, so that slow scenarios share the machine with fast ones.
    cells.sort_by_key(|cell| (cell.nth, cell.point.clone()));
    let mut verdicts: Vec<Verdict> = futures_util::stream::iter(cells)
        .map(|cell| tokio::spawn(die(cell)))
        .buffer_unordered(AT_ONCE)
        .map(|verdict| verdict.expect("a cell catches its own panics"))
        .collect()
        .await;
    let order: BTreeMap<&String, usize> = points.iter().zip(0..).collect();
    verdicts.sort_by_key(|verdict| (order.get(&verdict.point).copied(), verdict.scenario, verdict.nth));
    report(&points, product, &verdicts);
}

/// The crash points that the binary lists, without those that only a stream passes.
fn points() -> Vec<String> {
    let out = Command::new(binary()).arg("crash-points").output().expect("the binary runs");
    let points = String::from_utf8(out.stdout).expect("points are text");
    points.lines().filter(|point| !IN_STREAMS.iter().any(|kind| point.starts_with(kind))).map(str::to_owned).collect()
}

/// Asserts that some scenario passes every point.
fn check_lists(points: &[String]) {
    let passed: BTreeMap<String, u32> =
        scenarios::ALL.iter().flat_map(|scenario| scenario.passes).fold(BTreeMap::new(), |mut most, (name, times)| {
            for when in ["before", "after"] {
                let known: &mut u32 = most.entry(format!("{name}.{when}")).or_default();
                *known = (*known).max(*times);
            }
            most
        });
    for point in points {
        assert!(passed.get(point).is_some_and(|times| *times >= TIMES_MIN), "{point}: it must be tried {TIMES_MIN} times");
    }
    let unknown = passed.keys().find(|point| !points.contains(point));
    assert_eq!(unknown, None, "the binary has no such point");
}

/// The outcomes of the scenario without a death.
async fn reference(scenario: &Scenario, nats: &NatsServer) -> BTreeMap<String, Outcome> {
    let mut world = World::start(Order::Never, nats).await;
    (scenario.play)(&mut world).await;
    world.close().await;
    let outcomes = checks::outcomes(&mut world).await;
    assert_eq!(world.violations, Vec::<String>::new(), "{} without a crash", scenario.name);
    for (name, text) in scenario.delivers {
        assert_eq!(outcomes[*name].delivered(), Some(*text), "{}: {name}", scenario.name);
    }
    outcomes
}

async fn die(cell: Cell) -> Verdict {
    let outcome = AssertUnwindSafe(die_and_restart(&cell)).catch_unwind().await;
    let (is_reached, restarts, violations) = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        (false, 0, vec![text.unwrap_or_else(|| "the scenario panicked".into())])
    });
    Verdict { scenario: cell.scenario.name, point: cell.point, nth: cell.nth, is_reached, restarts, violations }
}

async fn die_and_restart(cell: &Cell) -> (bool, u32, Vec<String>) {
    let point = format!("{}:{}", cell.point, cell.nth);
    let order = if cell.scenario.is_second_start { Order::SecondStart(point) } else { Order::FirstStart(point) };
    let mut world = World::start(order, &cell.nats).await;
    (cell.scenario.play)(&mut world).await;
    world.close().await;
    let outcomes = checks::outcomes(&mut world).await;
    for (name, wanted) in cell.reference.iter() {
        if !outcomes.get(name).is_some_and(|outcome| outcome.is_as(wanted)) {
            world.violations.push(format!("{name} came to {:?}, uninterrupted to {wanted:?}", outcomes.get(name)));
        }
    }
    let is_reached = world.deaths == 1;
    if !is_reached {
        world.violations.push("the point was not reached".into());
    }
    if world.deaths > 1 {
        world.violations.push(format!("the server died {} times for one order", world.deaths));
    }
    (is_reached, world.restarts, world.violations)
}

/// Prints the table to stderr directly: libtest captures only what macros print. `product` is the number of deaths in the whole product.
fn report(points: &[String], product: u32, verdicts: &[Verdict]) {
    let mut table = format!("\n{:<26} {:<7} {:>3}  {:<8} {:>8}  violations\n", "point", "story", "nth", "reached", "restarts");
    for verdict in verdicts {
        let Verdict { scenario, point, nth, is_reached, restarts, violations } = verdict;
        let reached = if *is_reached { "yes" } else { "no" };
        table.push_str(&format!("{point:<26} {scenario:<7} {nth:>3}  {reached:<8} {restarts:>8}  {}\n", violations.len()));
        for violation in violations {
            table.push_str(&format!("    {violation}\n"));
        }
    }
    let reached: BTreeSet<&String> = verdicts.iter().filter(|verdict| verdict.is_reached).map(|verdict| &verdict.point).collect();
    let line = |verdict: &Verdict| {
        let Verdict { scenario, point, nth, violations, .. } = verdict;
        violations.iter().map(|violation| format!("{point}, the {nth}. time in {scenario}: {violation}")).collect::<Vec<_>>()
    };
    let violations: Vec<String> = verdicts.iter().flat_map(line).collect();
    let deaths = verdicts.iter().filter(|verdict| verdict.is_reached).count();
    let (store, all) = (Store::of_this_program().name(), points.len());
    table.push_str(&format!(
        "crash points ({store}): {all}, reached: {}, deaths: {deaths} of {product}, violations: {}\n",
        reached.len(),
        violations.len()
    ));
    std::io::stderr().lock().write_all(table.as_bytes()).expect("the table is printed");
    assert_eq!(violations, Vec::<String>::new(), "the table above has violations");
    assert_eq!(reached.len(), points.len(), "every point is reached");
}
