//! `/v1/tenants/{id}/keys`.

use api::types::KeyList;
use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    AdminState, Resource,
    input::{Id, Params, limit},
    reply::{Answer, Failures},
};
use crate::{
    admin::{KeyFilter, Refusal, RefusalKind},
    auth::Caller,
};

pub fn routes() -> Resource {
    Resource::new().routes(routes!(of_tenant))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeyParams {
    /// Only keys that begin with these bytes, as hex digits.
    #[serde(default)]
    prefix: String,
    /// Only keys beyond this one, as hex digits: where the list before ended.
    #[serde(default)]
    after: String,
    /// At most so many, 1 to 1000 [default: 1000].
    limit: Option<usize>,
}

/// Lists the keys that switches have items of, as hex digits, in their order. Where items are
/// copies these are the cached keys; where they are the data themselves, every key that there is,
/// and such as were removed a moment ago. A tenant's token lists its own.
#[utoipa::path(get, path = "/v1/tenants/{id}/keys", tag = "tenants", params(("id" = u32, Path, description = "Number of the tenant."), KeyParams),
    responses((status = OK, description = "The keys.", body = KeyList), Failures))]
async fn of_tenant(
    State(admin): AdminState,
    caller: Caller,
    Id(id): Id,
    Params(params): Params<KeyParams>,
) -> Answer<KeyList> {
    caller.sees_tenant(id)?;
    let filter = KeyFilter {
        prefix: bytes("prefix", &params.prefix)?,
        after: bytes("after", &params.after)?,
        limit: limit(params.limit),
    };
    Ok(Json(admin.keys(id, filter).await?))
}

fn bytes(name: &str, digits: &str) -> Result<Vec<u8>, Refusal> {
    hex::decode(digits).map_err(|_| {
        let line = format!("parameter {name}: {digits:?}: expected hex digits, two for each byte");
        Refusal::new(RefusalKind::Invalid, line)
    })
}
