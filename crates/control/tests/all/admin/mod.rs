//! The admin API over the network: every route, every refusal, who may what, and TLS.

mod fake;
mod harness;
mod roles;
mod tls;
mod unread;

use control::{
    admin::{Refusal, RefusalKind},
    http::openapi,
    serve::Listen,
};
use harness::{Site, TestRequest, TokenFile, loopback, request};

/// Every route with a good request: (method, path, body, status).
pub const ROUTES: &[(&str, &str, &str, u16)] = &[
    ("GET", "/v1/tenants", "", 200),
    ("GET", "/v1/tenants?secrets=true&limit=5&after=1", "", 200),
    ("POST", "/v1/tenants", r#"{"name":"shop","quota":8,"clients":["10.0.1.7"]}"#, 201),
    ("GET", "/v1/tenants/7", "", 200),
    ("GET", "/v1/tenants/7?secrets=true", "", 200),
    ("PATCH", "/v1/tenants/7", r#"{"quota":12,"policy":"near-store"}"#, 200),
    ("DELETE", "/v1/tenants/7", "", 204),
    ("POST", "/v1/tenants/7/secret", "", 200),
    ("DELETE", "/v1/tenants/7/secret", "", 200),
    ("GET", "/v1/tenants/7/credentials", "", 200),
    ("GET", "/v1/tenants/7/pages?kind=own", "", 200),
    ("GET", "/v1/tenants/7/keys?prefix=61&after=6162&limit=2", "", 200),
    ("POST", "/v1/tenants/7/pages", r#"{"pages":1,"lease_s":60}"#, 200),
    ("DELETE", "/v1/tenants/7/pages", r#"{"pages":["3/17"]}"#, 200),
    ("GET", "/v1/pages?switch=3&kind=free&after=3/17&limit=2", "", 200),
    ("GET", "/v1/topology", "", 200),
    ("PUT", "/v1/topology", r#"{"switch":[{"id":1},{"id":2}],"link":[{"a":1,"b":2}]}"#, 200),
    ("DELETE", "/v1/topology/switches/7", "", 200),
    ("GET", "/v1/routes", "", 200),
    ("PUT", "/v1/routes", r#"{"managed":true}"#, 200),
    ("GET", "/v1/cluster", "", 200),
    ("GET", "/v1/counters", "", 200),
    ("GET", "/v1/audit?after=3&limit=10", "", 200),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers() {
    let site = Site::start(&Listen::on(loopback())).await;
    for (method, path, body, status) in ROUTES {
        let got = site.send(request(method, path, body)).await;
        assert_eq!(got.status, *status, "{method} {path}: {got:?}");
        let described = openapi();
        let template = path.split('?').next().unwrap().replace("/7", "/{id}");
        assert!(described.paths.paths.contains_key(&template), "{template} is not described");
    }
    let last = site.fake.last.lock().unwrap().clone();
    assert_eq!(last.unwrap().0, "anonymous");
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_passes_each_refusal_on() {
    let site = Site::start(&Listen::on(loopback())).await;
    let elsewhere = "http://10.9.9.9:7118".to_string();
    // (kind, status)
    let rows = [
        (RefusalKind::NotFound, 404),
        (RefusalKind::Invalid, 400),
        (RefusalKind::Conflict, 409),
        (RefusalKind::NoRoom, 409),
        (RefusalKind::Forbidden, 403),
        (RefusalKind::NotLeader { url: None }, 503),
        (RefusalKind::NotLeader { url: Some(elsewhere.clone()) }, 307),
        (RefusalKind::Unavailable, 503),
        (RefusalKind::OutcomeUnknown, 500),
    ];
    for (kind, status) in rows {
        *site.fake.refuse.lock().unwrap() = Some(Refusal::new(kind, "2 pages\nare free"));
        for (method, path, body, _) in ROUTES {
            let got = site.send(request(method, path, body)).await;
            assert_eq!(got.status, status, "{method} {path}: {got:?}");
            assert_eq!(got.error(), "2 pages are free");
            let leads = (status == 307).then(|| format!("{elsewhere}{path}"));
            assert_eq!(got.location, leads, "{method} {path}");
        }
    }
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_gets_one_line_that_says_what_was_expected() {
    let site = Site::start(&Listen::on(loopback())).await;
    let long = "x".repeat(65);
    let many = format!("{{\"name\":\"{}\"}}", "x".repeat(70_000));
    let list: Vec<String> = (0..1001).map(|n| format!("\"1/{n}\"")).collect();
    let list = format!("{{\"pages\":[{}]}}", list.join(","));
    // (method, path, body, status, what the error says)
    let rows: Vec<(&'static str, &str, &str, u16, &str)> = vec![
        ("POST", "/v1/tenants", "{", 400, "body: EOF while parsing"),
        ("POST", "/v1/tenants", "{\"a\nb\":1}", 400, "body: control character"),
        (
            "POST",
            "/v1/tenants",
            r#"{"qouta":1}"#,
            400,
            "unknown field `qouta`, expected one of `id`",
        ),
        ("POST", "/v1/tenants", r#"{"quota":-1}"#, 400, "invalid value: integer `-1`"),
        ("POST", "/v1/tenants", r#"{"quota":4294967296}"#, 400, "invalid value"),
        ("POST", "/v1/tenants", r#"{"id":0}"#, 400, "id: 0 is reserved"),
        ("POST", "/v1/tenants", r#"{"id":4294967295}"#, 400, "is reserved"),
        ("POST", "/v1/tenants", r#"{"secret":"12"}"#, 400, "secret: expected 32 hex digits"),
        (
            "POST",
            "/v1/tenants",
            r#"{"policy":"nearby"}"#,
            400,
            "unknown variant `nearby`, expected one of `near-client`",
        ),
        ("POST", "/v1/tenants", r#"{"stores":["there"]}"#, 400, "invalid socket address"),
        ("POST", "/v1/tenants", r#"{"clients":["there"]}"#, 400, "\"there\" is neither an address"),
        ("POST", "/v1/tenants", &many, 413, "longer than 65536 bytes"),
        ("PATCH", "/v1/tenants/7", "{}", 400, "nothing to change"),
        ("GET", "/v1/tenants/seven", "", 400, "\"seven\" is no tenant's number"),
        ("GET", "/v1/tenants/8", "", 404, "there is no tenant 8"),
        ("GET", "/v1/tenants?limits=5", "", 400, "unknown field `limits`"),
        ("GET", "/v1/pages?after=317", "", 400, "expected SWITCH/PAGE"),
        (
            "GET",
            "/v1/tenants/7/keys?prefix=6",
            "",
            400,
            "parameter prefix: \"6\": expected hex digits",
        ),
        ("GET", "/v1/pages?kind=mine", "", 400, "unknown variant `mine`"),
        ("POST", "/v1/tenants/7/pages", r#"{"pages":0}"#, 400, "expected at least 1"),
        ("POST", "/v1/tenants/7/pages", r#"{}"#, 400, "missing field `pages`"),
        ("POST", "/v1/tenants/7/pages", r#"{"pages":1,"switch":0}"#, 400, "switch: 0"),
        ("POST", "/v1/tenants/7/pages", r#"{"pages":1,"lease_s":0}"#, 400, "lease_s"),
        ("DELETE", "/v1/tenants/7/pages", r#"{}"#, 400, "expected the pages to return, or a count"),
        ("DELETE", "/v1/tenants/7/pages", r#"{"pages":["3/17"],"count":1}"#, 400, "not both"),
        (
            "DELETE",
            "/v1/tenants/7/pages",
            r#"{"pages":["3/17","3/17"]}"#,
            400,
            "3/17 is named twice",
        ),
        (
            "DELETE",
            "/v1/tenants/7/pages",
            r#"{"pages":["4/1"]}"#,
            409,
            "page 4/1 is not held by tenant 7",
        ),
        ("DELETE", "/v1/tenants/7/pages", &list, 400, "1001 entries, at most 1000"),
        ("DELETE", "/v1/tenants/7/pages", "", 415, "Content-Type: application/json"),
        ("PUT", "/v1/topology", r#"{"switch":[{"id":0}]}"#, 400, "switch 0"),
        ("PUT", "/v1/topology", r#"{"link":[{"a":1,"b":1}]}"#, 400, "two different switches"),
        (
            "PUT",
            "/v1/topology",
            r#"{"network":[{"prefix":"x","switch":1}]}"#,
            400,
            "invalid IP address",
        ),
        ("PUT", "/v1/routes", r#"{"managed":"yes"}"#, 400, "invalid type"),
        ("GET", "/v2/tenants", "", 404, "there is nothing at /v2/tenants"),
        ("PUT", "/v1/tenants", "{}", 405, "PUT is not possible on /v1/tenants"),
    ];
    for (method, path, body, status, says) in rows {
        let got = site.send(request(method, path, body)).await;
        assert_eq!(got.status, status, "{method} {path}: {got:?}");
        assert!(
            got.error().contains(says),
            "{method} {path} {body:.80}: {:?} should say {says:?}",
            got.error()
        );
    }
    let named = format!("{{\"name\":\"{long}\"}}");
    let got = site.send(request("POST", "/v1/tenants", &named)).await;
    assert!(got.error().contains("name: expected at most 64 bytes"), "{got:?}");

    // Not JSON by name: what a form of a web page could send.
    let form = TestRequest { kind: "text/plain", ..request("POST", "/v1/tenants", "{}") };
    assert_eq!(site.send(form).await.status, 415);
    let page = TestRequest { origin: true, ..request("POST", "/v1/tenants/7/secret", "") };
    let got = site.send(page).await;
    assert_eq!(got.status, 403, "{got:?}");
    assert_eq!(*site.fake.last.lock().unwrap(), None, "nothing of this changed anything");
    site.serving.stop().await;
}

/// A page whose name was made to mean this machine is of the same origin as the controller for a
/// browser, which then says no origin when it reads.
#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_a_name_of_somebody_elses_is_refused() {
    let site = Site::start(&Listen::on(loopback())).await;
    // (asked for by this name, status)
    let rows = [
        ("evil.example:7118", 403),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.0.0.1:7118", 200),
        ("localhost:7118", 200),
        ("LOCALHOST", 200),
        ("[::1]:7118", 200),
        ("rack-control:7118", 200),
    ];
    for (host, status) in rows {
        let named =
            TestRequest { host: Some(host), ..request("GET", "/v1/tenants?secrets=true", "") };
        let got = site.send(named).await;
        assert_eq!(got.status, status, "{host}: {got:?}");
    }
    site.serving.stop().await;
    let tokens = TokenFile::new();
    let listen = Listen { tokens: Some(tokens.path()), ..Listen::on(loopback()) };
    let site = Site::start(&listen).await;
    let named = TestRequest {
        host: Some("control.example"),
        token: Some(tokens.of("viewer")),
        ..request("GET", "/v1/tenants", "")
    };
    assert_eq!(site.send(named).await.status, 200, "a token says who asks");
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topology_may_be_toml() {
    let site = Site::start(&Listen::on(loopback())).await;
    let toml =
        |body| TestRequest { kind: "application/toml", ..request("PUT", "/v1/topology", body) };
    let good = "[[switch]]\nid = 1\n[[network]]\nprefix = \"10.0.1.0/24\"\nswitch = 1\n";
    assert_eq!(site.send(toml(good)).await.status, 200);
    let last = site.fake.last.lock().unwrap().clone().unwrap();
    assert_eq!(last.1, "declare 1");
    for (text, says) in [
        ("[[switch]\nid = 1", "topology: line 1"),
        ("[[switch]]\nid = 1\nports = 3", "line 3, column 1: unknown field `ports`"),
    ] {
        let got = site.send(toml(text)).await;
        assert_eq!(got.status, 400);
        assert!(got.error().contains(says), "{:?} should say {says:?}", got.error());
    }
    site.serving.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_whole() {
    let site = Site::start(&Listen::on(loopback())).await;
    let got = site.send(request("GET", "/openapi.json", "")).await;
    let document: serde_json::Value = serde_json::from_str(&got.text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations += 1;
            let summary = operation["summary"].as_str().unwrap_or("");
            assert!(!summary.is_empty(), "{method} {path} has no description");
            let parameters = operation["parameters"].as_array();
            for parameter in parameters.into_iter().flatten() {
                let text = parameter["description"].as_str().unwrap_or("");
                assert!(
                    !text.is_empty(),
                    "{method} {path}: {} has no description",
                    parameter["name"]
                );
            }
            for status in ["400", "401", "403", "404", "409", "503"] {
                assert!(
                    operation["responses"][status]["description"].is_string(),
                    "{method} {path}: {status}"
                );
            }
        }
    }
    let known: std::collections::BTreeSet<_> =
        ROUTES.iter().map(|(method, path, ..)| (method, path.split('?').next())).collect();
    assert_eq!(operations, known.len(), "each described route is tested");
    references_resolve(&document, &document);
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            // An optional reference has its text with the reference.
            let described = property["description"].is_string()
                || property["oneOf"][0]["description"].is_string();
            assert!(described, "{name}.{field} has no description: {property}");
        }
    }
    site.serving.stop().await;
}

fn references_resolve(document: &serde_json::Value, part: &serde_json::Value) {
    match part {
        serde_json::Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(|r| r.as_str()) {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            fields.values().for_each(|v| references_resolve(document, v));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|v| references_resolve(document, v)),
        _ => {}
    }
}
