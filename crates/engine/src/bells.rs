//! Doorbells between processes that share a store. They are hints: a process that misses one finds the work by itself, a little later.

use std::sync::Arc;

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, RunId, Tenant, ToolName};
use windlass_ports::Ring;

use crate::engine::Inner;

/// Handles the doorbells of other processes until the engine drains.
pub(crate) async fn listen(inner: Arc<Inner>, mut bells: mpsc::Receiver<Ring>) {
    let mut draining = inner.draining.subscribe();
    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            ring = bells.recv() => match ring {
                Some(ring) => inner.handle_ring(&ring),
                None => return,
            },
        }
    }
}

impl Inner {
    fn handle_ring(self: &Arc<Self>, ring: &Ring) {
        match ring {
            Ring::Agent(agent) => {
                self.agent_news.notify(agent);
                self.rests.notify(agent);
                // The commit may have left rows in the outbox that this process publishes.
                self.committed.notify_one();
                // Another process has committed for an agent that has a worker here, so the state in that worker's memory may be stale.
                if self.workers.has(agent) {
                    self.wake_worker(agent);
                }
            }
            Ring::Work(agent) => {
                self.wake_worker(agent);
            }
            Ring::Tool(tenant, tool) => self.tool_news.notify(&(tenant.clone(), tool.clone())),
            Ring::Quiet(agent, run, events) => {
                // The process that rang has handled runs without an owner itself.
                if self.workers.has(agent) {
                    let (inner, agent, run, events) = (self.clone(), agent.clone(), *run, *events);
                    self.tasks.spawn(async move { inner.request_heartbeat(&agent, run, events).await });
                }
            }
        }
    }

    /// Wakes the followers of an agent, here and in other processes, after a commit.
    pub fn notify_watchers(&self, agent: &AgentKey, has_come_to_rest: bool) {
        self.agent_news.notify(agent);
        if has_come_to_rest {
            self.rests.notify(agent);
        }
        self.committed.notify_one();
        self.ring_elsewhere(|| Ring::Agent(agent.clone()));
    }

    /// Has the worker of another run of the same tree check its inbox, wherever that worker is. If the doorbell is lost, the sweep finds
    /// the message.
    pub fn wake_relative(self: &Arc<Self>, agent: &AgentKey) {
        self.wake_worker(agent);
        self.notify_watchers(agent, false);
    }

    /// Wakes the followers of an agent after streamed text was stored. The outbox has nothing new.
    pub fn notify_readers(&self, agent: &AgentKey) {
        self.agent_news.notify(agent);
        self.ring_elsewhere(|| Ring::Agent(agent.clone()));
    }

    /// Wakes the services that wait for calls of the tool.
    pub fn notify_services(&self, tenant: &Tenant, tool: &ToolName) {
        self.tool_news.notify(&(tenant.clone(), tool.clone()));
        self.ring_elsewhere(|| Ring::Tool(tenant.clone(), tool.clone()));
    }

    /// Handles a run that was leased to this process. Other processes are notified only if this one drains and will not enter the run:
    /// otherwise all of them would try to.
    pub fn pass_on(&self, agent: &AgentKey) {
        self.crash.before_effect("ring");
        if *self.draining.borrow() {
            self.ring_elsewhere(|| Ring::Work(agent.clone()));
        }
        self.crash.after_effect("ring");
    }

    /// Notifies other processes of work for an agent that one of them may own, or may have room for.
    pub fn ring(&self, agent: &AgentKey) {
        self.crash.before_effect("ring");
        self.ring_elsewhere(|| Ring::Work(agent.clone()));
        self.crash.after_effect("ring");
    }

    /// Requests a heartbeat from a run that another process may own.
    pub fn request_heartbeat_elsewhere(&self, agent: &AgentKey, run: RunId, events: u64) {
        self.ring_elsewhere(|| Ring::Quiet(agent.clone(), run, events));
    }

    fn ring_elsewhere(&self, ring: impl FnOnce() -> Ring) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring(ring());
        }
    }
}
