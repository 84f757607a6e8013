//! What the Responses door promises, over the real binary: the loop behind `POST /v1/responses`, in every way a client can ask.

mod bad_input;
mod choice;
mod client_calls;
mod compaction;
mod contract;
mod conversations;
mod custom_tools;
mod durable;
mod errors;
mod history;
mod hostile_bodies;
mod hostile_fields;
mod hostile_peers;
mod joining;
mod laps;
mod left_calls;
mod limits;
mod providers;
mod put_back;
mod reasoning;
mod socket_cuts;
mod sockets;
mod stage;
mod streams;
mod suite;
mod unkept;
