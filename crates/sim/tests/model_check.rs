//! The model check, and the check of the check.
#![expect(clippy::unwrap_used, reason = "these are tests: a panic is how they fail")]

use std::{fs, io::Write, path::Path, sync::Mutex, thread, time::Instant};

use windlass_sim::{
    check::{Action, Config, Explored, Fact, Facts, Guard, Guards, Promise, Trial, configurations, explore, forgets_nothing, trials},
    tree::{TreeGuard, TreeWorld, explore_tree, tree_trials, tree_worlds},
};

/// The configurations with nine tenths of the states. `scripts/test quick` leaves them out.
const LARGE: [&str; 4] = ["everything once", "a write of this process", "services and time", "a zombie and a crash"];

#[test]
fn every_state_keeps_every_promise() {
    let began = Instant::now();
    let is_quick = std::env::var_os("WINDLASS_QUICK").is_some();
    let mut all = configurations();
    let is_large = |config: &Config| LARGE.contains(&config.name);
    assert_eq!(all.iter().filter(|config| is_large(config)).count(), LARGE.len(), "a large configuration has another name now");
    all.retain(|config| !is_quick || !is_large(config));
    let found = side_by_side(all, |config| explore(config, Guards::all(), None));
    let seconds = began.elapsed().as_secs_f64();
    let mut facts = Facts::default();
    let mut states = 0;
    let mut lines = String::new();
    for (config, found) in &found {
        lines.push_str(&format!("model check: {}: {} states, {} steps, no way round\n", config.name, found.states, found.steps));
        assert!(found.broken.is_none() && found.livelock.is_none(), "{}", story(config, found));
        facts.join(found.facts);
        states += found.states;
    }
    lines.push_str(&format!("model check: {} configurations, {states} states, 0 violations, {seconds:.0} s\n", found.len()));
    print(&lines);
    if is_quick {
        return;
    }
    let missing: Vec<&str> = Fact::ALL.iter().filter(|fact| !facts.has(**fact)).map(|fact| fact.as_str()).collect();
    assert!(missing.is_empty(), "never seen, so nothing is known about it: {missing:?}");
}

#[test]
fn no_guard_can_be_removed() {
    let all = trials();
    let tried: Vec<Guard> = all.iter().map(|trial| trial.guard).collect();
    let untried: Vec<&str> = Guard::ALL.iter().filter(|guard| !tried.contains(guard)).map(|guard| guard.as_str()).collect();
    assert!(untried.is_empty(), "no trial takes these away: {untried:?}");
    let verdicts = side_by_side(all, verdict);
    let caught = verdicts.iter().filter(|(_, verdict)| verdict.is_ok()).count();
    print(&format!("guards removed: {}, caught: {caught}\n", verdicts.len()));
    let blind: Vec<&String> = verdicts.iter().filter_map(|(_, verdict)| verdict.as_ref().err()).collect();
    assert!(blind.is_empty(), "{blind:#?}");
}

/// The guards of the model are those of the product: for each there is a test that shows the real code enforcing it.
#[test]
fn every_guard_is_shown_by_a_test_of_the_product() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let shown = Guard::ALL.iter().map(|guard| (guard.as_str(), guard.shown_by()));
    let of_trees = TreeGuard::ALL.iter().map(|guard| (guard.as_str(), guard.shown_by()));
    for (guard, (folder, name)) in shown.chain(of_trees) {
        let files = fs::read_dir(crates.join(folder)).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let is_there = files.into_iter().any(|path| fs::read_to_string(path).unwrap().contains(&format!("fn {name}(")));
        assert!(is_there, "{guard:?}: there is no {name} in {folder}");
    }
}

#[test]
fn every_state_of_a_tree_keeps_every_promise() {
    let mut lines = String::new();
    for world in tree_worlds() {
        let found = explore_tree(&world, None);
        assert!(found.broken.is_empty(), "{}: {:?}: {:#?}", world.name, found.broken, found.story);
        assert!(found.states <= 300_000, "{} has {} states", world.name, found.states);
        lines.push_str(&format!("model check of trees: {}: {} states, 0 violations\n", world.name, found.states));
    }
    print(&lines);
}

#[test]
fn no_guard_of_a_tree_can_be_removed() {
    let all = tree_trials();
    assert!(TreeGuard::ALL.iter().all(|guard| all.iter().any(|(tried, _)| tried == guard)), "a guard has no trial");
    for (guard, promise) in &all {
        let breaks = |world: &TreeWorld| explore_tree(world, Some(*guard)).broken.contains(promise);
        assert!(tree_worlds().iter().any(breaks), "without {:?} nothing breaks {promise:?}", guard.as_str());
    }
    print(&format!("guards of trees removed: {}, caught: {}\n", all.len(), all.len()));
}

/// Compares the graph with one in which fingerprints leave nothing out: both must have the same states.
#[test]
fn fingerprints_leave_out_only_what_makes_no_difference() {
    let small = trials()
        .into_iter()
        .map(|trial| trial.config)
        .chain(configurations().into_iter().filter(|config| config.keys == [1, 1] || config.is_greedy || config.is_full));
    for (config, outcome) in side_by_side(small.collect(), forgets_nothing) {
        let forgotten = outcome.unwrap_or_else(|why| panic!("{}: {why}", config.name));
        assert!(forgotten.kept <= forgotten.whole);
    }
}

/// Whether the check notices that a guard is missing.
fn verdict(trial: &Trial) -> Result<(), String> {
    let Trial { guard, covered_by, config, breaks } = trial;
    let name = guard.as_str();
    expect_whole(config, &[], None)?;
    let mut removed = covered_by.to_vec();
    if !covered_by.is_empty() {
        expect_whole(config, &[*guard], None)?;
        expect_whole(config, covered_by, Some(*breaks))?;
    }
    removed.push(*guard);
    let found = explore(config, Guards::without(&removed), Some(*breaks));
    match found.broken {
        Some(_) => Ok(()),
        None => Err(format!("without {name:?} nothing breaks {:?} in {:?}; also broken: {:?}", breaks.as_str(), config.name, found.also)),
    }
}

fn expect_whole(config: &Config, removed: &[Guard], promise: Option<Promise>) -> Result<(), String> {
    let found = explore(config, Guards::without(removed), promise);
    // Without a guard there may be a cycle; with all of them there must be none.
    let goes_round = removed.is_empty() && found.livelock.is_some();
    match found.broken {
        None if !goes_round => Ok(()),
        None | Some(_) => Err(format!("without {removed:?} already: {}", story(config, &found))),
    }
}

/// Writes to the terminal directly, because the test runner captures what tests print.
fn print(lines: &str) {
    std::io::stderr().lock().write_all(lines.as_bytes()).unwrap();
}

fn story(config: &Config, found: &Explored) -> String {
    let shown = |story: &[Action]| story.iter().map(|action| format!("\n  {action:?}")).collect::<String>();
    if let Some(livelock) = &found.livelock {
        return format!(
            "{}: it can continue for ever:{}\nand then repeatedly:{}",
            config.name,
            shown(&livelock.story),
            shown(&livelock.round)
        );
    }
    let Some(broken) = &found.broken else { return String::new() };
    format!("{}: {}: {}{}", config.name, broken.promise.as_str(), broken.how, shown(&broken.story))
}

/// Does the same to each element, on as many threads as there are processors, and keeps the order.
fn side_by_side<T: Sync + Send, R: Send>(all: Vec<T>, act: impl Fn(&T) -> R + Sync) -> Vec<(T, R)> {
    let next = Mutex::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let mut place = next.lock().unwrap();
                    let Some(one) = all.get(*place) else { return };
                    let own = *place;
                    *place += 1;
                    drop(place);
                    let result = act(one);
                    results.lock().unwrap().push((own, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(place, _)| *place);
    all.into_iter().zip(results.into_iter().map(|(_, result)| result)).collect()
}
