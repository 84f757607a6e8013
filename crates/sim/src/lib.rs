//! Development only: the engine's rules put to the test where no test of one path can go.
//!
//! [`check`] explores every interleaving that small bounds allow, over the real kernel and a model of the store. [`world`] runs the
//! real engine on virtual time, with faults made of a seed. [`hostile`] takes any bytes for a request, for a model's answer and for a
//! tool server's. Nothing depends on this crate, and it is not part of the binary.

pub mod check;
pub mod hostile;
pub mod world;
