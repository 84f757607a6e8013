//! How messages reach workers, and how reports are stored if no worker has room.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{AgentKey, CallKey, ItemId, ItemKind, NewItem, content};
use windlass_ports::{ErrorDetail, MessageKind, NewMessage, NewReport, StoreError, Taken};

use crate::{
    api::{EngineError, Reported, ToolResult},
    engine::Inner,
    worker,
    worker_message::WorkerMessage,
    workers::Slot,
};

/// The mailbox of a worker. It can start the worker again if that ends before a message is sent.
pub(crate) struct Mailbox {
    inner: Arc<Inner>,
    agent: AgentKey,
    sender: tokio::sync::mpsc::Sender<WorkerMessage>,
}

impl Mailbox {
    /// Sends a message. If the worker has ended, a new one is started to receive it.
    pub async fn send(self, mut message: WorkerMessage) {
        let mut sender = self.sender;
        while let Err(refused) = sender.send(message).await {
            message = refused.0;
            match self.inner.mailbox(&self.agent, usize::MAX) {
                Some(mailbox) => sender = mailbox.sender,
                None => return,
            }
        }
    }
}

impl Inner {
    /// The agent's mailbox. Starts a worker if the agent has none. `None` if there is no room for one more.
    pub fn mailbox(self: &Arc<Self>, agent: &AgentKey, limit: usize) -> Option<Mailbox> {
        let sender = match self.workers.mailbox(agent, limit) {
            Slot::Existing(sender) => sender,
            Slot::Created(sender, messages) => {
                worker::start(self.clone(), agent.clone(), sender.clone(), messages);
                sender
            }
            Slot::NoRoom => return None,
        };
        Some(Mailbox { inner: self.clone(), agent: agent.clone(), sender })
    }

    /// Has a worker check the agent. Returns false if there is no room for one. If the mailbox is full, the worker checks anyway.
    pub fn wake_worker(self: &Arc<Self>, agent: &AgentKey) -> bool {
        match self.mailbox(agent, self.settings.workers_max) {
            Some(mailbox) => {
                let _ = mailbox.sender.try_send(WorkerMessage::CheckStore);
                true
            }
            None => false,
        }
    }

    /// Has a worker check the agent after a pause, or as soon afterwards as there is room. It retries until then, because no other
    /// process may know of the work.
    pub fn wake_worker_later(self: &Arc<Self>, agent: AgentKey, pause: Duration) {
        let inner = self.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(pause).await;
            while !inner.wake_worker(&agent) {
                tokio::time::sleep(pause.max(Duration::from_millis(inner.settings.sweep_ms))).await;
            }
        });
    }

    /// Sends a message as soon as there is room for a worker.
    pub async fn send_when_room(self: &Arc<Self>, agent: &AgentKey, message: WorkerMessage) {
        loop {
            if let Some(mailbox) = self.mailbox(agent, self.settings.workers_max) {
                return mailbox.send(message).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stores a report in the inbox, where the owner of the run finds it.
    pub async fn record(&self, result: ToolResult) -> Result<Reported, EngineError> {
        let agent = result.agent.clone();
        let report = self.new_report(result)?;
        let taken = self.store.report(report).await?;
        if matches!(taken, Taken::Recorded(_)) {
            // The owner may be another process.
            self.ring(&agent);
        }
        match taken {
            Taken::Recorded(message) | Taken::Late(message) => Ok(Reported { message, is_duplicate: false }),
            Taken::Duplicate(message) => Ok(Reported { message, is_duplicate: true }),
            Taken::UnknownRun | Taken::NotActive => Err(EngineError::UnknownRun),
        }
    }

    fn new_report(&self, result: ToolResult) -> Result<NewReport, StoreError> {
        let item = ItemId(self.ids.fresh());
        Ok(NewReport {
            agent: result.agent.clone(),
            run: result.run,
            content: NewItem::own(item, ItemKind::Result, result_content(&result)?),
            message: NewMessage {
                kind: MessageKind::ToolResult,
                call: Some(result.call),
                retry: result.retry,
                item: Some(item),
                outcome: Some(result.status),
                after: result.after,
                source: result.source,
                reason: None,
                key: result.key,
            },
            now: self.clock.now(),
        })
    }
}

/// The content of a result item, with the bytes of the result unchanged.
pub(crate) fn result_content(result: &ToolResult) -> Result<bytes::Bytes, StoreError> {
    let key = CallKey { run: result.run, call: result.call };
    let unread = |error| {
        let message = format!("the result of {key} is not JSON, though it was when it came in: {error}");
        StoreError::Corrupt(ErrorDetail::of(message, error))
    };
    let raw = serde_json::from_slice(&result.result).map_err(unread)?;
    Ok(content::result(result.call, result.status, raw))
}
