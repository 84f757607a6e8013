//! The promises of the Responses door, with the real binary, on PostgreSQL with NATS: the tests of `tests/responses`, unchanged, but only
//! in streamed mode, since the modes differ in the door and not in the store.

#[path = "../responses/approvals.rs"]
mod approvals;
#[path = "../responses/bad_input.rs"]
mod bad_input;
#[path = "../responses/budgets.rs"]
mod budgets;
#[path = "../responses/choice.rs"]
mod choice;
#[path = "../responses/client_calls.rs"]
mod client_calls;
#[path = "../responses/compaction.rs"]
mod compaction;
#[path = "../responses/contract.rs"]
mod contract;
#[path = "../responses/conversations.rs"]
mod conversations;
#[path = "../responses/custom_tools.rs"]
mod custom_tools;
#[path = "../responses/declared.rs"]
mod declared;
#[path = "../responses/durable.rs"]
mod durable;
#[path = "../responses/errors.rs"]
mod errors;
#[path = "../responses/history.rs"]
mod history;
#[path = "../responses/hostile_fields.rs"]
mod hostile_fields;
#[path = "../responses/iterations.rs"]
mod iterations;
#[path = "../responses/joining.rs"]
mod joining;
#[path = "../responses/keys.rs"]
mod keys;
#[path = "../responses/left_calls.rs"]
mod left_calls;
#[path = "../responses/limits.rs"]
mod limits;
#[path = "../responses/lists.rs"]
mod lists;
#[path = "../responses/providers.rs"]
mod providers;
#[path = "../responses/put_back.rs"]
mod put_back;
#[path = "../responses/reasoning.rs"]
mod reasoning;
#[path = "../responses/repeats.rs"]
mod repeats;
#[path = "../responses/socket_cuts.rs"]
mod socket_cuts;
#[path = "../responses/sockets.rs"]
mod sockets;
#[path = "../responses/streams.rs"]
mod streams;
#[path = "../responses/suite.rs"]
mod suite;
#[path = "../responses/support.rs"]
mod support;
#[path = "../responses/unkept.rs"]
mod unkept;
