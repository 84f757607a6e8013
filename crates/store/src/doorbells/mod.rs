//! Doorbells between processes that share a store: NATS, and LISTEN/NOTIFY of PostgreSQL.
//!
//! Both send the same messages ([`wire`]) from the same queue ([`waiting`]), which merges equal rings and drops those beyond its limit. A
//! lost ring loses no work: the sweep finds it, or a reader that polls.

mod link;
mod nats;
mod notify;
mod waiting;
mod wire;

use std::time::Duration;

use tokio::sync::mpsc;
use windlass_ports::{NodeId, Ring};

pub use nats::{Nats, NatsError};
pub use notify::{Notify, NotifyError};

/// Rings that wait to be sent. Further ones are dropped.
const WAITING_MAX: usize = 4096;
/// Received rings that wait to be handled. Further ones are dropped.
const RECEIVED_MAX: usize = 4096;
/// The longest message in bytes. PostgreSQL takes no more than 8000.
const BATCH_BYTES_MAX: usize = 7900;
/// The pause after a message, so that rings in quick succession are sent together. The first ring after a pause is sent at once.
const PAUSE: Duration = Duration::from_millis(2);

/// Hands on the rings of other processes. Rings that the receiver does not take fast enough are dropped.
#[derive(Clone)]
struct RingForwarder {
    own: NodeId,
    rings: mpsc::Sender<Ring>,
}

impl RingForwarder {
    fn new(own: NodeId) -> (Self, mpsc::Receiver<Ring>) {
        let (rings, received) = mpsc::channel(RECEIVED_MAX);
        (RingForwarder { own, rings }, received)
    }

    /// Handles a message. It may come from anyone who can reach the subject or channel, so that an invalid one is ignored.
    fn message(&self, message: &[u8]) {
        let Some((from, rings)) = wire::decode(message) else {
            return tracing::debug!(bytes = message.len(), "a message on the bell makes no sense");
        };
        if from != self.own {
            for ring in rings {
                let _ = self.rings.try_send(ring);
            }
        }
    }
}
