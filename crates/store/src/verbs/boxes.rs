//! Boxes: append-only lists that may begin with a range of another box.

use windlass_kernel::{BoxId, BoxRange, NewItem, RunId, Tenant};
use windlass_ports::{ContextSize, NewPack, Packed};

use crate::rows::{AnswerRow, BoxRow, Reads, Result, Rows, Segment, missing_row};

/// The most boxes that a range is read from. A box that would make a longer chain gets a copy of the items instead.
const CHAIN_MAX: u32 = 64;

/// The segments that a range consists of, in reading order. `None` if the box does not exist or belongs to another tenant.
pub(crate) fn chain<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Result<Option<Vec<Segment>>> {
    let mut segments = Vec::new();
    let mut next = Some(range);
    while let Some(range) = next {
        let Some(found) = rows.find_box(range.id)?.filter(|found| found.tenant == *tenant) else {
            // Only the first box comes from the caller; the parents were checked when their children were made.
            return if segments.is_empty() { Ok(None) } else { Err(missing_row("the parent of a box")) };
        };
        segments.push(Segment { id: range.id, from: -i64::from(found.inherited), below: range.length.into() });
        next = found.parent.filter(|_| found.inherited == 0);
    }
    segments.reverse();
    Ok(Some(segments))
}

/// The box of a range, if the tenant has it and it is long enough.
pub(super) fn known_range<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Result<Option<BoxRow>> {
    let Some(found) = rows.find_box(range.id)?.filter(|found| found.tenant == *tenant) else {
        return Ok(None);
    };
    let is_long_enough = range.length == 0 || rows.box_length(range.id)? >= range.length;
    Ok(Some(found).filter(|_| is_long_enough))
}

/// Makes a box that begins after `parent`, whose row the caller has read. The box's own items have the positions from 0 on, also if the
/// items of the parents were copied: a range of this box means the same either way.
pub(super) fn make_box<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, parent: Option<(BoxRange, &BoxRow)>) -> Result<BoxRow> {
    let mut made = BoxRow { id, tenant: tenant.clone(), parent: parent.map(|(range, _)| range), depth: 0, inherited: 0, shared: false };
    if let Some((range, row)) = parent {
        (made.depth, made.inherited) = inherited_depth(rows, tenant, id, range, row)?;
    }
    rows.insert_box(&made)?;
    Ok(made)
}

/// The depth of a box that begins after this range, and the number of items that are copied into it from its parents.
pub(super) fn inherited_depth<R: Rows + ?Sized>(
    rows: &mut R,
    tenant: &Tenant,
    id: BoxId,
    parent: BoxRange,
    row: &BoxRow,
) -> Result<(u32, u32)> {
    if row.depth < CHAIN_MAX { Ok((row.depth + 1, 0)) } else { Ok((0, inherit(rows, tenant, id, parent)?)) }
}

fn inherit<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, parent: BoxRange) -> Result<u32> {
    let segments = chain(rows, tenant, parent)?.ok_or_else(|| missing_row("the parent of a box"))?;
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

/// Records that other runs read a box. It is done once per box and never undone.
pub(super) fn share<R: Rows + ?Sized>(rows: &mut R, row: &BoxRow) -> Result<()> {
    if row.shared { Ok(()) } else { rows.share_box(row.id) }
}

/// Stores items and appends them to a box that has `length` items of its own.
pub(super) fn fill<R: Rows + ?Sized>(rows: &mut R, tenant: &Tenant, id: BoxId, length: u32, items: &[NewItem]) -> Result<()> {
    for (position, item) in (i64::from(length)..).zip(items) {
        rows.insert_item(tenant, item)?;
        rows.insert_box_row(id, position, item.id)?;
    }
    Ok(())
}

/// Makes a box of ranges of other boxes and of new items. If the id exists already, the same request was made before and its box is the
/// answer. The size of the new box is known before anything is written or an id of an item is read.
pub(crate) fn pack<R: Rows + ?Sized>(rows: &mut R, new: &NewPack) -> Result<Packed> {
    let (tenant, id) = (&new.tenant, new.id);
    let recorded = new.key.as_ref().map_or(Ok(None), |request| rows.answer_to(tenant, request))?;
    if let (Some(recorded), Some(request)) = (&recorded, &new.key)
        && recorded.asked != request.asked
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
    // Counting items does not read them, so a box with too many is refused before their bytes are summed.
    let counted = own.plus(ContextSize { items: count(&segments), bytes: 0 });
    if !counted.is_within(new.limit) || !own.plus(size(rows, &segments)?).is_within(new.limit) {
        return Ok(Packed::TooLarge);
    }
    let mut shared = Vec::new();
    for segment in segments {
        shared.extend(rows.box_item_ids(segment.id, segment.below as u32)?);
    }
    // The parents of a source are shared with it: its context, and what the context was made from.
    sources.iter().try_for_each(|source| share(rows, source))?;
    make_box(rows, tenant, id, None)?;
    let length = shared.len() as u32;
    for (position, item) in shared.into_iter().enumerate() {
        rows.insert_box_row(id, position as i64, item)?;
    }
    fill(rows, tenant, id, length, &new.items)?;
    if let Some(request) = new.key.as_ref().filter(|_| recorded.is_none()) {
        // There is no run: the box's own id is stored in the place of a run's id.
        rows.insert_answer(&AnswerRow::new(tenant, request, RunId(id.0)))?;
    }
    Ok(Packed::Done(BoxRange { id, length: length + new.items.len() as u32 }))
}

/// The amount of content in a range: zero if the tenant has no such box.
pub(crate) fn range_size<R: Reads + ?Sized>(rows: &R, tenant: &Tenant, range: BoxRange) -> Result<ContextSize> {
    size(rows, &chain(rows, tenant, range)?.unwrap_or_default())
}

fn size<R: Reads + ?Sized>(rows: &R, segments: &[Segment]) -> Result<ContextSize> {
    let bytes = if segments.is_empty() { 0 } else { rows.content_bytes(segments)? };
    Ok(ContextSize { items: count(segments), bytes })
}

fn count(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::try_from(segment.below - segment.from).unwrap_or(0)).sum()
}
