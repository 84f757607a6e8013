//! Scenarios of the kernel: a setup, a script in the terms of the glossary, and the expected transcript.

mod support;

mod actions;
mod after_execution;
mod approvals;
mod attempts;
mod budgets;
mod budgets_park;
mod children;
mod choices;
mod client_approvals;
mod compaction;
mod content;
mod costs;
mod cut_text;
mod deadlines;
mod duplicates;
mod endings;
mod handing_back;
mod iterations;
mod left_calls;
mod lost_owners;
mod parallel_calls;
mod parked;
mod questions;
mod random_runs;
mod reasoning;
mod refused_calls;
mod retries;
mod steering;
mod submit_result;
mod trees;
mod waiting_time;
