//! Boxes: append-only lists that begin where others left off.

use windlass_kernel::{BoxId, BoxRange, NewItem, RunId, Tenant};
use windlass_ports::{ContextSize, NewPack, Packed};

use crate::rows::{AnswerRow, BoxRow, Outcome, Reads, Rows, Segment, is_missing};

/// So many boxes are read one after the other at the most; a longer chain is copied into the box that would exceed it.
const CHAIN_MAX: u32 = 64;

/// The stretches a range stands for, in reading order. `None` if there is no such box, or it is another tenant's.
pub(crate) fn chain<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Outcome<Option<Vec<Segment>>> {
    let mut segments = Vec::new();
    let mut next = Some(range);
    while let Some(range) = next {
        let Some(found) = rows.find_box(range.id)?.filter(|found| found.tenant == *tenant) else {
            // Only the first box is anybody's claim; the parents were checked when their children were made.
            return if segments.is_empty() { Ok(None) } else { Err(is_missing("the parent of a box")) };
        };
        segments.push(Segment { id: range.id, from: -i64::from(found.inherited), below: range.length.into() });
        next = found.parent.filter(|_| found.inherited == 0);
    }
    segments.reverse();
    Ok(Some(segments))
}

/// The box behind a range, if the tenant has it and it is long enough.
pub(super) fn known_range<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Outcome<Option<BoxRow>> {
    let Some(found) = rows.find_box(range.id)?.filter(|found| found.tenant == *tenant) else {
        return Ok(None);
    };
    let is_long_enough = range.length == 0 || rows.box_length(range.id)? >= range.length;
    Ok(Some(found).filter(|_| is_long_enough))
}

/// Makes a box that begins after `parent`, whose row the caller has. Items of the box itself stand from position 0 on, also
/// when the parents' items had to be copied: a range of this box means the same either way.
pub(super) fn make_box<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, parent: Option<(BoxRange, &BoxRow)>) -> Outcome<BoxRow> {
    let mut made = BoxRow { id, tenant: tenant.clone(), parent: parent.map(|(range, _)| range), depth: 0, inherited: 0, shared: false };
    if let Some((range, row)) = parent {
        (made.depth, made.inherited) = inherited_depth(rows, tenant, id, range, row)?;
    }
    rows.insert_box(&made)?;
    Ok(made)
}

/// How deep a box is that begins after a range, and how many of the parents' items were copied into it.
pub(super) fn inherited_depth<R: Rows + ?Sized>(
    rows: &mut R,
    tenant: &Tenant,
    id: BoxId,
    parent: BoxRange,
    row: &BoxRow,
) -> Outcome<(u32, u32)> {
    if row.depth < CHAIN_MAX { Ok((row.depth + 1, 0)) } else { Ok((0, inherit(rows, tenant, id, parent)?)) }
}

fn inherit<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, parent: BoxRange) -> Outcome<u32> {
    let segments = chain(rows, tenant, parent)?.ok_or_else(|| is_missing("the parent of a box"))?;
    let mut items = Vec::new();
    for segment in segments {
        items.extend(rows.box_item_ids(segment.id, segment.below as u32)?);
    }
    let count = items.len() as i64;
    for (index, item) in items.into_iter().enumerate() {
        rows.insert_box_row(id, index as i64 - count, item)?;
    }
    Ok(count as u32)
}

/// Notes that others read a box from now on. Once is enough, for it is never taken back.
pub(super) fn share<R: Rows + ?Sized>(rows: &mut R, row: &BoxRow) -> Outcome<()> {
    if row.shared { Ok(()) } else { rows.share_box(row.id) }
}

/// Stores items and puts them at the end of a box that has `length` of its own.
pub(super) fn fill<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, length: u32, items: &[NewItem]) -> Outcome<()> {
    for (position, item) in (i64::from(length)..).zip(items) {
        rows.insert_item(tenant, item)?;
        rows.insert_box_row(id, position, item.id)?;
    }
    Ok(())
}

/// Makes a box out of others and of new items. A box of this id that stands already is the answer to the same request made before. How
/// much the box would hold is known before anything is written, or any id of an item read.
pub(crate) fn pack<R: Rows + ?Sized>(rows: &mut R, new: &NewPack) -> Outcome<Packed> {
    let (tenant, id) = (&new.tenant, new.id);
    let kept = new.key.as_ref().map_or(Ok(None), |request| rows.answer_to(tenant, request))?;
    if let (Some(kept), Some(request)) = (&kept, &new.key)
        && kept.asked != request.asked
    {
        return Ok(Packed::KeyReused);
    }
    if let Some(found) = rows.find_box(id)? {
        let length = rows.box_length(id)?;
        return Ok(if found.tenant == *tenant { Packed::Done(BoxRange { id, length }) } else { Packed::UnknownBox });
    }
    let (mut sources, mut segments) = (Vec::new(), Vec::new());
    for range in &new.from {
        let Some(source) = known_range(rows, tenant, *range)? else {
            return Ok(Packed::UnknownBox);
        };
        sources.push(source);
        segments.extend(chain(rows, tenant, *range)?.unwrap_or_default());
    }
    let bytes = new.items.iter().map(|item| item.content.len() as u64).sum();
    let own = ContextSize { items: new.items.len() as u64, bytes };
    // Items are counted without a look at them, so that a box of too many is refused before their bytes are added up.
    let counted = own.plus(ContextSize { items: count(&segments), bytes: 0 });
    if !counted.is_within(new.limit) || !own.plus(size(rows, &segments)?).is_within(new.limit) {
        return Ok(Packed::TooLarge);
    }
    let mut shared = Vec::new();
    for segment in segments {
        shared.extend(rows.box_item_ids(segment.id, segment.below as u32)?);
    }
    // What stands before a source is shared with it: its own context, and what that one was made from.
    sources.iter().try_for_each(|source| share(rows, source))?;
    make_box(rows, tenant, id, None)?;
    let length = shared.len() as u32;
    for (position, item) in shared.into_iter().enumerate() {
        rows.insert_box_row(id, position as i64, item)?;
    }
    fill(rows, tenant, id, length, &new.items)?;
    if let Some(request) = new.key.as_ref().filter(|_| kept.is_none()) {
        // There is no run: the box's own id stands in its place.
        rows.insert_answer(&AnswerRow::new(tenant, request, RunId(id.0)))?;
    }
    Ok(Packed::Done(BoxRange { id, length: length + new.items.len() as u32 }))
}

/// How much a range stands for: nothing, if the tenant has no such box.
pub(crate) fn range_size<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Outcome<ContextSize> {
    size(rows, &chain(rows, tenant, range)?.unwrap_or_default())
}

fn size<R: Reads + ?Sized>(rows: &R, segments: &[Segment]) -> Outcome<ContextSize> {
    let bytes = if segments.is_empty() { 0 } else { rows.content_bytes(segments)? };
    Ok(ContextSize { items: count(segments), bytes })
}

fn count(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::try_from(segment.below - segment.from).unwrap_or(0)).sum()
}
