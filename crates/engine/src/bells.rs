//! What processes that share a store tell each other. Hints only: whoever hears nothing looks by itself, a little later.

use std::sync::Arc;

use tokio::sync::mpsc;
use windlass_kernel::{AgentKey, RunId, Tenant, ToolName};
use windlass_ports::Ring;

use crate::engine::Inner;

/// Listens to what others ring, until the engine is told to stop.
pub(crate) async fn listen(inner: Arc<Inner>, mut bells: mpsc::Receiver<Ring>) {
    let mut draining = inner.draining.subscribe();
    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => return,
            ring = bells.recv() => match ring {
                Some(ring) => inner.heard(&ring),
                None => return,
            },
        }
    }
}

impl Inner {
    fn heard(self: &Arc<Self>, ring: &Ring) {
        match ring {
            Ring::Agent(agent) => {
                self.agent_news.tell(agent);
                self.rests.tell(agent);
                // It may have left something in the outbox, which may be this process's to send.
                self.committed.notify_one();
                // Somebody else committed for an agent that is worked on here: what this process knows of it may be old.
                if self.workers.has(agent) {
                    self.look(agent);
                }
            }
            Ring::Work(agent) => {
                self.look(agent);
            }
            Ring::Tool(tenant, tool) => self.tool_news.tell(&(tenant.clone(), tool.clone())),
            Ring::Quiet(agent, run, events) => {
                // Whoever rang has looked itself whether it is anybody's.
                if self.workers.has(agent) {
                    let (inner, agent, run, events) = (self.clone(), agent.clone(), *run, *events);
                    self.tasks.spawn(async move { inner.quiet(&agent, run, events).await });
                }
            }
        }
    }

    /// Something was committed for an agent: whoever follows it reads on, here and elsewhere.
    pub fn tell_watchers(&self, agent: &AgentKey, has_come_to_rest: bool) {
        self.agent_news.tell(agent);
        if has_come_to_rest {
            self.rests.tell(agent);
        }
        self.committed.notify_one();
        self.ring_elsewhere(|| Ring::Agent(agent.clone()));
    }

    /// Words were announced: whoever reads along reads on. Nothing was left in the outbox.
    pub fn tell_readers(&self, agent: &AgentKey) {
        self.agent_news.tell(agent);
        self.ring_elsewhere(|| Ring::Agent(agent.clone()));
    }

    /// A call of the tool may have become claimable.
    pub fn tell_services(&self, tenant: &Tenant, tool: &ToolName) {
        self.tool_news.tell(&(tenant.clone(), tool.clone()));
        self.ring_elsewhere(|| Ring::Tool(tenant.clone(), tool.clone()));
    }

    /// A run was leased to this process. Others hear of it only if nobody here will enter it: they would all come for it.
    pub fn pass_on(&self, agent: &AgentKey) {
        self.crash.before_effect("ring");
        if *self.draining.borrow() {
            self.ring_elsewhere(|| Ring::Work(agent.clone()));
        }
        self.crash.after_effect("ring");
    }

    /// There is something to do for an agent which another process may have, or may have room for.
    pub fn ring(&self, agent: &AgentKey) {
        self.crash.before_effect("ring");
        self.ring_elsewhere(|| Ring::Work(agent.clone()));
        self.crash.after_effect("ring");
    }

    /// A run that may be worked on elsewhere should give a sign of life.
    pub fn ask_elsewhere(&self, agent: &AgentKey, run: RunId, events: u64) {
        self.ring_elsewhere(|| Ring::Quiet(agent.clone(), run, events));
    }

    fn ring_elsewhere(&self, ring: impl FnOnce() -> Ring) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring(ring());
        }
    }
}
