//! Requests of the admin API: the leader is found, nothing is changed twice, and what goes wrong is
//! one line.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{AdminRequest, ControlEndpoint, JSON, types::ErrorBody};
use authority::Authority;
use axum::{Json, Router, extract::Request, http::StatusCode, response::IntoResponse};
use http::Method;

use super::fake::{endpoint, serve_json, tls};

fn asking(method: Method) -> AdminRequest {
    let body = (method != Method::GET).then(|| (JSON, "{}".to_string()));
    AdminRequest { method, path: "/v1/tenants?after=1".into(), body }
}

async fn get(endpoint: &ControlEndpoint) -> Result<String, String> {
    endpoint.ask(&asking(Method::GET)).await
}

async fn post(endpoint: &ControlEndpoint) -> Result<String, String> {
    endpoint.ask(&asking(Method::POST)).await
}

/// Answers everything like this.
fn answering(status: u16, error: &str, leader: Option<&str>) -> Router {
    let body = ErrorBody { error: error.into(), leader: leader.map(String::from) };
    let status = StatusCode::from_u16(status).unwrap();
    Router::new().fallback(move || async move { (status, Json(body)).into_response() })
}

/// Leads; counts what it is asked.
fn leading(asked: &Arc<AtomicUsize>) -> Router {
    let asked = asked.clone();
    Router::new().fallback(move || {
        asked.fetch_add(1, Relaxed);
        async { "done" }
    })
}

#[tokio::test]
async fn a_request_arrives_as_it_was_made() {
    let app = Router::new().fallback(|request: Request| async move {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 100).await.unwrap();
        let header = |name: &str| head.headers[name].to_str().unwrap().to_string();
        format!(
            "{} {} {} {} {body:?}",
            head.method,
            head.uri.path_and_query().unwrap(),
            header("authorization"),
            header("content-type"),
        )
    });
    let url = serve_json(app, None).await;
    let endpoint = ControlEndpoint { token: Some("word".into()), ..endpoint(&[&url]) };
    assert_eq!(
        post(&endpoint).await.unwrap(),
        "POST /v1/tenants?after=1 Bearer word application/json b\"{}\""
    );
}

#[tokio::test]
async fn the_one_that_leads_is_found() {
    let asked = Arc::new(AtomicUsize::new(0));
    let leader = serve_json(leading(&asked), None).await;
    let pointing = serve_json(answering(307, "not here", Some(&leader)), None).await;
    let lost = serve_json(answering(307, "nobody", None), None).await;
    let waiting = serve_json(answering(503, "not yet", None), None).await;
    let away = "http://127.0.0.1:1";
    for urls in
        [&[&*leader][..], &[&pointing], &[away, &pointing], &[&lost, &waiting, away, &leader]]
    {
        let before = asked.load(Relaxed);
        assert_eq!(post(&endpoint(urls)).await.unwrap(), "done", "{urls:?}");
        assert_eq!(asked.load(Relaxed), before + 1, "{urls:?}");
    }
    let dead_end = serve_json(answering(307, "", Some(away)), None).await;
    for (urls, says) in [
        (&[&*waiting, &*lost][..], &[&*lost, "nobody"][..]),
        (&[&*lost, &*waiting], &[&*waiting, "not yet"]),
        (&[&*dead_end], &[away, "no controller answers"]),
        (&[away], &[away, "is `shortstop control` running?"]),
    ] {
        let line = post(&endpoint(urls)).await.unwrap_err();
        assert!(says.iter().all(|text| line.contains(text)), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn controllers_that_point_to_themselves_are_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let pointing = serve_json(answering(307, "", Some(&url)), None).await;
    let back = answering(307, "", Some(&pointing));
    tokio::spawn(async move { axum::serve(listener, back).await });
    let line = get(&endpoint(&[&url])).await.unwrap_err();
    assert!(line.contains("and that one does not"), "{line}");
}

#[tokio::test]
async fn what_the_leader_refuses_is_asked_nobody_else() {
    let asked = Arc::new(AtomicUsize::new(0));
    let leader = serve_json(leading(&asked), None).await;
    let refusing = serve_json(answering(409, "no room", None), None).await;
    let unsure = serve_json(answering(500, "look whether it was made", None), None).await;
    let strange =
        serve_json(Router::new().fallback(|| async { (StatusCode::BAD_GATEWAY, "<html>") }), None)
            .await;
    let long =
        serve_json(Router::new().fallback(|| async { "x".repeat((16 << 20) + 1) }), None).await;
    for (url, says) in [
        (&refusing, "no room"),
        (&unsure, "look whether it was made"),
        (&strange, "an answer that no controller gives"),
        (&long, "longer than 16777216 bytes"),
    ] {
        let line = get(&endpoint(&[url, &leader])).await.unwrap_err();
        assert!(line.contains(says), "{line}");
    }
    assert_eq!(asked.load(Relaxed), 0);
}

#[tokio::test]
async fn a_change_without_an_answer_is_not_repeated() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cut = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let asked = Arc::new(AtomicUsize::new(0));
    let leader = serve_json(leading(&asked), None).await;
    let both = endpoint(&[&cut, &leader]);
    let line = post(&both).await.unwrap_err();
    assert!(line.contains(&cut) && line.contains("whether it was done is not known"), "{line}");
    assert_eq!(asked.load(Relaxed), 0);
    assert_eq!(get(&both).await.unwrap(), "done");
}

#[tokio::test]
async fn certificates_of_both_sides_count() {
    let (authority, asked) = (Authority::generate(), Arc::new(AtomicUsize::new(0)));
    let own = |name: &str| Some(authority.path(name));
    let trusted = serve_json(leading(&asked), Some(tls(&authority, false))).await;
    let mutual = serve_json(leading(&asked), Some(tls(&authority, true))).await;
    let known = |url: &str| ControlEndpoint { ca: own("ca.pem"), ..endpoint(&[url]) };
    let shown = |url: &str| ControlEndpoint {
        cert: own("client.pem"),
        key: own("client.key"),
        ..known(url)
    };
    for endpoint in [known(&trusted), shown(&trusted), shown(&mutual)] {
        assert_eq!(post(&endpoint).await.unwrap(), "done", "{endpoint:?}");
    }
    let line = get(&known(&mutual)).await.unwrap_err();
    assert!(line.contains("no controller answers"), "{line}");

    let plain = serve_json(leading(&asked), None).await;
    let (on_tls, on_plain) = (trusted.replace("https", "http"), plain.replace("http", "https"));
    let other = Authority::generate();
    let stranger = ControlEndpoint { ca: Some(other.path("ca.pem")), ..endpoint(&[&trusted]) };
    let absent = ControlEndpoint { ca: Some("absent.pem".into()), ..endpoint(&[&trusted]) };
    let swapped = ControlEndpoint { ca: own("client.key"), ..endpoint(&[&trusted]) };
    let no_key =
        ControlEndpoint { cert: own("client.pem"), key: own("client.pem"), ..known(&trusted) };
    let half = ControlEndpoint { cert: own("client.pem"), ..known(&trusted) };
    for (endpoint, says) in [
        (stranger, "--ca"),
        (endpoint(&[&trusted]), "--ca"),
        (known(&on_plain), "is it http:// or https://"),
        (endpoint(&[&on_tls]), "is it http:// or https://?"),
        (absent, "cannot read absent.pem"),
        (swapped, "client.key: expected certificates in PEM form"),
        (no_key, "client.pem: expected a private key in PEM form"),
        (half, "--cert, --key"),
    ] {
        let line = get(&endpoint).await.unwrap_err();
        assert!(line.contains(says) && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn a_token_never_goes_from_https_to_http() {
    let (authority, asked) = (Authority::generate(), Arc::new(AtomicUsize::new(0)));
    let plain = serve_json(leading(&asked), None).await;
    let pointing = answering(307, "", Some(&plain));
    let pointing = serve_json(pointing, Some(tls(&authority, false))).await;
    let endpoint = ControlEndpoint {
        ca: Some(authority.path("ca.pem")),
        token: Some("word".into()),
        ..endpoint(&[&pointing, &pointing])
    };
    let line = get(&endpoint).await.unwrap_err();
    assert!(line.contains(&plain) && line.contains("not encrypted"), "{line}");
    assert_eq!(asked.load(Relaxed), 0);
}
