//! Open requests, in PostgreSQL: the questions, the writes to an overlay, and the statements that send these writes.

use windlass_kernel::{Tenant, Timestamp};
use windlass_ports::{LostRequest, NodeId, OpenRequest, ReaderOutcome, ReaderRecord, RequestHash};

use super::{
    columns::{Columns, Text, int, limit as as_limit},
    fetch::{Answered, all, keyed},
    flush::{Part, Sent, Writes, column},
    overlay::TransactionOverlay,
    pg_error::PgError,
    question::{Answer, Question},
    session::Session,
};
use crate::rows::{RequestReads, RequestRows, Result};

pub(super) async fn rows(session: &Session, kind: Vec<Question>) -> Answered {
    let (mut tenants, mut hashes) = (Vec::with_capacity(kind.len()), Vec::with_capacity(kind.len()));
    for question in &kind {
        if let Question::OpenRequests(tenant, hash) = question {
            tenants.push(Text(tenant.as_str()));
            hashes.push(hash.0.as_slice());
        }
    }
    let found = keyed(session, &session.statements.open_requests, &[&tenants, &hashes], kind.len(), Columns::request).await?;
    all(kind, found, Answer::Requests)
}

/// Open requests of servers that are not alive, each with the time at which the server was lost.
pub(super) async fn lost(session: &Session, node: NodeId, limit: usize) -> Result<Vec<LostRequest>, PgError> {
    let rows = session.client.query(&session.statements.lost_requests, &[&int(node.0), &as_limit(limit)]).await?;
    let read = |columns: Columns| {
        let request = columns.request()?;
        Ok(LostRequest { request, lost_at: Timestamp(columns.number()?) })
    };
    rows.into_iter().map(|row| read(Columns::of(row))).collect()
}

pub(super) async fn adopt(session: &Session, request: &OpenRequest, node: NodeId) -> Result<bool, PgError> {
    let OpenRequest { tenant, hash, run, node: from, .. } = request;
    let (hash, run) = (hash.0.as_slice(), run.as_bytes().as_slice());
    let changed =
        session.client.execute(&session.statements.adopt_request, &[&tenant.as_str(), &hash, &run, &int(from.0), &int(node.0)]).await?;
    Ok(changed > 0)
}

impl RequestReads for TransactionOverlay<'_> {
    fn open_requests(&self, tenant: &Tenant, hash: RequestHash) -> Result<Vec<OpenRequest>> {
        self.ask(Question::OpenRequests(tenant.clone(), hash))?.requests()
    }
}

impl RequestRows for TransactionOverlay<'_> {
    fn insert_request(&mut self, request: &OpenRequest) -> Result<()> {
        self.write_set.requests.push(request.clone());
        Ok(())
    }

    fn record_reader(&mut self, record: &ReaderRecord) -> Result<()> {
        self.write_set.readers.push(record.clone());
        Ok(())
    }
}

impl Writes<'_> {
    /// The statements about open requests.
    pub(super) fn requesting(&self) -> Vec<Sent<'_>> {
        let statements = &self.session.statements;
        let opened: Vec<&OpenRequest> = self.all(|write_set| &write_set.requests);
        let records: Vec<&ReaderRecord> = self.all(|write_set| &write_set.readers);
        let closed = records.iter().filter(|record| record.outcome == ReaderOutcome::Closed).map(|record| &record.request).collect();
        let left: Vec<(&OpenRequest, Timestamp)> = records.iter().filter_map(|record| left(record)).collect();
        let mut sent = Vec::new();
        if !opened.is_empty() {
            sent.push(self.send(&statements.insert_requests, [keys(opened)], None));
        }
        if !left.is_empty() {
            sent.push(self.send(&statements.leave_requests, [left_at(left)], None));
        }
        if !records.is_empty() {
            sent.push(self.send(&statements.close_requests, [keys(closed)], None));
        }
        sent
    }
}

fn left(record: &ReaderRecord) -> Option<(&OpenRequest, Timestamp)> {
    match record.outcome {
        ReaderOutcome::Closed => None,
        ReaderOutcome::Left(at) => Some((&record.request, at)),
    }
}

/// Requests by their keys. All servers use the same order, so that they can't deadlock.
fn keys(mut rows: Vec<&OpenRequest>) -> Part<'_> {
    rows.sort_unstable_by_key(|request| (&request.tenant, request.hash, request.run));
    let columns = [
        column(&rows, |request| Text(request.tenant.as_str())),
        column(&rows, |request| request.hash.0.as_slice()),
        column(&rows, |request| request.run.as_bytes().as_slice()),
        column(&rows, |request| int(request.node.0)),
    ];
    Part::of(&rows, columns)
}

fn left_at(mut rows: Vec<(&OpenRequest, Timestamp)>) -> Part<'_> {
    rows.sort_unstable_by_key(|(request, _)| (&request.tenant, request.hash, request.run));
    let columns = [
        column(&rows, |(request, _)| Text(request.tenant.as_str())),
        column(&rows, |(request, _)| request.hash.0.as_slice()),
        column(&rows, |(request, _)| request.run.as_bytes().as_slice()),
        column(&rows, |(request, _)| int(request.node.0)),
        column(&rows, |(_, at)| at.0),
    ];
    Part::of(&rows, columns)
}
