//! How values are encoded for the database: integers are signed, ids are bytes, names of variants are checked when they are read, and text
//! is escaped where PostgreSQL could not hold it.

use std::{borrow::Cow, cell::Cell, error::Error};

use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};
use windlass_kernel::{
    AgentKey, BoxId, BoxRange, CallNumber, Cause, ChunkLengths, ConversationId, Epoch, HeadStatus, Interrupt, ItemId, ItemKind, OnTimeout,
    ParentCall, RunId, Seq, TaskStatus, Timestamp, ToolName, Verdict,
};
use windlass_ports::{
    AgentSummary, CallStatus, ClosedInterrupt, ErrorDetail, InterruptView, Lineage, MessageId, MessageKind, MessageStatus, NodeId,
    OpenRequest, OutboxRow, Part, RequestHash, RunStatus, StoreError, codec,
};

use crate::{
    journal_batch::{self, JournalBatch},
    rows::{
        AnswerRow, BoxRow, CallRow, ConversationRow, DeltaRow, HeadRow, ItemRow, JournalRow, MessageRow, Result, RunBrief, RunRow,
        unpack_calls, unpack_names,
    },
    spelling,
};

/// Text that is sent to the database. PostgreSQL's text holds everything but NUL, and names, keys and reasons come from outside. So a NUL
/// is written as a backslash and a zero, and a backslash as two, which keeps text readable for people who look at a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a str);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(escaped(self.0).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        <&str as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', '\\']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\\', "\\\\").replace('\0', "\\0"))
}

pub(super) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut whole = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        whole.push(match char {
            '\\' if chars.next() == Some('0') => '\0',
            other => other,
        });
    }
    Cow::Owned(whole)
}

/// A number as PostgreSQL holds it. The numbers of the store never come near the limit.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A limit as PostgreSQL takes it.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The columns of a row, one after the other.
pub(super) struct Columns {
    row: Row,
    next: Cell<usize>,
}

impl Columns {
    pub(super) fn of(row: Row) -> Self {
        Columns { row, next: Cell::new(0) }
    }

    fn get<'a, T: FromSql<'a>>(&'a self) -> Result<T> {
        let index = self.next.replace(self.next.get() + 1);
        self.row.try_get(index).map_err(|error| StoreError::Corrupt(ErrorDetail::of(format!("a column cannot be read: {error}"), error)))
    }

    pub(super) fn number(&self) -> Result<i64> {
        self.get()
    }

    pub(super) fn count(&self) -> Result<u64> {
        u64::try_from(self.number()?).map_err(|_| nonsense("a count is below zero"))
    }

    pub(super) fn maybe_number(&self) -> Result<Option<i64>> {
        self.get()
    }

    pub(super) fn yes(&self) -> Result<bool> {
        self.get()
    }

    fn small(&self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| nonsense("a small count is not one"))
    }

    fn time(&self) -> Result<Timestamp> {
        self.number().map(Timestamp)
    }

    fn maybe_time(&self) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp))
    }

    fn maybe_epoch(&self) -> Result<Option<Epoch>> {
        Ok(self.get::<Option<i64>>()?.map(|number| Epoch(number.unsigned_abs())))
    }

    fn version(&self) -> Result<u16> {
        u16::try_from(self.number()?).map_err(|_| nonsense("a version is not one"))
    }

    pub(super) fn text(&self) -> Result<String> {
        Ok(unescaped(self.get::<&str>()?).into_owned())
    }

    pub(super) fn maybe_text(&self) -> Result<Option<String>> {
        Ok(self.get::<Option<&str>>()?.map(|text| unescaped(text).into_owned()))
    }

    pub(super) fn content(&self) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(self.get::<&[u8]>()?))
    }

    pub(super) fn bytes<const N: usize>(&self) -> Result<[u8; N]> {
        self.get::<&[u8]>()?.try_into().map_err(|_| nonsense("bytes are not as many as they must be"))
    }

    pub(super) fn id<T>(&self, read: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
        self.maybe_id(read)?.ok_or_else(|| nonsense("an id is missing"))
    }

    fn maybe_id<T>(&self, read: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>> {
        match self.get::<Option<&[u8]>>()? {
            None => Ok(None),
            Some(bytes) => read(bytes).map(Some).ok_or_else(|| nonsense("an id has not sixteen bytes")),
        }
    }

    fn variant<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.maybe_variant(parse)?.ok_or_else(|| nonsense("a word is missing"))
    }

    fn maybe_variant<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        match self.get::<Option<&str>>()? {
            None => Ok(None),
            Some(text) => parse(text).map(Some).ok_or_else(|| nonsense("an unknown word")),
        }
    }

    pub(super) fn agent(&self) -> Result<AgentKey> {
        let tenant = unescaped(self.get::<&str>()?);
        let agent = unescaped(self.get::<&str>()?);
        Ok(AgentKey { tenant: tenant.as_ref().into(), agent: agent.as_ref().into() })
    }

    pub(super) fn head(&self) -> Result<HeadRow> {
        Ok(HeadRow {
            status: self.variant(HeadStatus::parse)?,
            epoch: Epoch(self.count()?),
            seq: Seq(self.count()?),
            run: self.maybe_id(RunId::from_slice)?,
            owner: self.get::<Option<i64>>()?.map(|node| NodeId(node.unsigned_abs())),
            waiting: self.small()?,
            deadline: self.maybe_time()?,
            wake_at: self.maybe_time()?,
            pending: self.small()?,
            queued: self.small()?,
            runs: self.count()?,
            local: self.small()?,
            quarantined: self.maybe_text()?,
            held: self.yes()?,
        })
    }

    pub(super) fn brief(&self) -> Result<RunBrief> {
        Ok(RunBrief {
            run: self.id(RunId::from_slice)?,
            agent: self.agent()?,
            ordinal: self.count()?,
            status: self.variant(RunStatus::parse)?,
            epoch: self.maybe_epoch()?,
            message: MessageId(self.count()?),
            agent_name: self.maybe_text()?.map(|name| name.as_str().into()),
        })
    }

    pub(super) fn run(&self) -> Result<RunRow> {
        Ok(RunRow {
            brief: self.brief()?,
            kind: self.variant(MessageKind::parse)?,
            dedupe: self.maybe_text()?,
            manifest: self.bytes()?,
            context: self.id(BoxId::from_slice)?,
            output: self.id(BoxId::from_slice)?,
            state_version: self.version()?,
            state: self.content()?,
            iteration: self.small()?,
            lineage: self.lineage()?,
            deliverable: self.maybe_id(ItemId::from_slice)?,
            created_at: self.time()?,
            ended_at: self.maybe_time()?,
            note: self.get::<Option<&[u8]>>()?.map(Bytes::copy_from_slice),
            takes: self.maybe_id(RunId::from_slice)?,
            erase_ms: self.get::<Option<i64>>()?.map(i64::unsigned_abs),
            held_ms: self.count()?,
            follows: self.maybe_id(RunId::from_slice)?,
            unlisted: self.yes()?,
            parent: self.parent()?,
        })
    }

    /// The run, the key of its head and the call that a child run answers.
    fn parent(&self) -> Result<Option<ParentCall>> {
        let (run, head, call) = (self.maybe_id(RunId::from_slice)?, self.maybe_text()?, self.maybe_call()?);
        let (Some(run), Some(head), Some(call)) = (run, head, call) else { return Ok(None) };
        Ok(Some(ParentCall { run, head: head.as_str().into(), call, tainted: false }))
    }

    pub(super) fn agent_summary(&self) -> Result<AgentSummary> {
        Ok(AgentSummary { name: self.text()?.as_str().into(), runs: self.count()?, last_run_at: self.time()? })
    }

    pub(super) fn lineage(&self) -> Result<Lineage> {
        let trace = self.bytes()?;
        Ok(Lineage { trace, caller: None, parent_step: self.maybe_text()?, source: self.maybe_text()?, depth: self.small()? })
    }

    pub(super) fn journal_batch(&self) -> Result<Vec<JournalRow>> {
        let journal_batch = JournalBatch { first: self.count()?, epoch: self.maybe_epoch()?, at: self.time()?, version: self.version()? };
        journal_batch::unpack(&journal_batch, self.get()?)
    }

    pub(super) fn delta(&self) -> Result<DeltaRow> {
        let (first, pieces) = (self.small()?, self.variant(ChunkLengths::decode)?);
        let text = std::str::from_utf8(self.get()?).map_err(|_| nonsense("announced words are no text"))?;
        Ok(DeltaRow { first, pieces, text: text.to_owned() })
    }

    pub(super) fn message(&self) -> Result<(MessageId, MessageRow)> {
        let id = MessageId(self.count()?);
        let row = MessageRow {
            kind: self.variant(MessageKind::parse)?,
            status: self.variant(MessageStatus::parse)?,
            run: self.maybe_id(RunId::from_slice)?,
            epoch: self.maybe_epoch()?,
            call: self.maybe_call()?,
            item: self.maybe_id(ItemId::from_slice)?,
            outcome: self.maybe_variant(TaskStatus::parse)?,
            after: self.maybe_variant(spelling::parse_after)?,
            source: self.maybe_text()?,
            reason: self.maybe_text()?,
            created_at: self.time()?,
            processed_at: self.maybe_time()?,
            below: self.maybe_text()?.and_then(|text| codec::decode_below(&text)),
            retry: self.small()?,
        };
        Ok((id, row))
    }

    fn maybe_call(&self) -> Result<Option<CallNumber>> {
        let number = self.get::<Option<i64>>()?.map(u32::try_from).transpose();
        Ok(number.map_err(|_| nonsense("a call's number is not one"))?.map(CallNumber))
    }

    pub(super) fn call(&self) -> Result<CallRow> {
        Ok(CallRow {
            agent: self.agent()?,
            run: self.id(RunId::from_slice)?,
            call: CallNumber(self.small()?),
            iteration: self.small()?,
            tool: ToolName::from(self.text()?.as_str()),
            route: self.variant(spelling::parse_route)?,
            effect: self.variant(spelling::parse_effect)?,
            status: self.variant(CallStatus::parse)?,
            created_at: self.time()?,
            deadline: self.time()?,
            item: self.id(ItemId::from_slice)?,
            result: self.maybe_id(ItemId::from_slice)?,
            worker: self.maybe_text()?,
            lease_until: self.maybe_time()?,
            attempt: self.small()?,
            claim_key: self.maybe_text()?,
            retry: self.small()?,
        })
    }

    pub(super) fn item(&self) -> Result<ItemRow> {
        Ok(ItemRow {
            id: self.id(ItemId::from_slice)?,
            kind: self.variant(ItemKind::parse)?,
            hash: self.bytes()?,
            content: self.content()?,
            header: self.get::<Option<&[u8]>>()?.map(Bytes::copy_from_slice),
        })
    }

    pub(super) fn found_box(&self) -> Result<BoxRow> {
        let (id, tenant) = (self.id(BoxId::from_slice)?, self.text()?);
        let parent = self.maybe_id(BoxId::from_slice)?;
        let length = self.get::<Option<i64>>()?.map(u32::try_from).transpose().map_err(|_| nonsense("a box's length is not one"))?;
        Ok(BoxRow {
            id,
            tenant: tenant.as_str().into(),
            parent: parent.zip(length).map(|(id, length)| BoxRange { id, length }),
            depth: self.small()?,
            inherited: self.small()?,
            shared: self.yes()?,
        })
    }

    pub(super) fn conversation(&self) -> Result<ConversationRow> {
        let (id, tenant, created_at) = (self.id(ConversationId::from_slice)?, self.text()?, self.time()?);
        let (metadata, version, items) = (self.content()?, self.count()?, self.small()?);
        let tail = self.maybe_id(BoxId::from_slice)?;
        let length = self.get::<Option<i64>>()?.map(u32::try_from).transpose().map_err(|_| nonsense("a box's length is not one"))?;
        let tail = tail.zip(length).map(|(id, length)| BoxRange { id, length });
        Ok(ConversationRow { id, tenant: tenant.as_str().into(), created_at, metadata, version, items, tail, gone: self.content()? })
    }

    pub(super) fn answer(&self) -> Result<AnswerRow> {
        let (tenant, key) = (self.text()?, self.text()?);
        let asked = self.bytes()?;
        let run = self.id(RunId::from_slice)?;
        let message = self.get::<Option<i64>>()?.map(|number| MessageId(number.unsigned_abs()));
        Ok(AnswerRow { tenant: tenant.as_str().into(), key, asked, run, message, lost: unpack_calls(&self.content()?) })
    }

    pub(super) fn interrupt(&self) -> Result<InterruptView> {
        let (agent, run, number) = (self.agent()?, self.id(RunId::from_slice)?, self.count()?);
        let agent_name = self.maybe_text()?.map(|name| name.as_str().into());
        let (cause, call, shows) = (self.variant(Cause::parse)?, self.maybe_call()?, self.maybe_id(ItemId::from_slice)?);
        let (created_at, until) = (self.time()?, self.maybe_time()?);
        let on_timeout = self.variant(OnTimeout::parse)?;
        let needs = u8::try_from(self.number()?).map_err(|_| nonsense("a number of approvals is not one"))?;
        let approvals = unpack_names(self.get()?)?;
        let (verdict, by, at) = (self.maybe_variant(Verdict::parse)?, self.maybe_text()?, self.maybe_time()?);
        let closed = verdict.zip(at).map(|(verdict, at)| ClosedInterrupt { verdict, by: by.map(Into::into), at });
        let interrupt = Interrupt { number, cause, call, shows, until, on_timeout, needs, approvals, budget: None, at: None };
        Ok(InterruptView { run, agent, agent_name, interrupt, created_at, closed })
    }

    pub(super) fn cause_count(&self) -> Result<(Cause, u64, Timestamp)> {
        Ok((self.variant(Cause::parse)?, self.count()?, self.time()?))
    }

    pub(super) fn request(&self) -> Result<OpenRequest> {
        let tenant = self.text()?;
        let (hash, run) = (RequestHash(self.bytes()?), self.id(RunId::from_slice)?);
        let node = NodeId(self.count()?);
        Ok(OpenRequest { tenant: tenant.as_str().into(), hash, run, node, left_at: self.maybe_time()? })
    }

    pub(super) fn part(&self) -> Result<Part> {
        match (self.maybe_id(RunId::from_slice)?, self.maybe_id(BoxId::from_slice)?) {
            (Some(run), None) => Ok(Part::Run(run)),
            (None, Some(id)) => Ok(Part::Items(id)),
            (Some(_), Some(_)) | (None, None) => Err(nonsense("a part of a conversation is two or none")),
        }
    }

    pub(super) fn outbox(&self) -> Result<OutboxRow> {
        Ok(OutboxRow {
            n: self.count()?,
            agent: self.agent()?,
            run: self.id(RunId::from_slice)?,
            first: self.count()?,
            count: self.small()?,
        })
    }
}

fn nonsense(what: &str) -> StoreError {
    StoreError::Corrupt(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_as_it_went() {
        for text in ["", "plain", "naïve \u{1F980}", "\0", "\\", "\\0", "a\0\\0\\\0b", "\\\\0"] {
            let stored = escaped(text);
            assert!(!stored.contains('\0'));
            assert_eq!(unescaped(&stored), text);
        }
        assert_ne!(escaped("\0"), escaped("\\0"));
    }
}
