//! The model check: the real `step`, `apply` and `outstanding` under every interleaving that small bounds allow.
//!
//! The store, the workers and the world outside are models, each as small as the code it stands for allows: `store` mirrors the
//! verbs of the store, `worker` mirrors how notes become commits and commits become effects. What a run does is never modelled: it
//! is asked of the kernel. Every fault has a budget, so that the graph of states ends and nothing in it goes round, which is looked at;
//! so liveness is a question about its last states. Every guard of the product is a switch, and a check that still passes without one says that the check is blind.

mod actions;
mod configs;
mod explore;
mod fingerprint;
mod forgetting;
mod graph;
mod guards;
mod promises;
mod state;
mod store;
mod trials;
mod worker;

pub use actions::Action;
pub use configs::{Config, Tool, configurations};
pub use explore::{Broken, Explored, Livelock, explore};
pub use forgetting::{Forgotten, forgets_nothing};
pub use guards::{Guard, Guards};
pub use promises::{Fact, Facts, Promise};
pub use trials::{Trial, trials};
