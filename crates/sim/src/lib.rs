//! Tests of the engine's rules over many interleavings. For development only.
//!
//! [`check`] explores every interleaving within small bounds, with the real kernel and a model of the store, and [`tree`] does the same with
//! a run and its child runs. [`world`] runs the real engine
//! on virtual time, with faults that are derived from a seed. [`hostile`] gives any bytes to the readers of requests, of models' answers
//! and of tool servers' answers. No crate depends on this one, and it is not part of the binary.

pub mod check;
pub mod hostile;
pub mod tree;
pub mod world;
