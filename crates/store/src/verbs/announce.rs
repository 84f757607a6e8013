//! Deltas: text of the model is stored before readers see it, with the lengths of the chunks in which they see it.

use windlass_kernel::{ChunkLengths, StreamedText};
use windlass_ports::{Announcement, StoreError};

use crate::rows::{Announces, DeltaRow, Result};

/// Stores a batch of deltas if the run is active under their epoch. The same batch again changes nothing.
pub(crate) fn announce<R: Announces + ?Sized>(rows: &mut R, words: &Announcement) -> Result<()> {
    check_pieces(words)?;
    if !rows.is_active(&words.agent, words.run, words.epoch)? {
        return Err(StoreError::Fenced);
    }
    if rows.pieces_standing(words.run)? != words.first {
        return check_same(&said(rows.deltas(words.run)?), words);
    }
    if words.pieces.is_empty() {
        return Ok(());
    }
    rows.insert_delta(words)
}

/// Checks that the chunks have the length of the text, because the stored text is divided by them when it is read.
pub(crate) fn check_pieces(words: &Announcement) -> Result<()> {
    let mut rest = words.text.as_str();
    for length in &words.pieces.0 {
        let Some((_, behind)) = rest.split_at_checked(*length as usize) else { return Err(misfit(words)) };
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(misfit(words)) }
}

/// Checks whether a batch is stored already, as it is after a lost answer.
pub(crate) fn check_same(standing: &StreamedText, words: &Announcement) -> Result<()> {
    let (first, count) = (words.first as usize, words.pieces.0.len());
    let is_same = standing.chunks.0.get(first..first + count).is_some_and(|pieces| {
        let before = ChunkLengths(standing.chunks.0[..first].to_vec()).bytes();
        pieces == words.pieces.0 && standing.text.get(before..before + words.text.len()) == Some(&words.text)
    });
    if is_same { Ok(()) } else { Err(misfit(words)) }
}

fn misfit(words: &Announcement) -> StoreError {
    StoreError::Corrupt(format!("words of {} from piece {} on do not fit what was announced", words.run, words.first))
}

/// Joins batches to one text.
pub(crate) fn said(rows: Vec<DeltaRow>) -> StreamedText {
    let mut said = StreamedText::default();
    for row in rows {
        said.text += &row.text;
        said.chunks.0.extend(row.pieces.0);
    }
    said
}
