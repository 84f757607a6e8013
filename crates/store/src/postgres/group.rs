//! One transaction for a group of verbs: heads are locked, questions answered, verbs run, and everything is written; two round trips in the
//! usual case.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::future::join4;
use windlass_kernel::{ItemId, Tenant};
use windlass_ports::StoreError;

use super::{
    fetch::{Depth, fetch, lock_heads, numbers},
    flush::Writes,
    member::{Member, VerbState},
    overlay::{Answers, TransactionOverlay},
    pg_error::PgError,
    question::{Answer, Question},
    session::{Connector, Session},
    write_set::WriteSet,
};

/// The most rounds of questions of one verb. A verb that exceeds it has a bug.
const ROUNDS_MAX: usize = 1_000;

/// The number of manifest hashes that are remembered as stored. A forgotten one only causes an unnecessary write.
const KNOWN_MAX: usize = 4_096;

/// A connection that writes.
pub(super) struct WriteConnection {
    connector: Connector,
    session: Option<Session>,
    /// The slot in which this connection counts open runs.
    slot: i64,
    /// Manifests that are known to be stored.
    known: BTreeSet<(Tenant, [u8; 32])>,
}

/// How a transaction without a database error ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything is on disk.
    Written,
    /// A verb failed and keeps its error, so nothing was written.
    Refused,
    /// A verb read a head that is not locked, so nothing was written.
    Unlocked,
}

/// The beginning of a transaction: heads to lock and questions to ask.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) heads: BTreeSet<Question>,
    /// Those of `heads` that are not a verb's own: of its parent and its children.
    pub(super) relatives: BTreeSet<Question>,
    pub(super) questions: BTreeSet<Question>,
}

impl Opening {
    /// What the members declare to need.
    pub(super) fn of(members: &[Box<dyn Member>]) -> Self {
        let wants = || members.iter().map(|member| member.wants());
        let heads = wants().flat_map(|wants| wants.agents.iter().cloned()).map(Question::Head).collect();
        let relatives = wants().flat_map(|wants| wants.agents.iter().skip(1).cloned()).map(Question::Head).collect();
        let mut questions: BTreeSet<Question> = wants().flat_map(|wants| wants.questions.iter().cloned()).collect();
        if let [alone] = members {
            questions.extend(alone.wants().assumed.iter().map(|(question, _)| question.clone()));
        }
        Opening { heads, relatives, questions }
    }
}

impl WriteConnection {
    pub(super) fn new(connector: Connector, slot: i64) -> Self {
        WriteConnection { connector, session: None, slot, known: BTreeSet::new() }
    }

    /// Connects, if there is no connection. An error means that the server was unreachable for the whole retry period.
    pub(super) async fn ready(&mut self) -> Result<&Session, PgError> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = None;
            self.session = Some(self.connector.session().await?);
        }
        self.session.as_ref().ok_or_else(|| PgError::Lost("there is no connection".into()))
    }

    /// Applies verbs in one transaction. After an error nothing was written, unless the connection was lost: then the outcome is unknown.
    pub(super) async fn transact(&mut self, members: &mut [Box<dyn Member>], opening: Opening) -> Result<Ending, PgError> {
        let Some(session) = &self.session else {
            return Err(PgError::Lost("there is no connection".into()));
        };
        let transaction = Transaction { session, members, slot: self.slot, known: &self.known };
        let outcome = transaction.run(opening).await;
        let is_open = match &outcome {
            Ok((Ending::Written, _)) => false,
            Ok((Ending::Refused | Ending::Unlocked, _)) | Err(_) => true,
        };
        let is_lost = matches!(outcome, Err(PgError::Lost(_))) || (is_open && session.client.batch_execute("ROLLBACK").await.is_err());
        if is_lost {
            self.session = None;
        }
        if matches!(outcome, Err(PgError::Again(_))) {
            // A manifest that was stored may have been erased since, by any server.
            self.known.clear();
        }
        let (ending, manifests) = outcome?;
        if ending == Ending::Written {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.extend(manifests);
        }
        Ok(ending)
    }

    /// Runs a verb outside of any transaction, to discover what it reads. True if it ended and wrote nothing: then its answer is valid.
    pub(super) async fn discover_reads(&mut self, member: &mut dyn Member) -> Result<(Opening, bool), PgError> {
        let session = self.ready().await?;
        let (mut answers, no_changes) = (Answers::new(), BTreeMap::new());
        // Numbers that were not reserved: what is written here is discarded.
        let drawn: Vec<u64> = (0..member.wants().numbers as u64).collect();
        let mut known: BTreeSet<Question> = member.wants().questions.iter().cloned().collect();
        for _ in 0..ROUNDS_MAX {
            let found = fetch(session, std::mem::take(&mut known), Depth::ChainAndItems).await?;
            let next = follow_ups(&found);
            answers.extend(found);
            answers.extend(fetch(session, next, Depth::Box).await?);
            let mut overlay = TransactionOverlay::new(&answers, &no_changes, &drawn);
            member.apply(&mut overlay);
            let (missing, _, write_set) = overlay.into_parts();
            if missing.is_empty() {
                let is_idle = write_set.is_empty() && member.state() == VerbState::Done;
                let (heads, questions) = answers.into_keys().partition(|question| matches!(question, Question::Head(_)));
                return Ok((Opening { heads, relatives: BTreeSet::new(), questions }, is_idle));
            }
            known = missing.into_iter().collect();
        }
        Err(too_many_rounds())
    }
}

/// A transaction in progress.
struct Transaction<'a> {
    session: &'a Session,
    members: &'a mut [Box<dyn Member>],
    slot: i64,
    known: &'a BTreeSet<(Tenant, [u8; 32])>,
}

impl Transaction<'_> {
    /// Runs the transaction. Returns the manifests that were stored with it.
    async fn run(self, opening: Opening) -> Result<(Ending, Vec<(Tenant, [u8; 32])>), PgError> {
        let wanted: usize = self.members.iter().map(|member| member.wants().numbers).sum();
        // All servers lock in the same order, so that servers which pin the same manifests can't deadlock.
        let pins: BTreeSet<i64> = self.members.iter().flat_map(|member| &member.wants().pins).copied().collect();
        let pins: Vec<i64> = pins.into_iter().collect();
        let (begun, locked, asked, drawn) = join4(
            self.session.client.batch_execute("BEGIN"),
            lock_heads(self.session, opening.heads.into_iter().collect()),
            fetch(self.session, opening.questions, Depth::Box),
            numbers(self.session, wanted, &pins),
        )
        .await;
        begun?;
        let mut answers: Answers = locked?.into_iter().collect();
        // A child that was recorded while this transaction waited for the head of its parent is not in the snapshot of that statement.
        let is_absent = |question: &Question| matches!(answers.get(question), Some(Answer::Head(None)));
        let absent: Vec<Question> = opening.relatives.into_iter().filter(is_absent).collect();
        if !absent.is_empty() {
            answers.extend(lock_heads(self.session, absent).await?);
        }
        answers.extend(asked?);
        let drawn = drawn?;
        let hashes = self.members.iter().flat_map(|member| &member.wants().hashes).map(|(item, hash)| (*item, *hash)).collect();
        let mut overlays = Overlays::new(self.members, &drawn);
        for _ in 0..ROUNDS_MAX {
            let missing = overlays.run(&answers);
            if overlays.has_failed() {
                return Ok((Ending::Refused, Vec::new()));
            }
            if missing.is_empty() {
                return write(self.session, &overlays.into_write_sets(), &hashes, self.slot, self.known).await;
            }
            if missing.iter().any(|question| matches!(question, Question::Head(_))) {
                return Ok((Ending::Unlocked, Vec::new()));
            }
            answers.extend(fetch(self.session, missing, Depth::ChainAndItems).await?);
        }
        Err(too_many_rounds())
    }
}

async fn write(
    session: &Session,
    write_sets: &[WriteSet],
    hashes: &BTreeMap<ItemId, [u8; 16]>,
    slot: i64,
    known: &BTreeSet<(Tenant, [u8; 32])>,
) -> Result<(Ending, Vec<(Tenant, [u8; 32])>), PgError> {
    let all = write_sets.iter().flat_map(|write_set| &write_set.manifests).filter(|(key, _)| !known.contains(key));
    let manifests: BTreeMap<(Tenant, [u8; 32]), Bytes> = all.cloned().collect();
    Writes { session, write_sets, hashes, slot, manifests: &manifests }.commit().await?;
    Ok((Ending::Written, manifests.into_keys().collect()))
}

/// The members of a transaction, and what each has written so far.
struct Overlays<'a> {
    members: &'a mut [Box<dyn Member>],
    /// `None` for a member that has not run to its end.
    write_sets: Vec<Option<WriteSet>>,
    /// Each member's own inbox numbers.
    numbers: Vec<&'a [u64]>,
    /// What each member may assume. A single member asks instead.
    assumed: Vec<Vec<(Question, Answer)>>,
    opened: BTreeMap<Tenant, i64>,
    has_failed: bool,
}

impl<'a> Overlays<'a> {
    fn new(members: &'a mut [Box<dyn Member>], drawn: &'a [u64]) -> Self {
        let mut left = drawn;
        let mut take = |count: usize| {
            let (own, rest) = left.split_at(count.min(left.len()));
            left = rest;
            own
        };
        let numbers = members.iter().map(|member| take(member.wants().numbers)).collect();
        let write_sets = members.iter().map(|_| None).collect();
        let is_group = members.len() > 1;
        let assumed = members.iter().map(|member| if is_group { member.wants().assumed.clone() } else { Vec::new() }).collect();
        Overlays { members, write_sets, numbers, assumed, opened: BTreeMap::new(), has_failed: false }
    }

    /// Runs every member that is not done. Returns the missing questions.
    fn run(&mut self, answers: &Answers) -> BTreeSet<Question> {
        let mut all_missing = BTreeSet::new();
        let given = self.numbers.iter().zip(&self.assumed);
        for ((member, write_set), (numbers, assumed)) in
            self.members.iter_mut().zip(&mut self.write_sets).zip(given).filter(|((_, write_set), _)| write_set.is_none())
        {
            let mut overlay = TransactionOverlay::new(answers, &self.opened, numbers).assuming(assumed);
            member.apply(&mut overlay);
            let (mut missing, granted, mut written) = overlay.into_parts();
            if missing.is_empty() {
                match member.state() {
                    VerbState::Done => {}
                    VerbState::Fenced => written = WriteSet::default(),
                    VerbState::Failed => {
                        self.has_failed = true;
                        continue;
                    }
                }
                missing.extend(granted.into_iter().filter(|question| !written.claims(question)));
            }
            if !missing.is_empty() {
                all_missing.extend(missing);
                continue;
            }
            for (tenant, change) in &written.open_runs {
                *self.opened.entry(tenant.clone()).or_default() += change;
            }
            *write_set = Some(written);
        }
        all_missing
    }

    fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn into_write_sets(self) -> Vec<WriteSet> {
        self.write_sets.into_iter().flatten().collect()
    }
}

/// The next questions about calls that are claimed: their heads, their runs and the leases on them, their content.
fn follow_ups(answers: &[(Question, Answer)]) -> BTreeSet<Question> {
    let calls = answers.iter().filter_map(|(question, answer)| match (question, answer) {
        (Question::WaitingCalls { .. } | Question::CallsByKey(..) | Question::Call(..), Answer::Calls(calls)) => Some(calls),
        (_, _) => None,
    });
    let about = |call: &crate::rows::CallRow| {
        let content = Question::Item(call.agent.tenant.clone(), call.item);
        [Question::Head(call.agent.clone()), Question::RunBrief(call.run), Question::Claims(call.run), content]
    };
    calls.flatten().flat_map(about).collect()
}

fn too_many_rounds() -> PgError {
    PgError::Failed(StoreError::Corrupt("a verb asks without end".into()))
}
