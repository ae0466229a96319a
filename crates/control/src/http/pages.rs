//! `/v1/pages` and `/v1/tenants/{id}/pages`.

use api::types::{PageGrant, PageId, PageKind, PageRequest, PageView, ReturnPages};
use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    AdminState, Resource,
    input::{Body, Id, Params, limit},
    reply::{Answer, Failures},
};
use crate::{admin::PageFilter, auth::Caller};

pub fn routes() -> Resource {
    Resource::new().routes(routes!(all)).routes(routes!(of_tenant, ask, give_back))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AllParams {
    /// Only pages of this switch.
    switch: Option<u16>,
    /// Only pages that this tenant holds.
    tenant: Option<u32>,
    /// Only pages that are held like this.
    kind: Option<PageKind>,
    /// Only pages beyond this one, in the order of switch and index: where the list before ended.
    #[param(value_type = Option<String>, example = "3/17")]
    after: Option<PageId>,
    /// At most so many, 1 to 1000 [default: 1000].
    limit: Option<usize>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfTenantParams {
    /// Only pages of this switch.
    switch: Option<u16>,
    /// Only pages that are held like this.
    kind: Option<PageKind>,
    /// Only pages beyond this one, in the order of switch and index: where the list before ended.
    #[param(value_type = Option<String>, example = "3/17")]
    after: Option<PageId>,
    /// At most so many, 1 to 1000 [default: 1000].
    limit: Option<usize>,
}

/// Lists pages of all switches, free ones too, by switch and index. A tenant's token lists that
/// tenant's pages.
#[utoipa::path(get, path = "/v1/pages", tag = "pages", params(AllParams),
    responses((status = OK, description = "The pages.", body = Vec<PageView>), Failures))]
async fn all(
    State(admin): AdminState,
    caller: Caller,
    Params(params): Params<AllParams>,
) -> Answer<Vec<PageView>> {
    let tenant = params.tenant.or(caller.tenant());
    match tenant {
        Some(id) => caller.sees_tenant(id)?,
        None => caller.sees()?,
    }
    let filter = PageFilter {
        switch: params.switch,
        tenant,
        kind: params.kind,
        after: params.after,
        limit: limit(params.limit),
    };
    Ok(Json(admin.pages(filter).await?))
}

/// Lists a tenant's pages: guaranteed, borrowed and leaving ones.
#[utoipa::path(get, path = "/v1/tenants/{id}/pages", tag = "pages", params(("id" = u32, Path, description = "Number of the tenant."), OfTenantParams),
    responses((status = OK, description = "Its pages.", body = Vec<PageView>), Failures))]
async fn of_tenant(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Params(params): Params<OfTenantParams>,
) -> Answer<Vec<PageView>> {
    caller.sees_tenant(id)?;
    let filter = PageFilter {
        switch: params.switch,
        tenant: Some(id),
        kind: params.kind,
        after: params.after,
        limit: limit(params.limit),
    };
    Ok(Json(admin.pages(filter).await?))
}

/// Asks for guaranteed pages: raises the tenant's quota by their number, if so many are to be had.
/// A tenant's token raises it up to what an operator gave it, and no further.
///
/// All are granted or none; a refusal says what is free on each switch.
#[utoipa::path(post, path = "/v1/tenants/{id}/pages", tag = "pages", params(("id" = u32, Path, description = "Number of the tenant.")),
    request_body = PageRequest, responses((status = OK, description = "What was granted.", body = PageGrant), Failures))]
async fn ask(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Body(request): Body<PageRequest>,
) -> Answer<PageGrant> {
    caller.is_or_administrates(id)?;
    let own = caller.tenant().is_some();
    let grant = admin.ask_pages(caller.name(), id, request, own);
    Ok(Json(grant.await?))
}

/// Gives pages back: lowers the tenant's quota by their number. The answer lists the pages
/// that leave.
#[utoipa::path(delete, path = "/v1/tenants/{id}/pages", tag = "pages", params(("id" = u32, Path, description = "Number of the tenant.")),
    request_body = ReturnPages, responses((status = OK, description = "What leaves.", body = PageGrant), Failures))]
async fn give_back(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Body(pages): Body<ReturnPages>,
) -> Answer<PageGrant> {
    caller.is_or_administrates(id)?;
    let own = caller.tenant().is_some();
    let grant = admin.return_pages(caller.name(), id, pages, own);
    Ok(Json(grant.await?))
}
