//! Doorbells between processes that share a store: NATS, and LISTEN/NOTIFY of PostgreSQL.
//!
//! Both carry the same few words ([`wire`]) from the same queue ([`waiting`]), which merges equal rings and drops what is too
//! much. Neither is ever the record: what is lost here is found by the sweep, or by a reader that looks by itself.

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

/// Rings that wait to be sent; more are dropped.
const WAITING_MAX: usize = 4096;
/// Rings that were heard and wait to be told; more are dropped.
const HEARD_MAX: usize = 4096;
/// Bytes of one message. PostgreSQL takes no more than 8000.
const BATCH_BYTES_MAX: usize = 7900;
/// The pause after a message: what rings meanwhile goes out together. The first ring after a pause waits for nothing.
const PAUSE: Duration = Duration::from_millis(2);

/// Hands on what others rang. What nobody takes fast enough is dropped.
#[derive(Clone)]
struct Heard {
    own: NodeId,
    rings: mpsc::Sender<Ring>,
}

impl Heard {
    fn new(own: NodeId) -> (Self, mpsc::Receiver<Ring>) {
        let (rings, heard) = mpsc::channel(HEARD_MAX);
        (Heard { own, rings }, heard)
    }

    /// A message came, from anybody who can reach the bell: what makes no sense is nothing.
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
