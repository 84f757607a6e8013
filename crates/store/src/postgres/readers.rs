//! Readers: connections that many reads share, besides those of the writers. Each read is answered without a transaction.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Mutex;
use windlass_kernel::AgentKey;
use windlass_ports::{Loaded, StoreError, StoreTotals};

use super::{
    fetch::{Depth, fetch},
    overlay::{Answers, TransactionOverlay},
    pg_error::PgError,
    question::{Answer, Question},
    session::{Connector, Session, UNREACHABLE_AFTER},
    totals,
};
use crate::{reading, rows::Result};

/// The most rounds of questions of one read.
const ROUNDS_MAX: usize = 10_000;

/// How often an agent is read again because it changed while it was read.
const LOADS_MAX: usize = 32;

/// For this long after a server was found unreachable, further requests fail at once.
const MEMORY: Duration = Duration::from_secs(1);

/// A connection that is made again when it is lost.
pub(super) struct ReadConnection {
    connector: Connector,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    unreachable_since: Option<Instant>,
}

impl ReadConnection {
    pub(super) fn new(connector: Connector) -> Self {
        ReadConnection { connector, state: Mutex::default() }
    }

    /// The session, made again if it was lost. Callers at the same time wait for the same one (single-flight).
    async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        state.session = None;
        if state.unreachable_since.is_some_and(|since| since.elapsed() < MEMORY) {
            return Err(StoreError::Unavailable("the database cannot be reached".into()));
        }
        match self.connector.session().await {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State { session: Some(session.clone()), unreachable_since: None };
                Ok(session)
            }
            Err(pg_error) => {
                state.unreachable_since = Some(Instant::now());
                Err(pg_error.into_error())
            }
        }
    }

    /// Drops a session that can't be used any more.
    async fn drop_session(&self, lost: &Arc<Session>) {
        let mut state = self.state.lock().await;
        if state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, lost)) {
            state.session = None;
        }
    }

    /// Sends a request that may be sent twice. A lost connection is made again.
    pub(super) async fn ask<T, F, A>(&self, ask: F) -> Result<T>
    where
        F: Fn(Arc<Session>) -> A + Send + Sync,
        A: Future<Output = Result<T, PgError>> + Send,
        T: Send,
    {
        let since = Instant::now();
        loop {
            let session = self.session().await?;
            match ask(session.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(PgError::Lost(_) | PgError::Again(_)) if since.elapsed() < UNREACHABLE_AFTER => self.drop_session(&session).await,
                Err(pg_error) => return Err(pg_error.into_error()),
            }
        }
    }
}

/// The connections for reads.
pub(super) struct Readers {
    links: Vec<ReadConnection>,
    next: AtomicUsize,
}

impl Readers {
    pub(super) fn new(connector: &Connector, count: usize) -> Self {
        Readers { links: (0..count).map(|_| ReadConnection::new(connector.clone())).collect(), next: AtomicUsize::new(0) }
    }

    fn link(&self) -> &ReadConnection {
        &self.links[self.next.fetch_add(1, Ordering::Relaxed) % self.links.len()]
    }

    /// Reads. Several questions of one read are not answered from one snapshot: this is for data that never changes once it is stored.
    pub(super) async fn read<T, F>(&self, question: F) -> Result<T>
    where
        F: Fn(&TransactionOverlay<'_>) -> Result<T> + Send + Sync,
        T: Send,
    {
        self.read_deep(Depth::Box, question).await
    }

    /// Sends a request that is no question of an overlay.
    pub(super) async fn ask<T, F, A>(&self, ask: F) -> Result<T>
    where
        F: Fn(Arc<Session>) -> A + Send + Sync,
        A: Future<Output = Result<T, PgError>> + Send,
        T: Send,
    {
        self.link().ask(ask).await
    }

    /// Numbers about the whole database.
    pub(super) async fn totals(&self) -> Result<StoreTotals> {
        self.link().ask(|session| async move { totals::totals(&session).await }).await
    }

    /// Reads boxes together with their parents.
    pub(super) async fn read_deep<T, F>(&self, depth: Depth, question: F) -> Result<T>
    where
        F: Fn(&TransactionOverlay<'_>) -> Result<T> + Send + Sync,
        T: Send,
    {
        let question = &question;
        let read = || self.link().ask(|session| async move { Ok(read_over(&session, depth, question, |_| BTreeSet::new()).await?.0) });
        match read().await {
            // The run may have been erased during the read. Then the second read does not find it at all.
            Err(StoreError::Corrupt(_)) => read().await,
            read => read,
        }
    }

    /// Reads an agent as it was at one moment: if its head changed meanwhile, it is read again.
    pub(super) async fn load(&self, agent: &AgentKey) -> Result<Option<Loaded>> {
        let load = &|overlay: &TransactionOverlay<'_>| reading::load(overlay, agent);
        self.link()
            .ask(|session| async move {
                for _ in 0..LOADS_MAX {
                    let (loaded, answers) = read_over(&session, Depth::Box, load, about_head).await?;
                    let asked = Question::Head(agent.clone());
                    let now = fetch(&session, BTreeSet::from([asked.clone()]), Depth::Box).await?;
                    let head = |answer: Option<Answer>| answer.and_then(|answer| answer.head().ok()).flatten();
                    if head(answers.get(&asked).cloned()) == head(now.into_iter().next().map(|(_, answer)| answer)) {
                        return Ok(loaded);
                    }
                }
                Err(PgError::Failed(StoreError::Unavailable("an agent changes faster than it can be read".into())))
            })
            .await
    }
}

/// Runs a read over an overlay until all its questions are answered. `follow` guesses the next questions.
async fn read_over<T>(
    session: &Session,
    depth: Depth,
    question: &(impl Fn(&TransactionOverlay<'_>) -> Result<T> + Sync),
    follow: impl Fn(&[(Question, Answer)]) -> BTreeSet<Question>,
) -> Result<(T, Answers), PgError> {
    let mut answers = Answers::new();
    let mut next = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let (outcome, missing) = run_once(&answers, question);
        if missing.is_empty() {
            return Ok((outcome?, answers));
        }
        next.extend(missing);
        let found = fetch(session, std::mem::take(&mut next), depth).await?;
        next = follow(&found);
        answers.extend(found);
        next.retain(|question| !answers.contains_key(question));
    }
    Err(PgError::Failed(StoreError::Corrupt("a question asks without end".into())))
}

fn run_once<T>(answers: &Answers, question: &impl Fn(&TransactionOverlay<'_>) -> Result<T>) -> (Result<T>, Vec<Question>) {
    let no_changes = std::collections::BTreeMap::new();
    let overlay = TransactionOverlay::new(answers, &no_changes, &[]);
    let outcome = question(&overlay);
    (outcome, overlay.into_parts().0)
}

/// The questions that a worker asks after a head.
fn about_head(answers: &[(Question, Answer)]) -> BTreeSet<Question> {
    let mut next = BTreeSet::new();
    for (question, answer) in answers {
        if let (Question::Head(agent), Answer::Head(Some(head))) = (question, answer) {
            next.extend(head.run.into_iter().flat_map(|run| [Question::Run(run), Question::Claims(run)]));
            next.extend(head.owner.map(Question::Lives));
            next.extend((head.pending > 0).then(|| Question::Pending(agent.clone())));
        }
        if let Answer::Run(Some(run)) = answer {
            next.insert(Question::Manifest(run.brief.agent.tenant.clone(), run.manifest));
        }
    }
    next
}
