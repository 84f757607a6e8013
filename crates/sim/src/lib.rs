//! Development only: the engine's rules put to the test where no test of one path can go.
//!
//! [`check`] explores every interleaving that small bounds allow, over the real kernel and a model of the store. Nothing depends on
//! this crate, and it is not part of the binary.

pub mod check;
