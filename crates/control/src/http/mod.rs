//! HTTP/JSON in front of an [`Admin`], and its OpenAPI description.
//!
//! One file per resource; [`layer`] finds out who asks, [`input`] reads requests (bounded),
//! [`reply`] writes refusals.

mod cluster;
mod input;
mod keys;
mod layer;
mod network;
mod pages;
mod reply;
mod tenants;

use std::sync::Arc;

use api::types::ErrorBody;
use axum::{
    Json, Router,
    extract::Request,
    http::{StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::router::OpenApiRouter;

use crate::{admin::Admin, auth::Access};

/// What handlers ask.
type AdminState = axum::extract::State<Arc<dyn Admin>>;
/// The paths of one resource.
type Resource = OpenApiRouter<Arc<dyn Admin>>;

/// The controller's admin API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "shortstop admin API",
        description = "Tenants, their pages of cache memory, topology and routes. Every change is in the audit log. A \
            controller that does not lead answers changes with 307 and the leader's address."
    ),
    components(schemas(ErrorBody)),
    modifiers(&Bearer),
    security(("token" = [])),
    tags(
        (name = "tenants", description = "Who shares the cache memory, and on what terms."),
        (name = "pages", description = "Pages of cache memory: asking for them, giving them back."),
        (name = "network", description = "Topology and routes."),
        (name = "cluster", description = "Controllers, switches, counters and the audit log.")
    )
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of the controller's token file; not needed if it has none."))
            .build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn parts() -> (Router<Arc<dyn Admin>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(tenants::routes())
        .merge(pages::routes())
        .merge(keys::routes())
        .merge(network::routes())
        .merge(cluster::routes())
        .split_for_parts()
}

/// The OpenAPI description, as `/openapi.json` has it.
pub fn openapi() -> utoipa::openapi::OpenApi {
    parts().1
}

/// Everything that a controller serves: the admin API under `/v1`, its description at
/// `/openapi.json`, and the gRPC services of `grpc` (`tonic::service::Routes`, as an axum router).
/// Who may do what is checked for all of it.
pub fn app(admin: Arc<dyn Admin>, access: Arc<Access>, grpc: Router) -> Router {
    let (routes, document) = parts();
    let document = Arc::new(document);
    let describe = move || async move { Json(document.as_ref().clone()) };
    routes
        .with_state(admin)
        .route("/openapi.json", get(describe))
        .method_not_allowed_fallback(wrong_method)
        .merge(grpc.reset_fallback())
        .fallback(nothing_here)
        .layer(from_fn_with_state(access, layer::layer))
}

async fn wrong_method(request: Request) -> Response {
    let line = format!(
        "{} is not possible on {}; /openapi.json says what is",
        request.method(),
        request.uri().path()
    );
    reply::error(StatusCode::METHOD_NOT_ALLOWED, &line)
}

async fn nothing_here(request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
        return tonic::Status::unimplemented("no such service")
            .into_http::<axum::body::Body>()
            .into_response();
    }
    let line =
        format!("there is nothing at {}; /openapi.json lists what there is", request.uri().path());
    reply::error(StatusCode::NOT_FOUND, &line)
}
