//! Exports a run as JSON lines, for people and for tests that compare the journal with the state.

use std::io::Write;

use anyhow::{Context, bail};
use serde_json::{json, value::RawValue};
use windlass_kernel::{BoxRange, CallNumber, RunId, Tenant, fold};
use windlass_ports::{RunView, StoreError, Views};

use crate::{config::Place, storage};

/// Rows per read.
const PAGE: usize = 500;

/// Prints the run, then its journal, its items and its calls, one JSON object per line.
pub(crate) async fn export(database: &Place<'_>, tenant: &str, run: &str) -> anyhow::Result<()> {
    print(database, tenant, run).await.map_err(without_source)
}

/// The message of a store's error contains that of its source, which would be printed twice.
fn without_source(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<StoreError>() {
        Ok(error) => anyhow::Error::msg(error.to_string()),
        Err(error) => error,
    }
}

async fn print(database: &Place<'_>, tenant: &str, run: &str) -> anyhow::Result<()> {
    let id: RunId = run.parse().with_context(|| format!("{run:?} is not a run"))?;
    let views = storage::open_for_reading(database).await?;
    let tenant = Tenant::from(tenant);
    let Some(view) = views.run(&tenant, id).await? else {
        bail!("there is no run {run} of tenant {tenant} in {database}");
    };
    let mut out = std::io::stdout().lock();
    let events = print_journal(&mut out, &*views, &tenant, &view).await?;
    print_items(&mut out, &*views, &tenant, view.state.output).await?;
    print_calls(&mut out, &*views, &tenant, id).await?;
    // The state must be the fold of the journal; the export reports whether it is.
    let folded = fold(&events);
    writeln!(out, "{}", json!({ "type": "state", "state": view.state, "is_fold_of_journal": folded.as_ref() == Some(&view.state) }))?;
    Ok(())
}

async fn print_journal(
    out: &mut impl Write,
    views: &dyn Views,
    tenant: &Tenant,
    view: &RunView,
) -> anyhow::Result<Vec<windlass_kernel::Event>> {
    let head = json!({
        "type": "run", "run_id": view.id, "agent_id": view.agent.agent, "status": view.status.as_str(), "ordinal": view.ordinal,
        "turn_epoch": view.epoch, "deliverable_card_id": view.deliverable, "created_at": view.created_at, "manifest": view.manifest,
    });
    writeln!(out, "{head}")?;
    let mut events = Vec::new();
    loop {
        let page = views.journal(tenant, view.id, events.len() as u64, PAGE).await?;
        if page.is_empty() {
            return Ok(events);
        }
        for entry in page {
            let line = json!({ "type": "event", "number": entry.number, "turn_epoch": entry.epoch, "at": entry.at, "event": entry.event });
            writeln!(out, "{line}")?;
            events.push(entry.event);
        }
    }
}

async fn print_items(out: &mut impl Write, views: &dyn Views, tenant: &Tenant, range: BoxRange) -> anyhow::Result<()> {
    for item in views.range_items(tenant, range).await? {
        // Content is printed byte for byte, because a JSON library might change its spelling.
        let content: &RawValue = serde_json::from_slice(&item.content)?;
        writeln!(out, "{{\"type\":\"item\",\"item_id\":\"{}\",\"kind\":\"{}\",\"content\":{content}}}", item.id, item.kind.as_str())?;
    }
    Ok(())
}

async fn print_calls(out: &mut impl Write, views: &dyn Views, tenant: &Tenant, run: RunId) -> anyhow::Result<()> {
    let mut from = CallNumber(1);
    loop {
        let page = views.calls(tenant, run, from, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        from = CallNumber(last.call.0 + 1);
        for call in page {
            let line = json!({
                "type": "call", "call": call.call, "tool": call.tool, "route": call.route, "effect": call.effect, "iteration": call.iteration,
                "status": call.status.as_str(), "item_id": call.item, "result_item_id": call.result, "attempt": call.attempt,
            });
            writeln!(out, "{line}")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_ports::ErrorDetail;

    use super::*;

    #[test]
    fn the_source_of_a_stores_error_is_not_printed_twice() {
        let source = std::io::Error::other("a row is damaged");
        let error = StoreError::Corrupt(ErrorDetail::of(source.to_string(), source));
        assert_eq!(format!("{:#}", without_source(error.into())), "stored data is corrupt: a row is damaged");
    }
}
