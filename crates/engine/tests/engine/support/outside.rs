//! The outside of the engine: a publisher that can be down or lose its answers, doorbells that are lost, a line between processes, and a
//! clock on tokio's time.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;
use tokio::{sync::mpsc, time::Instant};
use uuid::Uuid;
use windlass_kernel::Timestamp;
use windlass_ports::{Clock, Doorbell, Ids, Notice, Notifier, Published, Publisher, Ring};

type Hook = Box<dyn Fn(&Published) + Send + Sync>;

/// A publisher that keeps all messages.
#[derive(Default)]
pub struct TestPublisher {
    taken: Mutex<Vec<Published>>,
    /// While down it refuses all messages.
    pub is_down: AtomicBool,
    /// While it hangs it neither accepts nor refuses.
    pub hangs: AtomicBool,
    /// It accepts each message and reports a failure the first time.
    pub loses_answers: AtomicBool,
    hook: Option<Hook>,
}

impl TestPublisher {
    /// A publisher that calls `hook` for each message before accepting it.
    pub fn looking(hook: impl Fn(&Published) + Send + Sync + 'static) -> Self {
        TestPublisher { hook: Some(Box::new(hook)), ..TestPublisher::default() }
    }

    /// Everything accepted, in order, repeats included.
    pub fn taken(&self) -> Vec<Published> {
        self.taken.lock().unwrap().clone()
    }

    /// Everything accepted, each message once, in the order of first arrival.
    pub fn distinct(&self) -> Vec<Published> {
        let mut distinct: Vec<Published> = Vec::new();
        for message in self.taken() {
            match distinct.iter().find(|earlier| earlier.id == message.id) {
                None => distinct.push(message),
                Some(earlier) => assert_eq!(*earlier, message, "the same id, the same message"),
            }
        }
        distinct
    }

    /// The messages accepted on a subject.
    pub fn on(&self, subject: &str) -> Vec<Published> {
        self.distinct().into_iter().filter(|message| message.subject.to_string() == subject).collect()
    }
}

#[async_trait]
impl Publisher for TestPublisher {
    async fn publish(&self, messages: &[Published]) -> Result<(), String> {
        if self.hangs.load(SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_down.load(SeqCst) {
            return Err("down".into());
        }
        if let Some(hook) = &self.hook {
            messages.iter().for_each(hook);
        }
        let mut taken = self.taken.lock().unwrap();
        let is_new = messages.iter().any(|message| taken.iter().all(|earlier| earlier.id != message.id));
        taken.extend(messages.iter().cloned());
        if is_new && self.loses_answers.load(SeqCst) {
            return Err("taken, but nobody is told".into());
        }
        Ok(())
    }
}

/// A doorbell whose rings are all lost.
#[derive(Default)]
pub struct LostBell {
    pub rings: AtomicUsize,
}

impl Doorbell for LostBell {
    fn ring(&self, _ring: Ring) {
        self.rings.fetch_add(1, SeqCst);
    }
}

/// A line between processes on which nothing is lost.
#[derive(Clone, Default)]
pub struct Line {
    ends: Arc<Mutex<Ends>>,
}

type Ends = Vec<(u64, mpsc::Sender<Ring>)>;

struct End {
    node: u64,
    line: Line,
}

impl Line {
    /// The doorbell of this node, and the rings of the others.
    pub fn hang(&self, node: u64) -> (Arc<dyn Doorbell>, mpsc::Receiver<Ring>) {
        let (sender, bells) = mpsc::channel(1000);
        self.ends.lock().unwrap().push((node, sender));
        (Arc::new(End { node, line: self.clone() }), bells)
    }
}

impl Doorbell for End {
    fn ring(&self, ring: Ring) {
        for (node, sender) in self.line.ends.lock().unwrap().iter() {
            if *node != self.node {
                let _ = sender.try_send(ring.clone());
            }
        }
    }
}

/// Tokio's time, so that pausing it pauses everything. It continues from where it was when a process is started again.
pub struct TestClock {
    began: Mutex<(Timestamp, Instant)>,
    last: AtomicI64,
}

impl TestClock {
    pub fn new() -> Self {
        let start = Timestamp(1_700_000_000_000);
        TestClock { began: Mutex::new((start, Instant::now())), last: AtomicI64::new(start.0) }
    }

    /// Counts by the caller's runtime from now on.
    pub fn rebase(&self) {
        *self.began.lock().unwrap() = (Timestamp(self.last.load(SeqCst)), Instant::now());
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let (base, began) = *self.began.lock().unwrap();
        let now = base.plus_ms(Instant::now().saturating_duration_since(began).as_millis() as u64);
        self.last.fetch_max(now.0, SeqCst);
        now
    }
}

/// Ids in increasing order.
#[derive(Default)]
pub struct Counter {
    last: AtomicU64,
}

impl Ids for Counter {
    fn fresh(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.last.fetch_add(1, SeqCst)) + 1)
    }
}

/// Takes notices, after it has refused some.
#[derive(Default)]
pub struct TestNotifier {
    /// The number of attempts that it still refuses.
    pub refuses: AtomicUsize,
    attempts: Mutex<Vec<Notice>>,
}

impl TestNotifier {
    /// Every attempt so far.
    pub fn attempts(&self) -> Vec<Notice> {
        self.attempts.lock().unwrap().clone()
    }
}

#[async_trait]
impl Notifier for TestNotifier {
    async fn notify(&self, notice: &Notice) -> Result<(), String> {
        self.attempts.lock().unwrap().push(notice.clone());
        let refuses = self.refuses.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if refuses { Err("not now".into()) } else { Ok(()) }
    }
}
