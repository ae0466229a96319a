//! Refusals as HTTP answers: `{"error": "one line"}`.

use std::collections::BTreeMap;

use api::{text::one_line, types::ErrorBody};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use utoipa::{
    IntoResponses, ToSchema,
    openapi::{RefOr, response::ResponseBuilder},
};

use crate::admin::{Refusal, RefusalKind};

/// What a handler answers with.
pub type Answer<T> = Result<Json<T>, Refusal>;

/// Where the leader is: [`redirect`] makes a `Location` of it, since only there the request's path
/// is known.
#[derive(Clone)]
struct Leader(String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal { kind, message } = self;
        let status = match &kind {
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Conflict | RefusalKind::NoRoom => StatusCode::CONFLICT,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::NotLeader { url: Some(_) } => StatusCode::TEMPORARY_REDIRECT,
            RefusalKind::NotLeader { url: None } | RefusalKind::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            RefusalKind::OutcomeUnknown => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let RefusalKind::NotLeader { url: Some(url) } = kind else {
            return error(status, &message);
        };
        let body = ErrorBody { error: one_line(&message), leader: Some(url.clone()) };
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(Leader(url));
        response
    }
}

/// An answer that is no success.
pub fn error(status: StatusCode, line: &str) -> Response {
    let body = ErrorBody { error: one_line(line), leader: None };
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Completes an answer that points to the leader: the same path there.
pub fn redirect(mut response: Response, asked: &Uri) -> Response {
    if let Some(Leader(url)) = response.extensions_mut().remove::<Leader>() {
        let path = asked.path_and_query().map_or("/", |path| path.as_str());
        let location = format!("{}{path}", url.trim_end_matches('/'));
        match HeaderValue::from_str(&location) {
            Ok(location) => {
                response.headers_mut().insert(header::LOCATION, location);
            }
            Err(_) => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        }
    }
    response
}

/// The answers that every request may get, for the description.
pub struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::response::Response>> {
        let body = || {
            utoipa::openapi::content::ContentBuilder::new()
                .schema(Some(utoipa::openapi::Ref::from_schema_name(ErrorBody::name())))
                .build()
        };
        [
            ("307", "Another controller leads; `Location` is the same request there."),
            ("400", "The request is wrong; the line names the field."),
            ("401", "A token is needed, or this one is not known."),
            ("403", "This token may not do that."),
            ("404", "There is no such thing."),
            ("409", "Not as things are: taken, not held, or so many pages are not to be had."),
            ("500", "It may have been done, or may be done yet; look before you ask again."),
            (
                "503",
                "Nothing was changed, for no controller leads at the moment, or its state cannot \
                 be written; try again.",
            ),
        ]
        .into_iter()
        .map(|(status, description)| {
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/json", body())
                .build();
            (status.to_string(), RefOr::T(response))
        })
        .collect()
    }
}
