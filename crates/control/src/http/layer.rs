//! Stands before everything that a controller serves: finds out who asks, and turns away who has no
//! business there.

use std::{net::Ipv4Addr, sync::Arc};

use api::text::one_line;
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::reply::{error, redirect};
use crate::{
    auth::{Access, Call, Caller, Pass},
    serve::Introduction,
};

/// Path of the description, which everybody may read.
const OPEN: &str = "/openapi.json";

/// Finds out who asks and leaves it with the request, for handlers and gRPC services alike
/// (`extensions().get::<Caller>()`).
pub async fn layer(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let grpc = Call::of(request.uri().path());
    let pass = match identify(&access, &request) {
        Ok(pass) => pass,
        Err(_) if request.uri().path() == OPEN => return next.run(request).await,
        Err((status, line)) if grpc.is_none() => return error(status, &line),
        Err((_, line)) => return grpc_error(tonic::Status::unauthenticated(line)),
    };
    let caller = pass.as_ref().map_or_else(Caller::anonymous, |pass| pass.caller.clone());
    if let Some(call) = grpc
        && let Err(line) = call.allowed(&caller)
    {
        return grpc_error(tonic::Status::permission_denied(line));
    }
    if let Some(introduction) = request.extensions().get::<Introduction>() {
        introduction.known(pass.as_ref());
    }
    request.extensions_mut().insert(caller);
    let asked = request.uri().clone();
    redirect(next.run(request).await, &asked)
}

fn grpc_error(status: tonic::Status) -> Response {
    status.into_http::<axum::body::Body>().into_response()
}

/// The token that was shown; none where none is needed.
fn identify(access: &Access, request: &Request) -> Result<Option<Pass>, (StatusCode, String)> {
    let headers = request.headers();
    if access.is_open() {
        // Whoever reaches the port may do everything, so a page in a browser on this machine must
        // not reach it.
        let forbidden = |line: String| Err((StatusCode::FORBIDDEN, line));
        if headers.contains_key(header::ORIGIN) {
            return forbidden("requests of web pages are refused while there are no tokens".into());
        }
        // A page's own name, made to mean this machine, is no other origin. No browser speaks gRPC.
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if Call::of(request.uri().path()).is_none()
            && let Some(host) = request.uri().authority().map(|a| a.as_str()).or(host)
            && !is_ours(host)
        {
            return forbidden(format!(
                "asked for by the name {:?}, which a web page may have made to mean this machine: use its address, or start \
                 the controller with --tokens",
                one_line(host)
            ));
        }
        return Ok(None);
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
    let pass = access.find(token);
    pass.map(Some).ok_or_else(|| unauthorized("this token is not known here"))
}

/// Whether no web page can have this name (with or without a port): an address, or a name of
/// one label.
fn is_ours(host: &str) -> bool {
    if host.starts_with('[') {
        return true;
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    !name.contains('.') || name.parse::<Ipv4Addr>().is_ok()
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Response> {
        let caller = parts.extensions.get::<Caller>().cloned();
        // A route that the layer does not cover serves nobody.
        caller.ok_or_else(|| error(StatusCode::UNAUTHORIZED, "nobody is known to ask"))
    }
}
