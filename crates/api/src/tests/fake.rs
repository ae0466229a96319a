//! A listener for the admin API and the gRPC services, in clear text or over TLS.

use std::path::PathBuf;

use crate::{
    ControlEndpoint, proto::control_server::Control, proto::control_server::ControlServer,
};
use axum::Router;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    service::Routes,
    transport::{Certificate, Identity, Server, ServerTlsConfig},
};

/// An authority with a server's and a client's certificate, as files.
pub struct Authority(tempfile::TempDir);

impl Authority {
    pub fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write =
            |name: &str, text: String| std::fs::write(directory.path().join(name), text).unwrap();
        write("ca.pem", issuer.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
            write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Authority(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn tls(&self, mutual: bool) -> ServerTlsConfig {
        let read = |name: &str| std::fs::read(self.path(name)).unwrap();
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.pem"), read("server.key")));
        match mutual {
            true => tls.client_ca_root(Certificate::from_pem(read("ca.pem"))),
            false => tls,
        }
    }
}

/// Serves for as long as the test runs; its URL.
pub async fn serve(routes: Routes, tls: Option<ServerTlsConfig>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server, scheme) = match tls {
        Some(tls) => (Server::builder().tls_config(tls).unwrap(), "https"),
        None => (Server::builder(), "http"),
    };
    let mut server = server;
    let serving = server.add_routes(routes).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(serving);
    format!("{scheme}://{address}")
}

pub async fn serve_json(routes: Router, tls: Option<ServerTlsConfig>) -> String {
    serve(Routes::from(routes), tls).await
}

pub async fn serve_grpc(service: impl Control) -> String {
    serve(Routes::new(ControlServer::new(service)), None).await
}

pub fn endpoint(urls: &[&str]) -> ControlEndpoint {
    ControlEndpoint::new(&urls.join(",")).unwrap()
}
