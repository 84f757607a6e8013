//! Boxes: append-only lists that begin where others left off.

use windlass_kernel::{BoxId, BoxRange, NewItem, Tenant};

use crate::rows::{BoxRow, Outcome, Reads, Rows, is_missing};

/// So many boxes are read one after the other at the most; a longer chain is copied into the box that would exceed it.
const CHAIN_MAX: u32 = 64;

/// One stretch of a range: the items of a box below a position, inherited ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub id: BoxId,
    pub from: i64,
    pub below: i64,
}

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

/// Makes a box out of others and of new items. `None`, and nothing stored, if the tenant lacks one of the others. A box of
/// this id that stands already is the answer to the same request made before.
pub(crate) fn pack<R: Rows + ?Sized>(
    rows: &mut R,
    tenant: &Tenant,
    id: BoxId,
    from: &[BoxRange],
    items: &[NewItem],
) -> Outcome<Option<BoxRange>> {
    if let Some(found) = rows.find_box(id)? {
        let length = rows.box_length(id)?;
        return Ok((found.tenant == *tenant).then_some(BoxRange { id, length }));
    }
    let (mut sources, mut shared) = (Vec::new(), Vec::new());
    for range in from {
        let Some(source) = known_range(rows, tenant, *range)? else {
            return Ok(None);
        };
        sources.push(source);
        for segment in chain(rows, tenant, *range)?.unwrap_or_default() {
            shared.extend(rows.box_item_ids(segment.id, segment.below as u32)?);
        }
    }
    // What stands before a source is shared with it: its own context, and what that one was made from.
    sources.iter().try_for_each(|source| share(rows, source))?;
    make_box(rows, tenant, id, None)?;
    let length = shared.len() as u32;
    for (position, item) in shared.into_iter().enumerate() {
        rows.insert_box_row(id, position as i64, item)?;
    }
    fill(rows, tenant, id, length, items)?;
    Ok(Some(BoxRange { id, length: length + items.len() as u32 }))
}
