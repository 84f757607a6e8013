//! All crash points and random moments, within one story.

use std::{collections::BTreeSet, fmt::Write as _, io::Write as _, process::Command, sync::Arc};

use futures_util::StreamExt;
use serde_json::Value;
use windlass_tests::{Store, StreamEvent, binary, responses::Grammar};

use crate::story::{Death, Decision, Story, Telling, essence};

/// The number of servers that run at the same time.
const AT_ONCE: usize = 4;

/// Every point that is passed is tried at its first passage, and at these later ones.
const LATER: [u32; 2] = [2, 5];

/// The number of random moments; many more with WINDLASS_LONG=1.
const MOMENTS: u64 = 40;
const MOMENTS_LONG: u64 = 200;

/// Points that every telling passes.
const PASSED: [&str; 7] =
    ["commit.enqueue", "commit.announce", "commit.suspend", "commit.resume", "commit.end", "effect.model_call", "effect.tool_start"];

/// Which write is interrupted by the death, the first or the second, and what the person then decides about it.
const IN_WRITES: [(usize, &str); 4] = [(1, "tell"), (2, "record"), (1, "release"), (2, "release")];

/// The results of all tellings.
#[derive(Default)]
struct Table {
    died: BTreeSet<String>,
    /// The number of tellings in which a call was parked.
    parked: usize,
    violations: Vec<String>,
}

impl Table {
    fn add(&mut self, more: Table) {
        self.died.extend(more.died);
        self.parked += more.parked;
        self.violations.extend(more.violations);
    }

    /// Asserts that the tellings were as they must be, and returns the end of a table's line.
    fn check(&self, story: &Story) {
        assert!(self.violations.is_empty(), "{}", self.violations.join("\n"));
        assert_eq!(self.parked > 0, story.writes, "{} tellings parked", self.parked);
    }
}

/// Dies at every crash point.
pub async fn at_every_point(story: &'static Story) {
    let points = points();
    let deaths =
        |points: &[String], nth: u32| points.iter().map(|point| (point.clone(), Death::AtPoint(format!("{point}:{nth}")))).collect();
    let mut table = die(story, deaths(&points, 1)).await;
    let passed: Vec<String> = table.died.iter().cloned().collect();
    for nth in LATER {
        table.add(die(story, deaths(&passed, nth)).await);
    }
    let died = &table.died;
    for kind in PASSED {
        for when in ["before", "after"] {
            assert!(died.contains(&format!("{kind}.{when}")), "no telling died {when} {kind}");
        }
    }
    say(&format!(
        "stream deaths ({}, {}): {} points, reached: {}, parked: {}, violations: {}",
        story.name,
        store(),
        points.len(),
        died.len(),
        table.parked,
        table.violations.len()
    ));
    table.check(story);
}

/// Dies at moments that are spread over the whole telling.
pub async fn at_random_moments(story: &'static Story) {
    let moments = if std::env::var_os("WINDLASS_LONG").is_some() { MOMENTS_LONG } else { MOMENTS };
    let seed: u64 = std::process::id().into();
    // Spread over the length of a telling on this machine, each moved a little by the seed.
    let whole = story.tell(Death::Never).await;
    let length = whole.events.last().map_or(0, |last| last.at.duration_since(whole.events[0].at).as_millis() as u64);
    let step = (length / moments).max(1);
    let after = |n: u64| (n * length / moments) + scramble(seed ^ n) % step;
    let deaths = (0..moments).map(|n| (format!("moment {n}"), Death::After(after(n)))).collect();
    let mut table = die(story, deaths).await;
    let in_the_middle = table.died.len();
    // A write is short, so that hardly a moment falls into one. Some deaths wait for a write.
    let in_writes = IN_WRITES.iter().filter(|_| story.writes);
    let cut = die(story, in_writes.map(|(nth, wish)| (format!("in write {nth}, {wish}"), Death::InWrite(*nth, wish))).collect()).await;
    let is_each_cut = cut.parked == cut.died.len();
    let in_a_write = cut.died.len();
    table.add(cut);
    say(&format!(
        "stream deaths ({}, {}): {moments} moments of seed {seed}, in the middle: {in_the_middle}, in a write: {in_a_write}, parked: {}, \
         violations: {}",
        story.name,
        store(),
        table.parked,
        table.violations.len()
    ));
    table.check(story);
    assert!(is_each_cut && in_a_write == if story.writes { IN_WRITES.len() } else { 0 }, "what is cut is parked");
    assert!(in_the_middle as u64 * 2 > moments, "most moments fall into the telling");
}

/// Plays the story once for every death. Returns the deaths that happened, and what was wrong.
async fn die(story: &'static Story, deaths: Vec<(String, Death)>) -> Table {
    let whole = story.tell(Death::Never).await;
    let reference = Arc::new(essence(&whole.events));
    assert_eq!(faults(story, &whole, &reference), Vec::<String>::new(), "the uninterrupted telling");
    let tellings = futures_util::stream::iter(deaths).map(|(name, death)| {
        let reference = reference.clone();
        tokio::spawn(async move {
            let telling = story.tell(death.clone()).await;
            let wrong = faults(story, &telling, &reference).into_iter().map(|fault| format!("{death:?}: {fault}")).collect::<Vec<_>>();
            (name, telling.deaths, !telling.decisions.is_empty(), wrong)
        })
    });
    let outcomes: Vec<_> = tellings.buffer_unordered(AT_ONCE).collect().await;
    let mut table = Table::default();
    for outcome in outcomes {
        match outcome {
            Ok((name, deaths, is_parked, wrong)) => {
                if deaths > 0 {
                    table.died.insert(name);
                }
                table.parked += usize::from(is_parked);
                table.violations.extend(wrong);
            }
            Err(panic) => table.violations.push(format!("a telling panicked: {panic}")),
        }
    }
    table
}

fn faults(story: &Story, telling: &Telling, reference: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut grammar = Grammar::default();
    for event in &telling.events {
        grammar.take(&event.data);
    }
    if grammar.ended().is_none() {
        faults.push("it has no end".to_owned());
    }
    let data = |events: &[StreamEvent]| events.iter().map(|event| event.data.clone()).collect::<Vec<_>>();
    if data(&telling.events) != data(&telling.replayed) {
        faults.push(format!("the replay differs: {}", difference(&data(&telling.events), &data(&telling.replayed))));
    }
    for start in &telling.writes {
        let starts = telling.writes.iter().filter(|other| other.call_id == start.call_id).count();
        let is_let_run = |decision: &&Decision| decision.wish == "release" && Some(&decision.call_id) == start.call_id.as_ref();
        if starts > 1 + telling.decisions.iter().filter(is_let_run).count() {
            faults.push(format!("a write started too often: {:?}", telling.writes));
        }
    }
    if telling.decisions.is_empty() {
        let essence = essence(&telling.events);
        if essence != reference {
            faults.push(difference(&essence, reference));
        }
        let wanted = if story.writes { 2 } else { 0 };
        if telling.writes.len() != wanted {
            faults.push(format!("{} writes started, {wanted} were asked for", telling.writes.len()));
        }
    }
    faults
}

fn difference(events: &[Value], reference: &[Value]) -> String {
    let mut text = format!("{} events, uninterrupted {}", events.len(), reference.len());
    if let Some((n, (event, wanted))) = events.iter().zip(reference).enumerate().find(|(_, (event, wanted))| event != wanted) {
        let _ = write!(text, "; the first that differs is {n}:\n  {event}\n  {wanted}");
    }
    text
}

/// The crash points that the binary lists.
fn points() -> Vec<String> {
    let out = Command::new(binary()).arg("crash-points").output().expect("the binary runs");
    String::from_utf8(out.stdout).expect("points are text").lines().map(str::to_owned).collect()
}

fn store() -> &'static str {
    match Store::of_this_program() {
        Store::Sqlite => "sqlite",
        Store::Postgres => "postgres",
    }
}

/// Prints to stderr directly: libtest captures only what macros print.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn scramble(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}
