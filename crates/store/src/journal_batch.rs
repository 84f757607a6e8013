//! The events of one commit as one row: a list of `[kind, body]`, numbered from the first on.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;
use windlass_kernel::{Epoch, Timestamp};
use windlass_ports::{ErrorDetail, StoreError};

use crate::rows::{JournalRow, Result};

/// What the events of a batch have in common.
pub(crate) struct JournalBatch {
    /// The number of the first event.
    pub first: u64,
    /// The epoch under which they were written.
    pub epoch: Option<Epoch>,
    /// The time of the commit.
    pub at: Timestamp,
    /// The version of the bodies.
    pub version: u16,
}

/// Encodes the list. Kinds need no escaping, and bodies are JSON already.
pub(crate) fn pack(rows: &[JournalRow]) -> Result<String> {
    let mut list = String::with_capacity(rows.iter().map(|row| row.body.len() + row.kind.len() + 6).sum());
    let mut before = '[';
    for row in rows {
        let body = std::str::from_utf8(&row.body)
            .map_err(|_| StoreError::Corrupt(format!("the body of a {} event is no text", row.kind).into()))?;
        list.push(before);
        list.push_str("[\"");
        list.push_str(&row.kind);
        list.push_str("\",");
        list.push_str(body);
        list.push(']');
        before = ',';
    }
    list.push(']');
    Ok(list)
}

/// Decodes what `pack` made.
pub(crate) fn unpack(batch: &JournalBatch, list: &str) -> Result<Vec<JournalRow>> {
    let events: Vec<(Cow<'_, str>, &RawValue)> = serde_json::from_str(list)
        .map_err(|error| StoreError::Corrupt(ErrorDetail::of(format!("a stretch of a journal cannot be read: {error}"), error)))?;
    let numbered = (batch.first..).zip(events);
    let rows = numbered.map(|(number, (kind, body))| JournalRow {
        number,
        epoch: batch.epoch,
        at: batch.at,
        kind: Cow::Owned(kind.into_owned()),
        version: batch.version,
        body: Bytes::copy_from_slice(body.get().as_bytes()),
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_back_unchanged() {
        let row = |number, kind: &'static str, body: &'static str| JournalRow {
            number,
            epoch: Some(Epoch(3)),
            at: Timestamp(5),
            kind: kind.into(),
            version: 1,
            body: body.into(),
        };
        let rows = [row(7, "leased", "{}"), row(8, "parked", r#"{"reason":"a \"quoted\", [bracketed] \u0000 word"}"#)];
        let batch = JournalBatch { first: 7, epoch: Some(Epoch(3)), at: Timestamp(5), version: 1 };
        assert_eq!(unpack(&batch, &pack(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn an_invalid_list_is_corrupt() {
        let batch = JournalBatch { first: 0, epoch: None, at: Timestamp(0), version: 1 };
        for list in ["", "{}", "[[1,{}]]", "[[\"leased\"]]", "[[\"leased\",{}"] {
            assert!(matches!(unpack(&batch, list), Err(StoreError::Corrupt(_))), "{list}");
        }
    }
}
