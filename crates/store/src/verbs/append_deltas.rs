//! Deltas: text of the model is stored before readers see it, with the lengths of the chunks in which they see it.

use windlass_kernel::{ChunkLengths, StreamedText};
use windlass_ports::{DeltaBatch, StoreError};

use crate::rows::{Announces, DeltaRow, Result};

/// Stores a batch of deltas if the run is active under their epoch. The same batch again changes nothing.
pub(crate) fn append_deltas<R: Announces + ?Sized>(rows: &mut R, batch: &DeltaBatch) -> Result<()> {
    check_chunks(batch)?;
    if !rows.is_active(&batch.agent, batch.run, batch.epoch)? {
        return Err(StoreError::Fenced);
    }
    if rows.stored_chunks(batch.run)? != batch.first {
        return check_same(&join_deltas(rows.deltas(batch.run)?), batch);
    }
    if batch.pieces.is_empty() {
        return Ok(());
    }
    rows.insert_delta(batch)
}

/// Checks that the chunks have the length of the text, because the stored text is divided by them when it is read.
pub(crate) fn check_chunks(batch: &DeltaBatch) -> Result<()> {
    let mut rest = batch.text.as_str();
    for length in &batch.pieces.0 {
        let Some((_, behind)) = rest.split_at_checked(*length as usize) else { return Err(misfit(batch)) };
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(misfit(batch)) }
}

/// Checks whether a batch is stored already, as it is after a lost answer.
pub(crate) fn check_same(stored: &StreamedText, batch: &DeltaBatch) -> Result<()> {
    let (first, count) = (batch.first as usize, batch.pieces.0.len());
    let is_same = stored.chunks.0.get(first..first + count).is_some_and(|pieces| {
        let before = ChunkLengths(stored.chunks.0[..first].to_vec()).bytes();
        pieces == batch.pieces.0 && stored.text.get(before..before + batch.text.len()) == Some(&batch.text)
    });
    if is_same { Ok(()) } else { Err(misfit(batch)) }
}

fn misfit(batch: &DeltaBatch) -> StoreError {
    StoreError::Corrupt(format!("words of {} from piece {} on do not fit what was announced", batch.run, batch.first).into())
}

/// Joins batches to one text.
pub(crate) fn join_deltas(rows: Vec<DeltaRow>) -> StreamedText {
    let mut joined = StreamedText::default();
    for row in rows {
        joined.text += &row.text;
        joined.chunks.0.extend(row.pieces.0);
    }
    joined
}
