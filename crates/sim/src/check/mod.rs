//! The model check: the real `step`, `apply` and `outstanding` under every interleaving within small bounds.
//!
//! The store, the workers and the world outside are models that are as small as the code that they represent allows: `store` mirrors the
//! verbs of the store, `worker` mirrors how messages become commits and commits become effects. What a run does is not modelled, the kernel
//! decides it. Every fault has a budget, so that the graph of states is finite; a search shows that it has no cycle. Liveness is therefore
//! a property of its last states. Every guard of the product is a switch, and a check that still passes without one of them is blind to it.

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
