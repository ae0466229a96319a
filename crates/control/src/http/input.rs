//! Reading requests: bounded in size and time, every mistake named in one line.

use std::time::Duration;

use api::{
    text::{one_line, toml_error},
    types::{Check, LIST_MAX, TopologySpec},
};
use axum::{
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, header, request::Parts},
    response::Response,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::reply::error;

/// Longest body of a request in bytes.
pub const BODY_MAX: usize = 64 << 10;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A JSON body.
pub struct Body<T>(pub T);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned + Check,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, _: &S) -> Result<Body<T>, Response> {
        // Only JSON by name: a web page in somebody's browser cannot send that to another
        // site unasked.
        if content_type(&request) != "application/json" {
            return Err(error(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "expected a JSON body: Content-Type: application/json",
            ));
        }
        let bytes = read(request).await?;
        checked(json(&bytes)).map(Body).map_err(wrong)
    }
}

/// A topology: JSON, or TOML if the body says so.
pub struct TopologyBody(pub TopologySpec);

impl<S: Send + Sync> FromRequest<S> for TopologyBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<TopologyBody, Response> {
        if content_type(&request) != "application/toml" {
            let Body(topology) = Body::from_request(request, state).await?;
            return Ok(TopologyBody(topology));
        }
        let bytes = read(request).await?;
        let parsed = str::from_utf8(&bytes)
            .map_err(|_| "topology: expected TOML in UTF-8".to_string())
            .and_then(|text| {
                toml::from_str(text).map_err(|e| format!("topology: {}", toml_error(text, &e)))
            });
        checked(parsed).map(TopologyBody).map_err(wrong)
    }
}

fn content_type(request: &Request) -> &str {
    request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map_or("", str::trim)
}

async fn read(request: Request) -> Result<Bytes, Response> {
    let body = axum::body::to_bytes(request.into_body(), BODY_MAX);
    match tokio::time::timeout(BODY_WITHIN, body).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is longer than {BODY_MAX} bytes, or its end did not come"),
        )),
        Err(_) => Err(error(
            StatusCode::REQUEST_TIMEOUT,
            &format!("the body did not come within {} s", BODY_WITHIN.as_secs()),
        )),
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("body: {}", one_line(&e.to_string())))
}

fn checked<T: Check>(parsed: Result<T, String>) -> Result<T, String> {
    parsed.and_then(|value| value.check().map(|()| value))
}

fn wrong(line: String) -> Response {
    error(StatusCode::BAD_REQUEST, &line)
}

/// The part of a path that names the thing.
pub struct Id(pub u32);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Id, Response> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|e| error(StatusCode::BAD_REQUEST, &e.body_text()))?;
        text.parse().map(Id).map_err(|_| {
            let line =
                format!("{:?} is no tenant's number; expected 1 to 4294967294", one_line(&text));
            error(StatusCode::BAD_REQUEST, &line)
        })
    }
}

/// What stands behind the question mark.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, Response> {
        Query::<T>::from_request_parts(parts, state)
            .await
            .map(|Query(params)| Params(params))
            .map_err(|e| {
                // Of the extractor's own words, only those that say what is wrong.
                let line = e.body_text();
                let line = line.trim_start_matches("Failed to deserialize query string: ");
                error(StatusCode::BAD_REQUEST, &format!("parameter {line}"))
            })
    }
}

/// How many entries to answer with, of those that were asked for.
pub fn limit(asked: Option<usize>) -> usize {
    asked.unwrap_or(LIST_MAX).clamp(1, LIST_MAX)
}
