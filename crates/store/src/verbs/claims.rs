//! Tool services claim calls, prolong their leases and give calls back. None of this is a transition: the run's state stays the same.

use std::collections::BTreeSet;

use windlass_kernel::{AgentKey, CallNumber, Epoch, RunId, Timestamp};
use windlass_ports::{CallClaim, CallStatus, ClaimedCall, StoreError, codec};

use super::heads::rearm;
use crate::{
    reading::verified,
    rows::{AnswerRow, CallRow, Reads, Result, Rows, missing_row},
};

/// Leases waiting calls to a worker. A key that still holds calls returns the same calls.
pub(crate) fn claim_calls<R: Rows + ?Sized>(rows: &mut R, claim: &CallClaim) -> Result<Vec<ClaimedCall>> {
    let recorded = claim.request.as_ref().map_or(Ok(None), |request| rows.answer_to(&claim.tenant, request))?;
    if let (Some(recorded), Some(request)) = (&recorded, &claim.request)
        && recorded.asked != request.asked
    {
        // The engine looks for the key before it claims, so the other request with it was made at the same time.
        return Err(StoreError::Fenced);
    }
    let held = claimed_under_key(rows, claim)?;
    if !held.is_empty() {
        return held.iter().map(|call| claimed(rows, call)).collect();
    }
    let mut taken = rows.waiting_calls(&claim.tenant, &claim.tool, claim.now, claim.max)?;
    for call in &mut taken {
        call.status = CallStatus::Claimed;
        call.worker = Some(claim.worker.clone());
        call.lease_until = Some(claim.until.min(call.deadline));
        call.attempt += 1;
        call.claim_key = claim.key.as_deref().map(|key| codec::key_hash(&claim.tenant, key));
        rows.update_call(call)?;
    }
    rearm_heads(rows, &taken, claim.now)?;
    // A claim that got no calls has no effect, so that its key can be used for another claim.
    if let (None, Some(request), Some(first)) = (&recorded, &claim.request, taken.first()) {
        rows.insert_answer(&AnswerRow::new(&claim.tenant, request, first.run))?;
    }
    taken.iter().map(|call| claimed(rows, call)).collect()
}

/// Prolongs a worker's leases. Returns the calls that it no longer holds.
pub(crate) fn renew_calls<R: Rows + ?Sized>(
    rows: &mut R,
    claim: &CallClaim,
    calls: &[(RunId, CallNumber)],
) -> Result<Vec<(RunId, CallNumber)>> {
    change_claimed(rows, claim, calls, |call| call.lease_until = Some(claim.until.min(call.deadline)))
}

/// Releases calls. Returns those that the worker did not hold any more. A request that was answered before gets the same answer.
pub(crate) fn release_calls<R: Rows + ?Sized>(
    rows: &mut R,
    claim: &CallClaim,
    calls: &[(RunId, CallNumber)],
) -> Result<Vec<(RunId, CallNumber)>> {
    if let Some(request) = &claim.request
        && let Some(recorded) = rows.answer_to(&claim.tenant, request)?
    {
        // Another request with the same key can only have been made at the same time: a repetition finds it.
        return if recorded.asked == request.asked { Ok(recorded.lost) } else { Err(StoreError::Fenced) };
    }
    let lost = change_claimed(rows, claim, calls, |call| {
        call.status = CallStatus::Waiting;
        call.worker = None;
        call.lease_until = None;
        call.claim_key = None;
    })?;
    // A request without calls has no effect, and can be repeated.
    if let (Some(request), Some((run, _))) = (&claim.request, calls.first()) {
        rows.insert_answer(&AnswerRow { lost: lost.clone(), ..AnswerRow::new(&claim.tenant, request, *run) })?;
    }
    Ok(lost)
}

fn change_claimed<R: Rows + ?Sized>(
    rows: &mut R,
    claim: &CallClaim,
    calls: &[(RunId, CallNumber)],
    change: impl Fn(&mut CallRow),
) -> Result<Vec<(RunId, CallNumber)>> {
    let mut lost = Vec::new();
    let mut changed = Vec::new();
    for (run, number) in calls {
        match rows.call(*run, *number)?.filter(|call| is_held(call, claim)) {
            None => lost.push((*run, *number)),
            Some(mut call) => {
                change(&mut call);
                rows.update_call(&call)?;
                changed.push(call);
            }
        }
    }
    rearm_heads(rows, &changed, claim.now)?;
    Ok(lost)
}

fn claimed_under_key<R: Reads + ?Sized>(rows: &R, claim: &CallClaim) -> Result<Vec<CallRow>> {
    let Some(key) = &claim.key else {
        return Ok(Vec::new());
    };
    let key = codec::key_hash(&claim.tenant, key);
    Ok(rows.calls_by_key(&claim.tenant, &key)?.into_iter().filter(|call| is_held(call, claim)).collect())
}

/// A lease that has ended does not count, even if no sweep has noticed it.
fn is_held(call: &CallRow, claim: &CallClaim) -> bool {
    call.status == CallStatus::Claimed
        && call.agent.tenant == claim.tenant
        && call.tool == claim.tool
        && call.worker.as_deref() == Some(claim.worker.as_str())
        && call.lease_until.is_some_and(|until| until > claim.now)
}

/// The end of a lease is a time at which the head must be looked at; a prolonged lease must not wake it earlier.
fn rearm_heads<R: Rows + ?Sized>(rows: &mut R, calls: &[CallRow], now: Timestamp) -> Result<()> {
    let agents: BTreeSet<&AgentKey> = calls.iter().map(|call| &call.agent).collect();
    for agent in agents {
        let head = rows.head(agent)?.ok_or_else(|| missing_row("the head of a call"))?;
        rearm(rows, agent, &head, head.clone(), now)?;
    }
    Ok(())
}

fn claimed<R: Reads + ?Sized>(rows: &R, call: &CallRow) -> Result<ClaimedCall> {
    let epoch: Epoch = rows.head(&call.agent)?.ok_or_else(|| missing_row("the head of a call"))?.epoch;
    let item = rows.item(&call.agent.tenant, call.item)?.ok_or_else(|| missing_row("the content of a call"))?;
    let run = rows.run_brief(call.run)?.ok_or_else(|| missing_row("the run of a call"))?;
    Ok(ClaimedCall {
        agent: call.agent.clone(),
        agent_name: run.agent_name,
        run: call.run,
        call: call.call,
        epoch,
        iteration: call.iteration,
        content: verified(item)?.content,
        deadline: call.deadline,
        retry: call.retry,
        attempt: call.attempt,
    })
}
