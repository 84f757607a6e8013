//! Development only: the engine's rules put to the test where no test of one path can go.
//!
//! [`check`] explores every interleaving that small bounds allow, over the real kernel and a model of the store. [`world`] runs the
//! real engine on virtual time, with faults made of a seed. Nothing depends on this crate, and it is not part of the binary.

pub mod check;
pub mod world;
