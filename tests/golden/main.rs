//! Golden transcripts: the server's answers to requests of every API, byte for byte. The file of each transcript is in `transcripts/`.
//!
//! A change of the code that is not meant to change the wire leaves these files as they are. `WINDLASS_UPDATE_GOLDEN=1` rewrites them.

mod agents;
mod databases;
mod exported;
mod published;
mod responses;
mod sockets;
mod transcript;
