//! Recorded answers to requests with a key, in PostgreSQL: the questions, the writes to an overlay, and the statements that send these
//! writes.

use windlass_kernel::Tenant;

use super::{
    columns::{Columns, Text, int},
    fetch::{Answered, first, keyed},
    flush::{Part, Sent, Writes, column},
    overlay::TransactionOverlay,
    question::{Answer, Question},
    session::Session,
};
use crate::rows::{AnswerReads, AnswerRow, AnswerRows, Result, pack_calls};

pub(super) async fn rows(session: &Session, kind: Vec<Question>) -> Answered {
    let (mut tenants, mut keys) = (Vec::with_capacity(kind.len()), Vec::with_capacity(kind.len()));
    for question in &kind {
        if let Question::RecordedAnswer(tenant, key) = question {
            tenants.push(Text(tenant.as_str()));
            keys.push(Text(key));
        }
    }
    let found = keyed(session, &session.statements.answers, &[&tenants, &keys], kind.len(), Columns::answer).await?;
    first(kind, found, |row| Answer::Recorded(row.map(Box::new)))
}

impl AnswerReads for TransactionOverlay<'_> {
    fn answer(&self, tenant: &Tenant, key: &str) -> Result<Option<AnswerRow>> {
        Ok(self.ask(Question::RecordedAnswer(tenant.clone(), key.to_owned()))?.recorded_answer()?.map(|row| *row))
    }
}

impl AnswerRows for TransactionOverlay<'_> {
    fn insert_answer(&mut self, row: &AnswerRow) -> Result<()> {
        self.write_set.answers.push(row.clone());
        Ok(())
    }
}

impl Writes<'_> {
    /// The statement that only requests with a key need.
    pub(super) fn answering(&self) -> Option<Sent<'_>> {
        let mut rows: Vec<&AnswerRow> = self.all(|write_set| &write_set.answers);
        if rows.is_empty() {
            return None;
        }
        // All servers insert in the same order, so that servers which write the same keys at once can't deadlock.
        rows.sort_unstable_by_key(|row| (&row.tenant, &row.key));
        let part = Part::of(
            &rows,
            [
                column(&rows, |row| Text(row.tenant.as_str())),
                column(&rows, |row| Text(&row.key)),
                column(&rows, |row| row.asked.as_slice()),
                column(&rows, |row| row.run.as_bytes().as_slice()),
                column(&rows, |row| row.message.map(|message| int(message.0))),
                column(&rows, |row| pack_calls(&row.lost)),
            ],
        );
        Some(self.send(&self.session.statements.insert_answers, [part], None))
    }
}
