//! Real faults, with the real binary and real servers: killed and stopped processes, NATS and PostgreSQL unavailable in the middle of work,
//! cut connections, full disks, wrong clocks. After each fault a checker reads the histories.
//!
//! With `WINDLASS_LONG=1` servers are killed for 60 s instead of 20 s.

mod checker;
mod clocks;
mod cluster;
mod crowds;
mod damage;
mod disks;
mod kills;
mod load;
mod notes;
mod outages;

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use tokio::sync::{Mutex, MutexGuard};
use windlass_tests::Listener;

use cluster::Cluster;
use load::Load;

/// The number of tests: the last one prints the sum.
const TESTS: u32 = 19;

static ALONE: Mutex<()> = Mutex::const_new(());
static FAULTS: AtomicU32 = AtomicU32::new(0);
static VIOLATIONS: AtomicU32 = AtomicU32::new(0);
static OVER: AtomicU32 = AtomicU32::new(0);

/// One trial. Trials run one after the other, because each needs the whole machine.
struct Trial {
    name: &'static str,
    began: Instant,
    faults: u32,
    is_judged: bool,
    _alone: MutexGuard<'static, ()>,
}

impl Trial {
    async fn begin(name: &'static str) -> Self {
        let alone = ALONE.lock().await;
        Trial { name, began: Instant::now(), faults: 0, is_judged: false, _alone: alone }
    }

    /// Reads everything back, and fails if anything is wrong.
    async fn judge(&mut self, cluster: &Cluster, load: &Arc<Load>, published: Option<(&Listener, bool)>) {
        load.end();
        let mut wrong = checker::check(&cluster.roads, load).await;
        if let Some((listener, is_whole)) = published {
            wrong.extend(checker::check_published(listener, load, is_whole).await);
        }
        wrong.extend(cluster.complaints());
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let numbers = format!(
            "{} faults, {} turns, {} calls abandoned, {} decisions, {} requests repeated",
            self.faults,
            load.turns.lock().expect("the lock is not poisoned").len(),
            count(&load.abandoned),
            count(&load.decided),
            count(&cluster.roads.repeated),
        );
        self.close(&numbers, &wrong);
    }

    fn close(&mut self, numbers: &str, wrong: &[String]) {
        self.is_judged = true;
        FAULTS.fetch_add(self.faults, Ordering::Relaxed);
        VIOLATIONS.fetch_add(wrong.len() as u32, Ordering::Relaxed);
        say(&format!("{}: {numbers}, {} violations, {:.1} s", self.name, wrong.len(), self.began.elapsed().as_secs_f64()));
        let first: Vec<&String> = wrong.iter().take(20).collect();
        assert!(wrong.is_empty(), "{} violations, of which the first are {first:#?}", wrong.len());
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // A trial without a verdict counts as a violation.
        VIOLATIONS.fetch_add(u32::from(!self.is_judged), Ordering::Relaxed);
        if OVER.fetch_add(1, Ordering::Relaxed) + 1 == TESTS {
            say(&format!("real faults: {}, violations: {}", FAULTS.load(Ordering::Relaxed), VIOLATIONS.load(Ordering::Relaxed)));
        }
    }
}

/// Prints a line past libtest's capture, for the person who runs the tests.
fn say(line: &str) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
