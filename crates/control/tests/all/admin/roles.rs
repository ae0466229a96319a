//! Who may what.

use std::time::Duration;

use api::{
    ControlEndpoint,
    proto::{StatusRequest, control_client::ControlClient},
};
use control::serve::{Listen, RunningServer, ServeError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;

use super::{
    ROUTES,
    harness::{PATIENCE, Site, TestRequest, TokenFile, loopback, request},
};

/// Which routes of [`ROUTES`] a role may use besides an admin, who may use all: paths without their
/// parameters.
fn allowed(role: &str, method: &str, path: &str) -> bool {
    let (bare, parameters) = path.split_once('?').unwrap_or((path, ""));
    let secret = parameters.contains("secrets") || bare.ends_with("/credentials");
    match role {
        "admin" => true,
        "viewer" => method == "GET" && !secret,
        "tenant 7" => match bare {
            "/v1/tenants" | "/v1/tenants/7" | "/v1/pages" | "/v1/tenants/7/credentials" => {
                method == "GET"
            }
            "/v1/tenants/7/keys" => method == "GET",
            "/v1/tenants/7/pages" => true,
            _ => false,
        },
        // Its own list, which has nothing to do with tenant 7; the fake does not know it.
        "tenant 9" => bare == "/v1/pages" && method == "GET",
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_it_should_and_nothing_else() {
    let file = TokenFile::new();
    let listen = Listen { tokens: Some(file.path()), ..Listen::on(loopback()) };
    let site = Site::start(&listen).await;
    for (name, token) in &file.tokens {
        for (method, path, body, status) in ROUTES {
            if *name == "tenant 9"
                && path.split('?').next() == Some("/v1/tenants")
                && *method == "GET"
            {
                continue;
            }
            let sent = TestRequest { token: Some(token.clone()), ..request(method, path, body) };
            let got = site.send(sent).await;
            let expected = if allowed(name, method, path) { *status } else { 403 };
            assert_eq!(got.status, expected, "{name}: {method} {path}: {got:?}");
            if expected == 403 {
                assert!(got.error().contains(&format!("token {name:?} may not")), "{got:?}");
            }
        }
    }
    let last = site.fake.last.lock().unwrap().clone().unwrap();
    assert_eq!(last, ("tenant 7".into(), "return".into()), "the token's name is who did it");
    // Another tenant's pages, asked for by parameter.
    let sent = TestRequest {
        token: Some(file.of("tenant 7")),
        ..request("GET", "/v1/pages?tenant=9", "")
    };
    assert_eq!(site.send(sent).await.status, 403);
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_known_token_there_is_only_the_description() {
    let file = TokenFile::new();
    let listen = Listen { tokens: Some(file.path()), ..Listen::on(loopback()) };
    let site = Site::start(&listen).await;
    assert_eq!(site.send(request("GET", "/openapi.json", "")).await.status, 200);
    for token in [None, Some("guess".to_string()), Some(String::new())] {
        for (method, path, body, _) in ROUTES.iter().chain(&[("GET", "/elsewhere", "", 0)]) {
            let got = site
                .send(TestRequest { token: token.clone(), ..request(method, path, body) })
                .await;
            assert_eq!(got.status, 401, "{method} {path}: {got:?}");
            got.error();
        }
    }
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_asks_for_the_right_token_too() {
    let file = TokenFile::new();
    let listen = Listen { tokens: Some(file.path()), ..Listen::on(loopback()) };
    let site = Site::start(&listen).await;
    let url = format!("http://{}", site.serving.address());
    // (token, attach, serve, status)
    let rows = [
        (Some("admin"), Code::Ok, Code::Ok, Code::Ok),
        (Some("switch"), Code::Ok, Code::PermissionDenied, Code::Ok),
        (Some("store"), Code::PermissionDenied, Code::Ok, Code::Ok),
        (Some("viewer"), Code::PermissionDenied, Code::PermissionDenied, Code::Ok),
        (Some("tenant 7"), Code::PermissionDenied, Code::PermissionDenied, Code::PermissionDenied),
        (None, Code::Unauthenticated, Code::Unauthenticated, Code::Unauthenticated),
    ];
    for (name, attach, serve, status) in rows {
        let endpoint = ControlEndpoint {
            token: name.map(|name| file.of(name)),
            // The first of them answers nobody.
            ..ControlEndpoint::new(&format!("http://127.0.0.1:1,{url}")).unwrap()
        };
        let (link, which) = endpoint.connect(0).await.unwrap();
        assert_eq!(which, 1);
        let mut client = ControlClient::new(link);
        let code =
            |result: Result<(), tonic::Status>| result.map_or_else(|s| s.code(), |()| Code::Ok);
        let got = client.attach(tokio_stream::empty()).await.map(drop);
        assert_eq!(code(got), attach, "{name:?} attaches");
        let got = client.serve(tokio_stream::empty()).await.map(drop);
        assert_eq!(code(got), serve, "{name:?} follows as a store");
        let got = client.status(StatusRequest {}).await.map(drop);
        assert_eq!(code(got), status, "{name:?} asks for the status");
    }
    site.serving.stop().await;
}

/// Connections without a token, as many as may be there of others; then one with.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_keeps_nobody_out() {
    let file = TokenFile::new();
    let listen = Listen {
        tokens: Some(file.path()),
        connections_max: 4,
        stranger_for: PATIENCE,
        ..Listen::on(loopback())
    };
    let site = Site::start(&listen).await;
    let address = site.serving.address();
    let mut silent = vec![];
    for n in 0..200_u8 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // Two of each address, so that none has too many.
        socket.bind(([127, 0, 1, n / 2], 0).into()).unwrap();
        silent.push(socket.connect(address).await.unwrap());
    }
    let with_token =
        || TestRequest { token: Some(file.of("viewer")), ..request("GET", "/v1/tenants", "") };
    assert_eq!(site.send(with_token()).await.status, 200);

    // Of one address only some may stay: the first make room for the last.
    let from_one = async || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.2.1:0".parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut kept = vec![];
    for _ in 0..64 {
        kept.push(from_one().await);
    }
    for stream in &mut kept[..32] {
        ends(stream).await;
    }
    let mut last = from_one().await;
    let head = b"GET /v1/tenants HTTP/1.1\r\n\r\n";
    last.write_all(head).await.unwrap();
    assert!(last.read(&mut [0; 16]).await.unwrap() > 0);
    assert_eq!(site.send(with_token()).await.status, 200);
    // Stopping waits for those who are still there.
    drop((silent, kept, last));
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_has_no_time_to_stay() {
    let file = TokenFile::new();
    let listen = Listen {
        tokens: Some(file.path()),
        stranger_for: Duration::from_millis(50),
        ..Listen::on(loopback())
    };
    let site = Site::start(&listen).await;
    let mut silent = TcpStream::connect(site.serving.address()).await.unwrap();
    ends(&mut silent).await;
    site.serving.stop().await;
}

/// What goes over it, secrets above all, is no longer for whoever has the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_with_its_token_and_others_go_on() {
    let file = TokenFile::new();
    let listen = Listen { tokens: Some(file.path()), ..Listen::on(loopback()) };
    let site = Site::start(&listen).await;
    let with = async |name: &str| {
        let mut stream = TcpStream::connect(site.serving.address()).await.unwrap();
        ask(&mut stream, &file.of(name)).await;
        stream
    };
    let (mut revoked, mut good) = (with("switch").await, with("viewer").await);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let is_other = |entry: &&str| !entry.contains("name = \"switch\"");
    let left: Vec<&str> = text.split("[[token]]").filter(is_other).collect();
    std::fs::write(file.path(), left.join("[[token]]")).unwrap();
    ends(&mut revoked).await;
    ask(&mut good, &file.of("viewer")).await;
    drop(good);
    site.serving.stop().await;
}

/// A request on a connection that stays open, and its answer.
async fn ask(stream: &mut TcpStream, token: &str) {
    let head =
        format!("GET /v1/tenants HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    while !answer.contains("\r\n\r\n") || !answer.ends_with(['}', ']']) {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await;
        let read = read.expect("an answer in time").unwrap();
        assert!(read > 0, "{answer}");
        answer += std::str::from_utf8(&bytes[..read]).unwrap();
    }
}

/// Waits until the other side has closed it; nothing may come before.
async fn ends(stream: &mut TcpStream) {
    let mut bytes = [0; 16];
    let ended = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
}

#[tokio::test]
async fn beyond_loopback_it_wants_tls_and_tokens() {
    let file = TokenFile::new();
    let app = |_| axum::Router::new();
    let open = Listen::on("0.0.0.0:0".parse().unwrap());
    let error = RunningServer::start(&open, app).await.err().unwrap();
    assert!(matches!(error, ServeError::Unprotected { .. }));
    assert!(
        error.to_string().contains("a certificate (--tls-cert, --tls-key) and tokens"),
        "{error}"
    );
    let half = Listen { tokens: Some(file.path()), ..open.clone() };
    let error = RunningServer::start(&half, app).await.err().unwrap().to_string();
    assert!(error.contains("needs a certificate"), "{error}");
    let trusting = Listen { insecure: true, ..open };
    RunningServer::start(&trusting, app).await.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_answers_in_one_line() {
    let endpoint = ControlEndpoint::new("http://127.0.0.1:1").unwrap();
    let error = endpoint.connect(0).await.err().unwrap();
    assert!(error.contains("no controller answers at http://127.0.0.1:1"), "{error}");
    assert!(!error.contains('\n'));
    for wrong in ["", "127.0.0.1:7118", "http://", "http://a,ftp://b", "http://a/b"] {
        let error = ControlEndpoint::new(wrong).unwrap_err();
        assert!(error.contains("expected http://HOST:PORT"), "{wrong:?}: {error}");
    }
}
