//! Conversations: which changes are allowed, and what a run that begins or ends in a conversation does to it.
//!
//! The head of a conversation's agent exists for as long as the conversation does, so that a lock on the head is a lock on the
//! conversation.

use bytes::Bytes;
use windlass_kernel::{
    AgentIdentity, AgentKey, BoxId, BoxRange, ConversationId, EndReason, ItemId, NewItem, Phase, Run, RunId, Tenant, Timestamp,
};
use windlass_ports::{ConversationChange, ConversationView, Conversed, Enqueued, InConversation, NewRun, Part, conversation_agent};

use super::{
    boxes::{chain, fill, inherited_depth, make_box, share},
    heads::changed_head,
};
use crate::rows::{BoxRow, ConversationRow, HeadRow, Reads, Result, Rows, existing_row, missing_row};

/// A conversation of the tenant.
pub(crate) fn conversation<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationView>> {
    let Some(row) = known(rows, tenant, id)? else { return Ok(None) };
    let is_busy = rows.head(&conversation_agent(tenant, id))?.is_some_and(|head| head.run.is_some());
    Ok(Some(view(row, is_busy)))
}

/// The parts of a conversation of the tenant.
pub(crate) fn conversation_parts<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: ConversationId) -> Result<Vec<Part>> {
    if known(rows, tenant, id)?.is_none() { Ok(Vec::new()) } else { rows.conversation_parts(id) }
}

/// Changes a conversation.
pub(crate) fn converse<R: Rows + ?Sized>(
    rows: &mut R,
    tenant: &Tenant,
    id: ConversationId,
    change: &ConversationChange,
    now: Timestamp,
) -> Result<Conversed> {
    let agent = conversation_agent(tenant, id);
    // The head is read first, because its lock protects the conversation.
    let head = rows.head(&agent)?;
    let row = known(rows, tenant, id)?;
    let (row, head) = match (row, head, change) {
        (Some(row), Some(head), _) => (row, head),
        (Some(_), None, _) => return Err(missing_row("the head of a conversation")),
        (None, _, ConversationChange::Begin { metadata, id: own, items }) => {
            if rows.conversation(id)?.is_some() {
                return Err(existing_row("the conversation"));
            }
            return begin(rows, &agent, id, metadata, (*own, items), now);
        }
        (None, ..) => return Ok(Conversed::Unknown),
    };
    let is_busy = head.run.is_some();
    let changed = match change {
        // The same request was made before.
        ConversationChange::Begin { .. } => Some(row),
        ConversationChange::Describe { metadata } => {
            let described = ConversationRow { metadata: metadata.clone(), ..row };
            rows.update_conversation(&described)?;
            Some(described)
        }
        ConversationChange::Add { .. } | ConversationChange::Remove { .. } | ConversationChange::End if is_busy => {
            return Ok(Conversed::Busy);
        }
        ConversationChange::Add { id: own, items, items_max } => add(rows, row, *own, items, *items_max)?,
        ConversationChange::Remove { id: own, items } => Some(remove(rows, row, *own, items)?),
        ConversationChange::End => {
            if !rows.delete_head(&agent, &head)? {
                return Err(changed_head());
            }
            let gone = own_boxes(rows, id)?;
            rows.delete_conversation(id, &gone)?;
            Some(row)
        }
    };
    Ok(changed.map_or(Conversed::Full, |row| Conversed::Done(view(row, is_busy))))
}

/// The boxes of items that clients added to a conversation and that no run and no other box was made from.
fn own_boxes<R: Reads + ?Sized>(rows: &R, id: ConversationId) -> Result<Vec<BoxId>> {
    let mut own = Vec::new();
    for part in rows.conversation_parts(id)? {
        if let Part::Items(items) = part
            && rows.find_box(items)?.is_some_and(|found| !found.shared)
        {
            own.push(items);
        }
    }
    Ok(own)
}

fn known<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, id: ConversationId) -> Result<Option<ConversationRow>> {
    Ok(rows.conversation(id)?.filter(|row| row.tenant == *tenant))
}

fn view(row: ConversationRow, is_busy: bool) -> ConversationView {
    ConversationView {
        gone: row.gone_items(),
        id: row.id,
        created_at: row.created_at,
        metadata: row.metadata,
        version: row.version,
        items: row.items,
        tail: row.tail,
        is_busy,
    }
}

fn begin<R: Rows + ?Sized>(
    rows: &mut R,
    agent: &AgentKey,
    id: ConversationId,
    metadata: &Bytes,
    (own, items): (BoxId, &[NewItem]),
    now: Timestamp,
) -> Result<Conversed> {
    rows.insert_head(agent, &HeadRow::unused())?;
    let (tenant, metadata) = (agent.tenant.clone(), metadata.clone());
    let mut row = ConversationRow { id, tenant, created_at: now, metadata, version: 0, items: 0, tail: None, gone: Bytes::new() };
    if items.is_empty() {
        rows.insert_conversation(&row)?;
        return Ok(Conversed::Done(view(row, false)));
    }
    make_box(rows, &agent.tenant, own, None)?;
    fill(rows, &agent.tenant, own, 0, items)?;
    row = ConversationRow { version: 1, items: items.len() as u32, tail: Some(BoxRange { id: own, length: items.len() as u32 }), ..row };
    rows.insert_conversation(&row)?;
    rows.insert_part(id, row.version, Part::Items(own))?;
    Ok(Conversed::Done(view(row, false)))
}

/// Appends items to a conversation. `None` if it would have too many.
fn add<R: Rows + ?Sized>(
    rows: &mut R,
    row: ConversationRow,
    own: BoxId,
    items: &[NewItem],
    items_max: u32,
) -> Result<Option<ConversationRow>> {
    let Some(first) = items.first() else { return Ok(Some(row)) };
    if rows.item(&row.tenant, first.id)?.is_some() {
        // The same request was made before.
        return Ok(Some(row));
    }
    let count = items.len() as u32;
    // Removed items are remembered, so they count as well.
    let ever = row.items.saturating_add(row.gone_items().len() as u32);
    if ever.saturating_add(count) > items_max {
        return Ok(None);
    }
    let version = row.version + 1;
    let before = row.tail.map(|tail| tail_box(rows, tail).map(|found| (tail, found))).transpose()?;
    let tail = match &before {
        // No run has the last added items in its context yet, so that more can be appended to the same box.
        Some((tail, found)) if is_put_in(rows, &row, *tail, found)? => {
            fill(rows, &row.tenant, tail.id, tail.length, items)?;
            BoxRange { id: tail.id, length: tail.length + count }
        }
        Some(_) | None => {
            before.as_ref().map_or(Ok(()), |(_, found)| share(rows, found))?;
            make_box(rows, &row.tenant, own, before.as_ref().map(|(tail, found)| (*tail, found)))?;
            fill(rows, &row.tenant, own, 0, items)?;
            rows.insert_part(row.id, version, Part::Items(own))?;
            BoxRange { id: own, length: count }
        }
    };
    let added = ConversationRow { version, items: row.items + count, tail: Some(tail), ..row };
    rows.update_conversation(&added)?;
    Ok(Some(added))
}

fn tail_box<R: Reads + ?Sized>(rows: &R, tail: BoxRange) -> Result<BoxRow> {
    rows.find_box(tail.id)?.ok_or_else(|| missing_row("the end of a conversation"))
}

/// Whether the conversation ends with a box of its own that nothing else reads.
fn is_put_in<R: Reads + ?Sized>(rows: &R, row: &ConversationRow, tail: BoxRange, found: &BoxRow) -> Result<bool> {
    Ok(!found.shared && rows.conversation_parts(row.id)?.last() == Some(&Part::Items(tail.id)))
}

/// Removes items: a new box gets the items that remain.
fn remove<R: Rows + ?Sized>(rows: &mut R, row: ConversationRow, own: BoxId, items: &[ItemId]) -> Result<ConversationRow> {
    let Some(tail) = row.tail else { return Ok(row) };
    let mut stays = Vec::new();
    for segment in chain(rows, &row.tenant, tail)?.unwrap_or_default() {
        stays.extend(rows.box_item_ids(segment.id, segment.below as u32)?);
    }
    let before = stays.len();
    stays.retain(|item| !items.contains(item));
    if stays.len() == before {
        // The same request was made before.
        return Ok(row);
    }
    share(rows, &tail_box(rows, tail)?)?;
    make_box(rows, &row.tenant, own, None)?;
    for (position, item) in stays.iter().enumerate() {
        rows.insert_box_row(own, position as i64, *item)?;
    }
    let length = stays.len() as u32;
    let gone: Vec<u8> = row.gone.iter().copied().chain(items.iter().flat_map(|item| *item.as_bytes())).collect();
    let removed =
        ConversationRow { version: row.version + 1, items: length, tail: Some(BoxRange { id: own, length }), gone: gone.into(), ..row };
    rows.update_conversation(&removed)?;
    Ok(removed)
}

/// Why a run is refused by its conversation.
pub(super) fn refusal<R: Reads + ?Sized>(rows: &R, new: &NewRun, asked: InConversation) -> Result<Option<Enqueued>> {
    let head = rows.head(&new.agent)?;
    let Some(row) = known(rows, &new.agent.tenant, asked.id)? else { return Ok(Some(Enqueued::UnknownConversation)) };
    let is_busy = head.is_some_and(|head| head.run.is_some());
    if is_busy && !asked.may_wait {
        return Ok(Some(Enqueued::Busy));
    }
    let is_as_found = row.version == asked.version && is_busy == asked.is_busy;
    Ok((!is_as_found).then_some(Enqueued::ConversationMoved))
}

/// Adds the output of an ended run to its conversation, unless the run failed or was stopped: a client that tries again sends the same
/// input again.
pub(super) fn add_output<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, run: RunId, state: &Run) -> Result<()> {
    let is_lost =
        matches!(&state.phase, Phase::Ended { reason: EndReason::ModelFailed(_) | EndReason::Stopped | EndReason::Abandoned, .. });
    let Some(tail) = state.continuation_range().filter(|_| !is_lost) else { return Ok(()) };
    let Some(row) = conversation_of(rows, agent)? else { return Ok(()) };
    let version = row.version + 1;
    rows.insert_part(row.id, version, Part::Run(run))?;
    share(rows, &tail_box(rows, tail)?)?;
    let items = row.items.saturating_add(state.context.length).saturating_add(tail.length);
    rows.update_conversation(&ConversationRow { version, items, tail: Some(tail), ..row })
}

/// Makes a run that was queued begin after the items that the conversation has by now.
pub(super) fn bind<R: Rows + ?Sized>(rows: &mut R, agent: &AgentKey, run: RunId) -> Result<()> {
    let Some((row, tail)) = conversation_of(rows, agent)?.and_then(|row| row.tail.map(|tail| (row, tail))) else { return Ok(()) };
    let waiting = rows.run(run)?.ok_or_else(|| missing_row("a run that has waited"))?;
    let before = tail_box(rows, tail)?;
    share(rows, &before)?;
    let find = |rows: &R, id| rows.find_box(id)?.ok_or_else(|| missing_row("a box of a run that has waited"));
    let (context, output) = (find(rows, waiting.context)?, find(rows, waiting.output)?);
    let (depth, inherited) = inherited_depth(rows, &row.tenant, context.id, tail, &before)?;
    rows.bind_box(&BoxRow { parent: Some(tail), depth, inherited, ..context })?;
    rows.bind_box(&BoxRow { depth: depth + 1, ..output })
}

/// The conversation that has this agent.
fn conversation_of<R: Reads + ?Sized>(rows: &R, agent: &AgentKey) -> Result<Option<ConversationRow>> {
    let AgentIdentity::Conversation(id) = agent.agent.identity() else { return Ok(None) };
    known(rows, &agent.tenant, id)
}
