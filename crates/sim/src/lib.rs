//! Development only: what is promised about the engine, tried out. Nothing here is shipped.

pub mod world;
