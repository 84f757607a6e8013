//! The receiver of the outbox, which is sometimes down and sometimes loses what it acknowledged.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_ports::{Published, Publisher};

use super::{Fact, World, node::Node};

pub(super) struct SimPublisher {
    world: Arc<World>,
    node: Arc<Node>,
}

impl SimPublisher {
    pub fn new(world: &Arc<World>, node: &Arc<Node>) -> Self {
        SimPublisher { world: world.clone(), node: node.clone() }
    }
}

#[async_trait]
impl Publisher for SimPublisher {
    async fn publish(&self, messages: &[Published]) -> Result<(), String> {
        for message in messages {
            self.node.wait_until_running().await;
            if self.world.fault(self.world.options.verbs_refused, 1_000) {
                return Err("down".into());
            }
            self.take(message);
        }
        if self.world.fault(self.world.options.answers_lost, 1_000) {
            return Err("taken, but the answer is lost".into());
        }
        Ok(())
    }
}

impl SimPublisher {
    fn take(&self, message: &Published) {
        let earlier = self.world.ledger.lock().publish(message);
        if let Some(earlier) = earlier {
            self.world.saw(Fact::PublishedAgain);
            if earlier != *message {
                self.world.break_promise("S7", format_args!("{} was published as {earlier:?}, then as {message:?}", message.id));
            }
        }
    }
}
