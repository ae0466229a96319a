//! `/v1/cluster`, `/v1/counters` and `/v1/audit`.

use std::collections::BTreeMap;

use api::types::{AuditEntry, ClusterView};
use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    AdminState, Resource,
    input::{Params, limit},
    reply::{Answer, Failures},
};
use crate::auth::Caller;

pub fn routes() -> Resource {
    Resource::new().routes(routes!(cluster)).routes(routes!(counters)).routes(routes!(audit))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditParams {
    /// Only changes with a number above this one [default: 0].
    #[serde(default)]
    after: u64,
    /// At most so many, 1 to 1000 [default: 1000].
    limit: Option<usize>,
}

/// Controllers and switches; every controller answers, leader or not.
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster",
    responses((status = OK, description = "Controllers and switches.", body = ClusterView), Failures))]
async fn cluster(State(admin): AdminState, caller: Caller) -> Answer<ClusterView> {
    caller.sees()?;
    Ok(Json(admin.cluster().await?))
}

/// Counters by name: the controller's own, and sums over the switches.
#[utoipa::path(get, path = "/v1/counters", tag = "cluster",
    responses((status = OK, description = "Counts since each one's start.", body = BTreeMap<String, u64>), Failures))]
async fn counters(State(admin): AdminState, caller: Caller) -> Answer<BTreeMap<String, u64>> {
    caller.sees()?;
    Ok(Json(admin.counters().await?))
}

/// What was changed by whom, oldest first.
#[utoipa::path(get, path = "/v1/audit", tag = "cluster", params(AuditParams),
    responses((status = OK, description = "The changes.", body = Vec<AuditEntry>), Failures))]
async fn audit(
    State(admin): AdminState,
    caller: Caller,
    Params(params): Params<AuditParams>,
) -> Answer<Vec<AuditEntry>> {
    caller.sees()?;
    Ok(Json(admin.audit(params.after, limit(params.limit)).await?))
}
