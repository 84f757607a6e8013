//! Abandons an unreadable run. A worker cannot do it, because it would have to load the run.

use windlass_kernel::{ItemId, ItemKind, content};
use windlass_ports::{Abandoned, GivenUp, MessageKind, NewMessage, child_head};

use crate::{
    api::{Abandon, EngineError},
    engine::Engine,
    keys,
};

impl Engine {
    /// Ends the run for which its agent was quarantined, and starts the next one.
    pub async fn abandon(&self, abandon: Abandon) -> Result<(), EngineError> {
        let inner = self.inner();
        let (agent, run) = (abandon.agent, abandon.run);
        let key = keys::scoped("reconcile", &agent.agent, abandon.key);
        if inner.answered(&agent.tenant, key.as_ref()).await?.is_some() {
            return Ok(());
        }
        let text = "what was stored of this turn could not be read, and it was given up";
        let given_up = GivenUp {
            run,
            node: inner.node,
            deliverable: self.item(ItemKind::Deliverable, content::deliverable_text(text.into()))?,
            message: NewMessage {
                kind: MessageKind::Answer,
                call: None,
                retry: 0,
                item: None,
                outcome: None,
                after: None,
                source: abandon.source,
                reason: None,
                key: key.clone(),
            },
            result: ItemId(inner.ids.fresh()),
            children: self.children_of(&agent.tenant, run).await?,
            now: inner.clock.now(),
        };
        let children = given_up.children.clone();
        let outcome = inner.store.abandon(agent.clone(), given_up).await?;
        let Abandoned::Done { next_leased } = outcome else {
            // The same decision may have arrived twice at once.
            return inner.answered(&agent.tenant, key.as_ref()).await?.map(drop).ok_or(EngineError::NotQuarantined);
        };
        let (tenant, node) = (&agent.tenant, inner.node.0);
        tracing::warn!(%tenant, agent = %agent.agent, %run, node, "the run was abandoned: its stored state cannot be read");
        inner.stream_buffers.remove(run);
        inner.notify_watchers(&agent, true);
        children.iter().for_each(|child| inner.wake_relative(&child_head(tenant, *child)));
        if next_leased && !inner.wake_worker(&agent) {
            inner.ring(&agent);
        }
        Ok(())
    }
}
