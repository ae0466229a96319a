//! TLS and mutual TLS, for HTTP and gRPC.

use api::{
    ControlEndpoint,
    proto::{StatusRequest, control_client::ControlClient},
};
use authority::Authority;
use control::serve::{Listen, RunningServer, ServerFiles};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use super::harness::{Site, TestRequest, TokenFile, agent, loopback, request};

/// What a server with this authority's certificate reads.
fn files(authority: &Authority, mutual: bool) -> ServerFiles {
    ServerFiles {
        cert: authority.path("server.pem"),
        key: authority.path("server.key"),
        client_ca: mutual.then(|| authority.path("ca.pem")),
    }
}

/// How a client that trusts the authority asks.
fn client(authority: &Authority, with_certificate: bool) -> TlsConfig {
    let ca = Certificate::from_pem(&authority.bytes("ca.pem")).unwrap();
    let own = with_certificate.then(|| {
        let certificate = Certificate::from_pem(&authority.bytes("client.pem")).unwrap();
        let key = PrivateKey::from_pem(&authority.bytes("client.key")).unwrap();
        ClientCert::new_with_certs(&[certificate], key)
    });
    TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[ca])).client_cert(own).build()
}

#[tokio::test(flavor = "multi_thread")]
async fn http_and_grpc_share_a_port_over_tls() {
    let (authority, file) = (Authority::generate(), TokenFile::new());
    for mutual in [false, true] {
        let listen = Listen {
            tls: Some(files(&authority, mutual)),
            tokens: Some(file.path()),
            ..Listen::on(loopback())
        };
        let site = Site::start(&listen).await;
        let url = format!("https://{}", site.serving.address());
        for certificate in [false, true] {
            let welcome = certificate || !mutual;
            let asked =
                TestRequest { token: Some(file.of("viewer")), ..request("GET", "/v1/cluster", "") };
            let got = asked.try_to(agent(Some(client(&authority, certificate))), url.clone()).await;
            assert_eq!(
                got.is_ok_and(|g| g.status == 200),
                welcome,
                "HTTP, mutual {mutual}, certificate {certificate}"
            );

            let own = |name: &str| certificate.then(|| authority.path(name));
            let endpoint = ControlEndpoint {
                ca: Some(authority.path("ca.pem")),
                cert: own("client.pem"),
                key: own("client.key"),
                token: Some(file.of("switch")),
                ..ControlEndpoint::new(&url).unwrap()
            };
            // With TLS 1.3 a client learns only with its first answer that its certificate was
            // not taken.
            let answered = match endpoint.connect(0).await {
                Ok((link, _)) => ControlClient::new(link).status(StatusRequest {}).await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(answered, welcome, "gRPC, mutual {mutual}, certificate {certificate}");
        }
        let stranger = ControlEndpoint {
            ca: Some(Authority::generate().path("ca.pem")),
            ..ControlEndpoint::new(&url).unwrap()
        };
        let Err(error) = stranger.connect(0).await else {
            panic!("another authority is trusted");
        };
        assert!(!error.contains('\n'), "{error}");
        site.serving.stop().await;
    }
}

#[tokio::test]
async fn files_that_are_no_certificates_are_named() {
    let authority = Authority::generate();
    let other = Authority::generate();
    let start = |tls| Listen { tls: Some(tls), ..Listen::on(loopback()) };
    let good = files(&authority, true);
    // (files, what the error says)
    let rows = [
        (
            ServerFiles { cert: "/nonexistent.pem".into(), ..good.clone() },
            "/nonexistent.pem: expected certificates in PEM form",
        ),
        (
            ServerFiles { cert: authority.path("server.key"), ..good.clone() },
            "server.key: no certificate in it",
        ),
        (
            ServerFiles { key: authority.path("server.pem"), ..good.clone() },
            "server.pem: expected a private key in PEM form",
        ),
        (
            ServerFiles { key: other.path("server.key"), ..good.clone() },
            "server.pem: does not go with its key",
        ),
        (
            ServerFiles { client_ca: Some(authority.path("client.key")), ..good },
            "client.key: no certificate in it",
        ),
    ];
    for (files, says) in rows {
        let error = RunningServer::start(&start(files), |_| axum::Router::new())
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(says), "{error:?} should say {says:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}
