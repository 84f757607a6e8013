//! Conversations that doors create, change and delete. The store adds what the runs of a conversation produce.

use bytes::Bytes;
use windlass_kernel::{BoxId, ConversationId, ItemId, ItemKind, Tenant};
use windlass_ports::{ConversationChange, ConversationView, Conversed};

use crate::{api::EngineError, engine::Engine};

impl Engine {
    /// Creates a conversation with the items of its history.
    pub async fn begin_conversation(
        &self,
        tenant: &Tenant,
        metadata: Bytes,
        items: Vec<(ItemKind, Bytes)>,
    ) -> Result<ConversationView, EngineError> {
        if self.is_draining() {
            return Err(EngineError::Draining);
        }
        self.admit_content(tenant)?;
        let items = items.into_iter().map(|(kind, content)| self.item(kind, content)).collect::<Result<Vec<_>, _>>()?;
        let id = ConversationId(self.inner().ids.fresh());
        self.converse(tenant, id, ConversationChange::Begin { metadata, id: self.fresh_box(), items }).await
    }

    /// Replaces the metadata of a conversation.
    pub async fn describe_conversation(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        metadata: Bytes,
    ) -> Result<ConversationView, EngineError> {
        self.converse(tenant, id, ConversationChange::Describe { metadata }).await
    }

    /// Adds items to a conversation, which may have `items_max` items afterwards.
    pub async fn add_to_conversation(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        items: Vec<(ItemKind, Bytes)>,
        items_max: u32,
    ) -> Result<ConversationView, EngineError> {
        self.admit_content(tenant)?;
        let items = items.into_iter().map(|(kind, content)| self.item(kind, content)).collect::<Result<Vec<_>, _>>()?;
        self.converse(tenant, id, ConversationChange::Add { id: self.fresh_box(), items, items_max }).await
    }

    /// Removes items from a conversation.
    pub async fn remove_from_conversation(
        &self,
        tenant: &Tenant,
        id: ConversationId,
        items: Vec<ItemId>,
    ) -> Result<ConversationView, EngineError> {
        self.converse(tenant, id, ConversationChange::Remove { id: self.fresh_box(), items }).await
    }

    /// Deletes a conversation and keeps its runs.
    pub async fn end_conversation(&self, tenant: &Tenant, id: ConversationId) -> Result<(), EngineError> {
        self.converse(tenant, id, ConversationChange::End).await.map(drop)
    }

    fn fresh_box(&self) -> BoxId {
        BoxId(self.inner().ids.fresh())
    }

    async fn converse(&self, tenant: &Tenant, id: ConversationId, change: ConversationChange) -> Result<ConversationView, EngineError> {
        let inner = self.inner();
        let conversed = inner.store.converse(tenant.clone(), id, change, inner.clock.now()).await?;
        match conversed {
            Conversed::Done(view) => Ok(view),
            Conversed::Unknown => Err(EngineError::UnknownConversation),
            Conversed::Busy => Err(EngineError::ConversationBusy),
            Conversed::Full => Err(EngineError::ConversationFull),
        }
    }
}
