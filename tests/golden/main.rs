//! Golden transcripts: what a server answers, byte for byte, to requests of every API. The file of each transcript is in `transcripts/`.
//!
//! A change of the code that is not meant to change the wire leaves these files as they are. `WINDLASS_UPDATE_GOLDEN=1` writes them anew.

mod agents;
mod databases;
mod exported;
mod published;
mod responses;
mod sockets;
mod transcript;
