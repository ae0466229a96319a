//! A listener for the admin API and the gRPC services, in clear text or over TLS.

use crate::{
    ControlEndpoint, proto::control_server::Control, proto::control_server::ControlServer,
};
use authority::Authority;
use axum::Router;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    service::Routes,
    transport::{Certificate, Identity, Server, ServerTlsConfig},
};

/// What a server with this authority's certificate says; with `mutual`, to those who show one too.
pub fn tls(authority: &Authority, mutual: bool) -> ServerTlsConfig {
    let own = Identity::from_pem(authority.bytes("server.pem"), authority.bytes("server.key"));
    let tls = ServerTlsConfig::new().identity(own);
    match mutual {
        true => tls.client_ca_root(Certificate::from_pem(authority.bytes("ca.pem"))),
        false => tls,
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
