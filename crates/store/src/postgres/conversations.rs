//! Conversations, in PostgreSQL: the questions, the writes to an overlay, and the statements that send these writes.

use std::collections::BTreeMap;

use windlass_kernel::{BoxId, ConversationId};
use windlass_ports::Part as ConversationPart;

use super::{
    columns::{Columns, Text, int},
    fetch::{Answered, all, first, keyed},
    flush::{Part, Sent, Writes, column},
    overlay::TransactionOverlay,
    question::{Answer, Question},
    session::Session,
};
use crate::rows::{BoxRow, ConversationReads, ConversationRow, ConversationRows, Result, existing_row};

/// The writes of one verb to conversations.
#[derive(Default)]
pub(super) struct ConversationWrites {
    begun: BTreeMap<ConversationId, ConversationRow>,
    changed: BTreeMap<ConversationId, ConversationRow>,
    ended: Vec<ConversationId>,
    /// Boxes that are deleted with deleted conversations.
    pub(super) gone: Vec<BoxId>,
    parts: Vec<(ConversationId, u64, ConversationPart)>,
    pub(super) bound: Vec<BoxRow>,
}

impl ConversationWrites {
    pub(super) fn is_empty(&self) -> bool {
        let ConversationWrites { begun, changed, ended, gone: _, parts, bound } = self;
        begun.is_empty() && changed.is_empty() && ended.is_empty() && parts.is_empty() && bound.is_empty()
    }
}

fn ids(kind: &[Question]) -> Vec<&[u8]> {
    let mut ids = Vec::with_capacity(kind.len());
    for question in kind {
        if let Question::Conversation(id) | Question::ConversationParts(id) = question {
            ids.push(id.as_bytes().as_slice());
        }
    }
    ids
}

pub(super) async fn rows(session: &Session, kind: Vec<Question>) -> Answered {
    let found = keyed(session, &session.statements.conversations, &[&ids(&kind)], kind.len(), Columns::conversation).await?;
    first(kind, found, |row| Answer::Conversation(row.map(Box::new)))
}

pub(super) async fn parts(session: &Session, kind: Vec<Question>) -> Answered {
    let found = keyed(session, &session.statements.conversation_parts, &[&ids(&kind)], kind.len(), Columns::part).await?;
    all(kind, found, Answer::Parts)
}

impl ConversationReads for TransactionOverlay<'_> {
    fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>> {
        let written = &self.write_set.conversations;
        match written.changed.get(&id).or_else(|| written.begun.get(&id)) {
            Some(row) => Ok(Some(row.clone())),
            None => Ok(self.ask(Question::Conversation(id))?.conversation()?.map(|row| *row)),
        }
    }

    fn conversation_parts(&self, id: ConversationId) -> Result<Vec<ConversationPart>> {
        let mut parts = self.ask(Question::ConversationParts(id))?.parts()?;
        parts.extend(self.write_set.conversations.parts.iter().filter(|(whose, ..)| *whose == id).map(|(.., part)| *part));
        Ok(parts)
    }
}

impl ConversationRows for TransactionOverlay<'_> {
    fn insert_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        let before = self.write_set.conversations.begun.insert(row.id, row.clone());
        if before.is_some() { Err(existing_row("a conversation")) } else { Ok(()) }
    }

    fn update_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        self.write_set.conversations.changed.insert(row.id, row.clone());
        Ok(())
    }

    fn delete_conversation(&mut self, id: ConversationId, gone: &[BoxId]) -> Result<()> {
        self.write_set.conversations.ended.push(id);
        self.write_set.conversations.gone.extend(gone);
        Ok(())
    }

    fn insert_part(&mut self, id: ConversationId, n: u64, part: ConversationPart) -> Result<()> {
        self.write_set.conversations.parts.push((id, n, part));
        Ok(())
    }

    fn bind_box(&mut self, row: &BoxRow) -> Result<()> {
        self.write_set.conversations.bound.push(row.clone());
        Ok(())
    }
}

impl Writes<'_> {
    /// The statements that only conversations need. They come after the others, because a box must exist before its parent is replaced.
    pub(super) fn conversing(&self) -> Vec<Sent<'_>> {
        if self.write_sets.iter().all(|write_set| write_set.conversations.is_empty()) {
            return Vec::new();
        }
        let statements = &self.session.statements;
        vec![
            self.send(&statements.insert_conversations, [self.begun()], None),
            self.send(&statements.update_conversations, [self.changed()], Some("a conversation that changes")),
            self.send(&statements.insert_parts, [self.parts()], None),
            self.send(&statements.delete_conversations, [self.ended()], None),
            self.send(&statements.bind_boxes, [self.bound()], Some("a box that waits")),
        ]
    }

    fn begun(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.conversations.begun.values());
        Part::of(
            &rows,
            [
                column(&rows, |row| row.id.as_bytes().as_slice()),
                column(&rows, |row| Text(row.tenant.as_str())),
                column(&rows, |row| row.created_at.0),
                column(&rows, |row| row.metadata.as_ref()),
                column(&rows, |row| int(row.version)),
                column(&rows, |row| i64::from(row.items)),
                column(&rows, |row| row.tail.as_ref().map(|tail| tail.id.as_bytes().as_slice())),
                column(&rows, |row| row.tail.map(|tail| i64::from(tail.length))),
                column(&rows, |row| row.gone.as_ref()),
            ],
        )
    }

    fn changed(&self) -> Part<'_> {
        let rows = self.all(|write_set| write_set.conversations.changed.values());
        Part::of(
            &rows,
            [
                column(&rows, |row| row.id.as_bytes().as_slice()),
                column(&rows, |row| row.metadata.as_ref()),
                column(&rows, |row| int(row.version)),
                column(&rows, |row| i64::from(row.items)),
                column(&rows, |row| row.tail.as_ref().map(|tail| tail.id.as_bytes().as_slice())),
                column(&rows, |row| row.tail.map(|tail| i64::from(tail.length))),
                column(&rows, |row| row.gone.as_ref()),
            ],
        )
    }

    fn parts(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.conversations.parts);
        let run = |part: &ConversationPart| if let ConversationPart::Run(run) = part { Some(run.as_bytes().to_vec()) } else { None };
        let items = |part: &ConversationPart| if let ConversationPart::Items(id) = part { Some(id.as_bytes().to_vec()) } else { None };
        Part::of(
            &rows,
            [
                column(&rows, |(id, ..)| id.as_bytes().as_slice()),
                column(&rows, |(_, n, _)| int(*n)),
                column(&rows, |(.., part)| run(part)),
                column(&rows, |(.., part)| items(part)),
            ],
        )
    }

    fn ended(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.conversations.ended);
        Part::of(&rows, [column(&rows, |id| id.as_bytes().as_slice())])
    }

    fn bound(&self) -> Part<'_> {
        let rows = self.all(|write_set| &write_set.conversations.bound);
        Part::of(
            &rows,
            [
                column(&rows, |row| row.id.as_bytes().as_slice()),
                column(&rows, |row| row.parent.as_ref().map(|parent| parent.id.as_bytes().as_slice())),
                column(&rows, |row| row.parent.map(|parent| i64::from(parent.length))),
                column(&rows, |row| i64::from(row.depth)),
                column(&rows, |row| i64::from(row.inherited)),
            ],
        )
    }
}
