//! How notes reach workers, and what waits in the store when there is no room for one.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{AgentKey, CallKey, ItemId, ItemKind, NewItem, content};
use windlass_ports::{CommitKind, MessageKind, NewMessage, NewReport, StoreError, Taken};

use crate::{
    api::{EngineError, Reported, ToolResult},
    engine::Inner,
    note::Note,
    worker,
    workers::Desk,
};

/// A worker's desk, with the means to start the worker again should it leave at the wrong moment.
pub(crate) struct OpenDesk {
    inner: Arc<Inner>,
    agent: AgentKey,
    sender: tokio::sync::mpsc::Sender<Note>,
}

impl OpenDesk {
    /// Leaves a note. Whoever works there, or will, gets it.
    pub async fn leave(self, mut note: Note) {
        let mut sender = self.sender;
        while let Err(refused) = sender.send(note).await {
            note = refused.0;
            match self.inner.desk(&self.agent, usize::MAX) {
                Some(desk) => sender = desk.sender,
                None => return,
            }
        }
    }
}

impl Inner {
    /// The agent's desk, with a worker at it. `None` if there is no room for one more.
    pub fn desk(self: &Arc<Self>, agent: &AgentKey, limit: usize) -> Option<OpenDesk> {
        let sender = match self.workers.desk(agent, limit) {
            Desk::Taken(sender) => sender,
            Desk::Fresh(sender, notes) => {
                worker::start(self.clone(), agent.clone(), sender.clone(), notes);
                sender
            }
            Desk::NoRoom => return None,
        };
        Some(OpenDesk { inner: self.clone(), agent: agent.clone(), sender })
    }

    /// Has an agent looked at. Says whether there was room; a worker with a full queue looks anyway.
    pub fn look(self: &Arc<Self>, agent: &AgentKey) -> bool {
        match self.desk(agent, self.settings.workers_max) {
            Some(desk) => {
                let _ = desk.sender.try_send(Note::Look);
                true
            }
            None => false,
        }
    }

    /// Has an agent looked at after a pause, and as soon then as there is room: nobody else may know that there is something to do.
    pub fn look_later(self: &Arc<Self>, agent: AgentKey, pause: Duration) {
        let inner = self.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(pause).await;
            while !inner.look(&agent) {
                tokio::time::sleep(pause.max(Duration::from_millis(inner.settings.sweep_ms))).await;
            }
        });
    }

    /// Leaves a note as soon as there is room for a worker.
    pub async fn tell_when_room(self: &Arc<Self>, agent: &AgentKey, note: Note) {
        loop {
            if let Some(desk) = self.desk(agent, self.settings.workers_max) {
                return desk.leave(note).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Puts a report into the inbox, for the owner to take.
    pub async fn record(&self, result: ToolResult) -> Result<Reported, EngineError> {
        let agent = result.agent.clone();
        let report = self.new_report(result)?;
        self.crash.before_commit(CommitKind::Report);
        let taken = self.store.report(report).await?;
        self.crash.after_commit(CommitKind::Report);
        if matches!(taken, Taken::Recorded(_)) {
            // Its owner may be another process.
            self.ring(&agent);
        }
        match taken {
            Taken::Recorded(message) | Taken::Late(message) => Ok(Reported { message, is_duplicate: false }),
            Taken::Duplicate(message) => Ok(Reported { message, is_duplicate: true }),
            Taken::UnknownRun => Err(EngineError::UnknownRun),
        }
    }

    fn new_report(&self, result: ToolResult) -> Result<NewReport, StoreError> {
        let item = ItemId(self.ids.fresh());
        Ok(NewReport {
            agent: result.agent.clone(),
            run: result.run,
            content: NewItem { id: item, kind: ItemKind::Result, content: result_content(&result)? },
            message: NewMessage {
                kind: MessageKind::ToolResult,
                call: Some(result.call),
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

/// A result's content, with the bytes of the result as they came.
pub(crate) fn result_content(result: &ToolResult) -> Result<bytes::Bytes, StoreError> {
    let key = CallKey { run: result.run, call: result.call };
    let raw = serde_json::from_slice(&result.result)
        .map_err(|error| StoreError::Corrupt(format!("the result of {key} is not JSON, though it was when it came in: {error}")))?;
    Ok(content::result(result.call, result.status, raw))
}
