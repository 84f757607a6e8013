//! The door of the command line: runs, their content, and decisions of people.

mod answer_schema;
mod content;
mod erase;
mod gc;
mod interrupts;
mod lists;
mod reconcile;
mod row;
mod runs;

use axum::{
    Router,
    routing::{get, post},
};

use crate::DoorState;

/// The routes of this door.
pub(crate) fn routes() -> Router<DoorState> {
    Router::new()
        .route("/v1/windlass/runs", get(lists::runs))
        .route("/v1/windlass/agents", get(lists::agents))
        .route("/v1/windlass/tools", get(lists::tools))
        .route("/v1/windlass/runs/{run}", get(runs::run))
        .route("/v1/windlass/runs/{run}/journal", get(runs::journal))
        .route("/v1/windlass/runs/{run}/calls", get(runs::calls))
        .route("/v1/windlass/runs/{run}/children", get(lists::children))
        .route("/v1/windlass/items/{item}", get(content::item))
        .route("/v1/windlass/boxes", post(content::pack))
        .route("/v1/windlass/boxes/{box}", get(content::open_box))
        .route("/v1/windlass/interrupts", get(interrupts::list))
        .route("/v1/windlass/interrupts/{interrupt}", get(interrupts::one).post(interrupts::decide))
        .route("/v1/windlass/reconcile", post(reconcile::reconcile))
        .route("/v1/windlass/erase", post(erase::erase))
        .route("/v1/windlass/gc", post(gc::gc))
}
