//! `GET /v1/models`: the models, and the agents, which requests name as models.

use axum::{extract::State, response::Response};
use serde_json::{Value, json};

use super::{body::WireId, create::agent_of, error::WireError};
use crate::{
    DoorState, answer,
    auth::{Caller, Scope},
    spelling::shortened,
};

/// The name of the configuration's entry for every other model name. It is no model, so it is not listed.
const ANY: &str = "*";

pub(super) async fn list(State(state): State<DoorState>, caller: Caller) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let models = state.engine.model_names(caller.tenant()).into_iter().filter(|name| name != ANY);
    let agents = state.engine.roster().agents(caller.tenant()).filter(|name| caller.may_use(&Scope::UseAgent((*name).clone())));
    let agents = agents.map(|name| format!("agent/{name}"));
    let data: Vec<Value> = models.chain(agents).map(|name| model(&name)).collect();
    Ok(answer::ok(&json!({ "object": "list", "data": data })))
}

pub(super) async fn retrieve(State(state): State<DoorState>, caller: Caller, WireId(name): WireId) -> Result<Response, WireError> {
    caller.needs(&Scope::Responses)?;
    let is_known = match agent_of(&name) {
        Some(agent) => caller.may_use(&Scope::UseAgent(agent.clone())) && state.engine.roster().agent(caller.tenant(), &agent).is_some(),
        None => state.engine.has_model(caller.tenant(), &name),
    };
    match is_known {
        true => Ok(answer::ok(&model(&name))),
        false => Err(WireError::not_found(format!("The model '{}' does not exist", shortened(&name))).with_code("model_not_found")),
    }
}

fn model(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "windlass" })
}
