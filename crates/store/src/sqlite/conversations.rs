//! Conversations, in SQLite.

use rusqlite::{Row, params};
use windlass_kernel::{BoxId, BoxRange, ConversationId, RunId};
use windlass_ports::Part;

use super::{
    columns::{count, id, int, maybe_id, small, time, variant},
    prepared::Prepared,
    statements::SqliteRows,
};
use crate::rows::{BoxRow, ConversationReads, ConversationRow, ConversationRows, Result};

fn conversation(row: &Row<'_>) -> rusqlite::Result<ConversationRow> {
    let tail = maybe_id(row, 6, BoxId::from_slice)?;
    let length: Option<u32> = row.get(7)?;
    Ok(ConversationRow {
        id: id(row, 0, ConversationId::from_slice)?,
        tenant: variant(row, 1, |text| Some(text.into()))?,
        created_at: time(row, 2)?,
        metadata: row.get::<_, Vec<u8>>(3)?.into(),
        version: count(row, 4)?,
        items: small(row, 5)?,
        tail: tail.zip(length).map(|(id, length)| BoxRange { id, length }),
        gone: row.get::<_, Vec<u8>>(8)?.into(),
    })
}

fn part(row: &Row<'_>) -> rusqlite::Result<Part> {
    match maybe_id(row, 0, RunId::from_slice)? {
        Some(run) => Ok(Part::Run(run)),
        None => id(row, 1, BoxId::from_slice).map(Part::Items),
    }
}

impl<P: Prepared> ConversationReads for SqliteRows<P> {
    fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>> {
        let sql = "SELECT conversation, tenant, created_at, metadata, version, items, tail, tail_length, gone FROM conversations
                   WHERE conversation = ?1";
        self.one(sql, [id.as_bytes()], conversation)
    }

    fn conversation_parts(&self, id: ConversationId) -> Result<Vec<Part>> {
        self.all("SELECT run, box FROM conversation_parts WHERE conversation = ?1 ORDER BY n", [id.as_bytes()], part)
    }
}

impl<P: Prepared> ConversationRows for SqliteRows<P> {
    fn insert_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        let sql = "INSERT INTO conversations (conversation, tenant, created_at, metadata, version, items, tail, tail_length, gone)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let params = params![
            row.id.as_bytes(),
            row.tenant.as_str(),
            row.created_at.0,
            row.metadata.as_ref(),
            int(row.version),
            row.items,
            row.tail.as_ref().map(|tail| tail.id.as_bytes()),
            row.tail.map(|tail| tail.length),
            row.gone.as_ref(),
        ];
        self.change(sql, params).map(drop)
    }

    fn update_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        let sql = "UPDATE conversations SET metadata = ?2, version = ?3, items = ?4, tail = ?5, tail_length = ?6, gone = ?7
                   WHERE conversation = ?1";
        let params = params![
            row.id.as_bytes(),
            row.metadata.as_ref(),
            int(row.version),
            row.items,
            row.tail.as_ref().map(|tail| tail.id.as_bytes()),
            row.tail.map(|tail| tail.length),
            row.gone.as_ref(),
        ];
        self.change_one(sql, params, "a conversation that changes")
    }

    fn delete_conversation(&mut self, id: ConversationId, gone: &[BoxId]) -> Result<()> {
        self.truncation.mark();
        self.overwriting(|rows| {
            for own in gone.iter().map(BoxId::as_bytes) {
                rows.change("DELETE FROM items WHERE item IN (SELECT item FROM box_rows WHERE box = ?1 AND position >= 0)", [own])?;
                rows.change("DELETE FROM box_rows WHERE box = ?1", [own])?;
                rows.change("DELETE FROM boxes WHERE box = ?1", [own])?;
            }
            rows.change("DELETE FROM conversation_parts WHERE conversation = ?1", [id.as_bytes()])?;
            rows.change("DELETE FROM conversations WHERE conversation = ?1", [id.as_bytes()]).map(drop)
        })
    }

    fn insert_part(&mut self, id: ConversationId, n: u64, part: Part) -> Result<()> {
        let (run, items) = match &part {
            Part::Run(run) => (Some(run.as_bytes()), None),
            Part::Items(items) => (None, Some(items.as_bytes())),
        };
        let sql = "INSERT INTO conversation_parts (conversation, n, run, box) VALUES (?1, ?2, ?3, ?4)";
        self.change(sql, params![id.as_bytes(), int(n), run, items]).map(drop)
    }

    fn bind_box(&mut self, row: &BoxRow) -> Result<()> {
        let sql = "UPDATE boxes SET parent = ?2, parent_length = ?3, depth = ?4, inherited = ?5 WHERE box = ?1";
        let params = params![
            row.id.as_bytes(),
            row.parent.as_ref().map(|parent| parent.id.as_bytes()),
            row.parent.map(|parent| parent.length),
            row.depth,
            row.inherited,
        ];
        self.change_one(sql, params, "a box that waits")
    }
}
