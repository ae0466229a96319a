//! `/v1/topology` and `/v1/routes`.

use api::types::{RouteSettings, RouteTable, TopologySpec, TopologyView};
use axum::{Json, extract::State};
use utoipa_axum::routes;

use super::{
    AdminState, Resource,
    input::{Body, Id, TopologyBody},
    reply::{Answer, Failures},
};
use crate::{
    admin::{Refusal, RefusalKind},
    auth::Caller,
};

pub fn routes() -> Resource {
    Resource::new()
        .routes(routes!(topology, declare))
        .routes(routes!(forget))
        .routes(routes!(route_table, set_routes))
}

/// The topology in force: what was declared and what switches report.
#[utoipa::path(get, path = "/v1/topology", tag = "network",
    responses((status = OK, description = "The topology.", body = TopologyView), Failures))]
async fn topology(State(admin): AdminState, caller: Caller) -> Answer<TopologyView> {
    caller.sees()?;
    Ok(Json(admin.topology().await?))
}

/// Replaces what was declared of the topology; pages and routes follow. JSON, or TOML as
/// `application/toml`.
#[utoipa::path(put, path = "/v1/topology", tag = "network",
    request_body(content(
        (TopologySpec = "application/json"),
        (String = "application/toml", example = "[[switch]]\nid = 1\n\n[[network]]\nprefix = \"10.0.1.0/24\"\nswitch = 1\n")
    )),
    responses((status = OK, description = "The topology in force from now on.", body = TopologyView), Failures))]
async fn declare(
    State(admin): AdminState,
    caller: Caller,
    TopologyBody(topology): TopologyBody,
) -> Answer<TopologyView> {
    caller.administrates()?;
    Ok(Json(admin.declare_topology(caller.name(), topology).await?))
}

/// Forgets a switch that is gone for good: its pages, links, and what was declared of it. Refused
/// while its agent is attached.
#[utoipa::path(delete, path = "/v1/topology/switches/{id}", tag = "network", params(("id" = u16, Path, description = "Number of the switch.")),
    responses((status = OK, description = "The topology without it.", body = TopologyView), Failures))]
async fn forget(State(admin): AdminState, caller: Caller, Id(id): Id) -> Answer<TopologyView> {
    caller.administrates()?;
    let id = u16::try_from(id).map_err(|_| {
        let line = format!("there is no switch {id}");
        Refusal::new(RefusalKind::NotFound, line)
    })?;
    Ok(Json(admin.forget_switch(caller.name(), id).await?))
}

/// The routes of all switches, and whether the controller keeps them.
#[utoipa::path(get, path = "/v1/routes", tag = "network",
    responses((status = OK, description = "The routes.", body = RouteTable), Failures))]
async fn route_table(State(admin): AdminState, caller: Caller) -> Answer<RouteTable> {
    caller.sees()?;
    Ok(Json(admin.routes().await?))
}

/// Lets the controller keep the switches' routes, or leave them to a routing daemon.
#[utoipa::path(put, path = "/v1/routes", tag = "network", request_body = RouteSettings,
    responses((status = OK, description = "The routes from now on.", body = RouteTable), Failures))]
async fn set_routes(
    State(admin): AdminState,
    caller: Caller,
    Body(settings): Body<RouteSettings>,
) -> Answer<RouteTable> {
    caller.administrates()?;
    Ok(Json(admin.set_routes(caller.name(), settings).await?))
}
