//! Asking the admin API: JSON over the same connection as gRPC.

use std::{future::poll_fn, time::Duration};

use http::{Method, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tonic::{body::Body, client::GrpcService};

use crate::{
    ControlEndpoint, ControllerAnswer, Link,
    connect::{causes, no_answer, parse_urls},
    types::ErrorBody,
};

/// Media type of documents in JSON.
pub const JSON: &str = "application/json";
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Longest answer in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// A request of the admin API, to be sent to one controller after the other until it is answered.
#[derive(Clone, Debug)]
pub struct AdminRequest {
    /// What to do.
    pub method: Method,
    /// With what, from `/v1` on, parameters included.
    pub path: String,
    /// Media type and text of the body, if there is one.
    pub body: Option<(&'static str, String)>,
}

impl ControlEndpoint {
    /// Asks the controller that leads; the body of its answer.
    ///
    /// # Errors
    /// One line: what it said, or that no controller answers. A change that may have been made
    /// although no answer came is not repeated, and the line says so.
    pub async fn ask(&self, asking: &AdminRequest) -> Result<String, String> {
        let one = async |link, url: &str| asking.once(link, url).await;
        self.leader(0, one).await.map(|(text, _)| text)
    }
}

impl AdminRequest {
    async fn once(&self, link: Link, url: &str) -> ControllerAnswer<String> {
        let exchange = tokio::time::timeout(ANSWER_WITHIN, self.exchange(link));
        let error: Box<dyn std::error::Error + Send + Sync> = match exchange.await {
            Ok(Ok((status, text))) => return understand(status, text, url),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", ANSWER_WITHIN.as_secs()).into(),
        };
        if error.is::<LengthLimitError>() {
            return ControllerAnswer::Refused(format!(
                "{url}: the answer is longer than {ANSWER_MAX} bytes; ask for less"
            ));
        }
        match self.method == Method::GET {
            true => ControllerAnswer::Later(no_answer(url, &*error, "is it http:// or https://?")),
            false => ControllerAnswer::Refused(format!(
                "{url}: {}; whether it was done is not known",
                causes(&*error)
            )),
        }
    }

    async fn exchange(
        &self,
        mut link: Link,
    ) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
        let request = http::Request::builder().method(&self.method).uri(&self.path);
        let request = match &self.body {
            Some((kind, text)) => request
                .header(header::CONTENT_TYPE, *kind)
                .body(Body::new(Full::from(text.clone())))?,
            None => request.body(Body::empty())?,
        };
        poll_fn(|context| GrpcService::<Body>::poll_ready(&mut link, context)).await?;
        let (head, body) = GrpcService::call(&mut link, request).await?.into_parts();
        let bytes = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok((head.status, String::from_utf8(bytes.into())?))
    }
}

/// What an answer says.
fn understand(status: StatusCode, text: String, url: &str) -> ControllerAnswer<String> {
    if status.is_success() {
        return ControllerAnswer::Done(text);
    }
    let body: ErrorBody = serde_json::from_str(&text).unwrap_or_else(|_| ErrorBody {
        error: format!("{status}, with an answer that no controller gives"),
        leader: None,
    });
    match (status, body.leader) {
        (StatusCode::TEMPORARY_REDIRECT, Some(leader)) if parse_urls(&leader).is_ok() => {
            ControllerAnswer::Leader(leader.trim_end_matches('/').into())
        }
        (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TEMPORARY_REDIRECT, _) => {
            ControllerAnswer::Later(format!("{url}: {}", body.error))
        }
        _ => ControllerAnswer::Refused(body.error),
    }
}
