//! What each writing verb does, the same for all databases.
//!
//! A verb first reads and decides, then changes the head under its guard, then makes the other writes. Every refusal, `Fenced` included, is
//! decided before the first write: the transaction of a group goes on after a refusal, so that writes before it would stay. After any other
//! error the caller rolls its transaction back.

mod abandon;
mod append_deltas;
mod boxes;
mod children;
mod claims;
mod commit;
mod conversations;
mod enqueue;
mod erase;
mod heads;
mod interrupts;
mod report;

use windlass_ports::{Abandoned, Conversed, Enqueued, Packed, StoreError, Taken, TenantErasure, Verb, Withdrawn, Written};

use crate::{
    StoreOptions,
    rows::{Result, Rows},
};

pub(crate) use append_deltas::{append_deltas, check_chunks, check_same, join_deltas};
pub(crate) use boxes::{chain, range_size};
pub(crate) use conversations::{conversation, conversation_parts};
pub(crate) use erase::{FOLLOW_UP_MS, is_erased};
pub(crate) use heads::{is_own_head, may_be_claimed};

/// Applies a verb in the transaction of `rows`. A database has statements of its own for some verbs: `own` applies them.
pub(crate) fn apply<R: Rows + ?Sized>(
    rows: &mut R,
    options: StoreOptions,
    verb: &Verb,
    own: impl FnOnce(&mut R, &Verb) -> Result<Written>,
) -> Result<Written> {
    Ok(match verb {
        Verb::Enqueue(new) => Written::Enqueue(enqueue::enqueue(rows, options, new)?),
        Verb::Commit(guard, commit) => Written::Commit(commit::commit(rows, options, guard, commit)?),
        Verb::Withdraw(agent, commit) => Written::Withdraw(commit::withdraw(rows, options, agent, commit)?),
        Verb::Report(report) => Written::Report(report::report(rows, report)?),
        Verb::ClaimCalls(claim) => Written::ClaimCalls(claims::claim_calls(rows, claim)?),
        Verb::RenewCalls(claim, calls) => Written::RenewCalls(claims::renew_calls(rows, claim, calls)?),
        Verb::ReleaseCalls(claim, calls) => Written::ReleaseCalls(claims::release_calls(rows, claim, calls)?),
        Verb::Pack(pack) => Written::Pack(boxes::pack(rows, pack)?),
        Verb::Quarantine(agent, run, reason) => Written::Quarantine(heads::quarantine(rows, agent, *run, reason)?),
        Verb::Abandon(agent, given_up) => Written::Abandon(abandon::abandon(rows, options, agent, given_up)?),
        Verb::Erase(tenant, run) => Written::Erase(erase::erase(rows, tenant, *run)?),
        Verb::Converse(tenant, id, change, now) => Written::Converse(conversations::converse(rows, tenant, *id, change, *now)?),
        Verb::Refuse(agent, message, reason) => Written::Refuse(heads::refuse(rows, agent, *message, reason)?),
        Verb::Published(numbers) => Written::Published(rows.forget_outbox(numbers)?),
        // Any commit writes the records.
        Verb::FlushReaders() => Written::FlushReaders(()),
        Verb::AppendDeltas(_) | Verb::Beat(..) | Verb::Bury(_) | Verb::EraseTenant(..) | Verb::EmptyLog(_) => return own(rows, verb),
        Verb::AdoptRequest(..) | Verb::AddUsage(..) | Verb::ForgetUsage(_) => return own(rows, verb),
    })
}

/// Whether a verb was refused, or had nothing to do. Such a verb must not have written anything.
pub(crate) fn is_refused(written: &Result<Written>) -> bool {
    match written {
        Err(StoreError::Fenced) => true,
        Ok(Written::Enqueue(outcome)) => {
            !matches!(outcome, Enqueued::Entered { .. } | Enqueued::Dispatched { .. } | Enqueued::Queued { .. })
        }
        Ok(Written::Withdraw(outcome)) => *outcome == Withdrawn::NotQueued,
        Ok(Written::Report(outcome)) => matches!(outcome, Taken::UnknownRun | Taken::Duplicate(_) | Taken::NotActive),
        Ok(Written::Pack(outcome)) => !matches!(outcome, Packed::Done(_)),
        Ok(Written::Abandon(outcome)) => *outcome == Abandoned::NotQuarantined,
        Ok(Written::EraseTenant(outcome)) => matches!(outcome, TenantErasure::OpenRuns(_)),
        Ok(Written::Converse(outcome)) => !matches!(outcome, Conversed::Done(_)),
        Ok(Written::AdoptRequest(is_done) | Written::AddUsage(is_done)) => !is_done,
        Ok(_) | Err(_) => false,
    }
}

/// The error of a verb that a database does not apply in a transaction of its writer.
pub(crate) fn not_of_rows(verb: &Verb) -> StoreError {
    StoreError::Corrupt(format!("{} is no verb of the writer", verb.name()).into())
}
