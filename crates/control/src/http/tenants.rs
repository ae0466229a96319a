//! `/v1/tenants`.

use api::types::{NewSecret, TenantChange, TenantSpec, TenantView};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    AdminState, Resource,
    input::{Body, Id, Params, limit},
    reply::{Answer, Failures},
};
use crate::{admin::Refusal, auth::Caller};

pub fn routes() -> Resource {
    Resource::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, remove))
        .routes(routes!(rotate, finish))
        .routes(routes!(credentials))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListParams {
    /// Only tenants with a number above this one: where the page before ended.
    after: Option<u32>,
    /// At most so many, 1 to 1000 [default: 1000].
    limit: Option<usize>,
    /// With their secrets; only for who may administrate.
    #[serde(default)]
    secrets: bool,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ShowParams {
    /// With its secrets; only for who may administrate, or for the tenant itself.
    #[serde(default)]
    secrets: bool,
}

/// Lists tenants, by number. A tenant's token lists that tenant alone.
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", params(ListParams),
    responses((status = OK, description = "The tenants.", body = Vec<TenantView>), Failures))]
async fn list(
    State(admin): AdminState,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Answer<Vec<TenantView>> {
    if let Some(own) = caller.tenant() {
        if params.after.is_some_and(|after| after >= own) {
            return Ok(Json(vec![]));
        }
        return Ok(Json(vec![admin.tenant(own, params.secrets).await?]));
    }
    if params.secrets {
        caller.administrates()?;
    } else {
        caller.sees()?;
    }
    let tenants = admin.tenants(params.after, limit(params.limit), params.secrets);
    Ok(Json(tenants.await?))
}

/// Creates a tenant and gives it pages for its quota. The answer has its secrets.
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = TenantSpec,
    responses((status = CREATED, description = "The tenant, with its secrets.", body = TenantView), Failures))]
async fn create(
    State(admin): AdminState,
    caller: Caller,
    Body(spec): Body<TenantSpec>,
) -> Result<(StatusCode, Json<TenantView>), Refusal> {
    caller.administrates()?;
    let made = admin.create_tenant(caller.name(), spec).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Shows a tenant: terms, pages, items, switch by switch.
#[utoipa::path(get, path = "/v1/tenants/{id}", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant."), ShowParams),
    responses((status = OK, description = "The tenant.", body = TenantView), Failures))]
async fn show(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Params(params): Params<ShowParams>,
) -> Answer<TenantView> {
    if params.secrets {
        caller.is_or_administrates(id)?;
    } else {
        caller.sees_tenant(id)?;
    }
    Ok(Json(admin.tenant(id, params.secrets).await?))
}

/// Changes a tenant; fields that are left out stay as they are.
///
/// A higher quota gets it pages at once, a lower one takes the coldest of them.
#[utoipa::path(patch, path = "/v1/tenants/{id}", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant.")),
    request_body = TenantChange, responses((status = OK, description = "The tenant as it is now.", body = TenantView), Failures))]
async fn change(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Body(change): Body<TenantChange>,
) -> Answer<TenantView> {
    caller.administrates()?;
    Ok(Json(admin.change_tenant(caller.name(), id, change).await?))
}

/// Removes a tenant: its pages are taken, its requests count as those of an unknown tenant.
#[utoipa::path(delete, path = "/v1/tenants/{id}", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant.")),
    responses((status = NO_CONTENT, description = "It is gone."), Failures))]
async fn remove(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
) -> Result<StatusCode, Refusal> {
    caller.administrates()?;
    admin.remove_tenant(caller.name(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Begins a rotation of the secret: a new one signs, the one before is accepted too until the
/// rotation is finished.
#[utoipa::path(post, path = "/v1/tenants/{id}/secret", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant.")),
    responses((status = OK, description = "Both secrets.", body = NewSecret), Failures))]
async fn rotate(State(admin): AdminState, caller: Caller, Id(id): Id) -> Answer<NewSecret> {
    caller.administrates()?;
    Ok(Json(admin.rotate_secret(caller.name(), id).await?))
}

/// Finishes a rotation: only the new secret is accepted from now on.
#[utoipa::path(delete, path = "/v1/tenants/{id}/secret", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant.")),
    responses((status = OK, description = "The secret in force.", body = NewSecret), Failures))]
async fn finish(State(admin): AdminState, caller: Caller, Id(id): Id) -> Answer<NewSecret> {
    caller.administrates()?;
    Ok(Json(admin.finish_rotation(caller.name(), id).await?))
}

/// The cluster file for a tenant's clients: the stores and this tenant alone, with its secrets.
#[utoipa::path(get, path = "/v1/tenants/{id}/credentials", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant.")),
    responses((status = OK, description = "A cluster file.", body = String, content_type = "application/toml"), Failures))]
async fn credentials(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, Refusal> {
    caller.is_or_administrates(id)?;
    let text = admin.credentials(id).await?;
    let headers = [(header::CONTENT_TYPE, "application/toml"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, text).into_response())
}
