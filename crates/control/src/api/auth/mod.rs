//! Who asks, and what they may.
//!
//! [`layer`] stands before everything that a controller serves: it finds out who asks ([`Caller`]) and turns away who
//! has no business there. Handlers then check the finer points with the caller's methods.

mod access;
mod caller;
mod grpc;
mod tokens;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

pub use access::Access;
pub use caller::Caller;
pub use tokens::{NewToken, Role, TokenError, Tokens, make};

use super::http::{error, redirect};

/// Path of the description, which everybody may read.
const OPEN: &str = "/openapi.json";

/// Finds out who asks and leaves it with the request, for handlers and gRPC services alike (`extensions().get::<Caller>()`).
pub async fn layer(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let grpc = grpc::Call::of(request.uri().path());
    let caller = match identify(&access, request.headers()) {
        Ok(caller) => caller,
        Err(_) if request.uri().path() == OPEN => return next.run(request).await,
        Err((status, line)) if grpc.is_none() => return error(status, &line),
        Err((_, line)) => return grpc_error(tonic::Status::unauthenticated(line)),
    };
    if let Some(call) = grpc
        && let Err(line) = call.allowed(&caller)
    {
        return grpc_error(tonic::Status::permission_denied(line));
    }
    request.extensions_mut().insert(caller);
    let asked = request.uri().clone();
    redirect(next.run(request).await, &asked)
}

fn grpc_error(status: tonic::Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

fn identify(access: &Access, headers: &HeaderMap) -> Result<Caller, (StatusCode, String)> {
    if access.is_open() {
        // Whoever reaches the port may do everything, so a page in a browser on this machine must not reach it.
        if headers.contains_key(header::ORIGIN) {
            let line = "requests of web pages are refused while there are no tokens";
            return Err((StatusCode::FORBIDDEN, line.into()));
        }
        return Ok(Caller::anonymous());
    }
    let unauthorized = |line: &str| (StatusCode::UNAUTHORIZED, line.to_string());
    let value = headers.get(header::AUTHORIZATION).ok_or_else(|| {
        unauthorized(
            "a token is needed: Authorization: Bearer TOKEN (`--token-file` or SHORTSTOP_TOKEN)",
        )
    })?;
    let token = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| unauthorized("expected Authorization: Bearer TOKEN"))?;
    access
        .find(token)
        .ok_or_else(|| unauthorized("this token is not known here"))
}
