//! Conversations, in memory.

use windlass_kernel::{BoxId, ConversationId};
use windlass_ports::Part;

use super::writes::{MemoryRows, count, must};
use crate::rows::{BoxRow, ConversationReads, ConversationRow, ConversationRows, Result, missing_row};

impl ConversationReads for MemoryRows {
    fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>> {
        Ok(self.conversations.get(&id).cloned())
    }

    fn conversation_parts(&self, id: ConversationId) -> Result<Vec<Part>> {
        Ok(self.conversation_parts.range((id, 0)..=(id, u64::MAX)).map(|(_, part)| *part).collect())
    }
}

impl ConversationRows for MemoryRows {
    fn insert_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        must(self.conversations.insert(row.id, row.clone()), "a conversation")
    }

    fn update_conversation(&mut self, row: &ConversationRow) -> Result<()> {
        let before = self.conversations.get(&row.id).ok_or_else(|| missing_row("a conversation that changes"))?;
        let after = ConversationRow { tenant: before.tenant.clone(), created_at: before.created_at, ..row.clone() };
        self.conversations.put(row.id, after);
        Ok(())
    }

    fn delete_conversation(&mut self, id: ConversationId, gone: &[BoxId]) -> Result<()> {
        self.erase_boxes(gone).iter().for_each(|item| self.remove_item(item));
        let parts: Vec<_> = self.conversation_parts.range((id, 0)..=(id, u64::MAX)).map(|(key, _)| *key).collect();
        parts.iter().for_each(|key| self.conversation_parts.remove(key));
        self.conversations.remove(&id);
        Ok(())
    }

    fn insert_part(&mut self, id: ConversationId, n: u64, part: Part) -> Result<()> {
        must(self.conversation_parts.insert((id, n), part), "a part of a conversation")
    }

    fn bind_box(&mut self, row: &BoxRow) -> Result<()> {
        let before = self.boxes.get(&row.id).cloned().ok_or_else(|| missing_row("a box that waits"))?;
        if let Some(parent) = before.parent {
            count(&mut self.children, parent.id, -1);
        }
        if let Some(parent) = row.parent {
            count(&mut self.children, parent.id, 1);
        }
        self.boxes.put(row.id, BoxRow { parent: row.parent, depth: row.depth, inherited: row.inherited, ..before });
        Ok(())
    }
}
