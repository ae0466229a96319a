use std::{net::SocketAddr, sync::Arc};
use crate::api::Broker;
#[derive(Clone, Debug, Default)]
pub struct Security { pub insecure: bool }
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
}
pub struct Listener { inner: tokio::net::TcpListener, address: SocketAddr }
impl Listener {
    pub async fn bind(address: SocketAddr, s: &Security) -> Result<Listener, ServeError> {
        if !s.insecure && !address.ip().is_loopback() { return Err(ServeError::NotLoopback(address)); }
        let inner = tokio::net::TcpListener::bind(address).await.map_err(|e| ServeError::Listen(address, e))?;
        let address = inner.local_addr().map_err(|e| ServeError::Listen(address, e))?;
        Ok(Listener { inner, address })
    }
    pub fn address(&self) -> SocketAddr { self.address }
    pub fn url(&self) -> String { format!("http://{}", self.address) }
    pub fn serve<S>(self, _broker: Arc<dyn Broker>, service: S, stop: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = Result<(), ServeError>>
    where S: tonic::codegen::Service<tonic::codegen::http::Request<tonic::body::Body>, Error = std::convert::Infallible> + tonic::server::NamedService + Clone + Send + Sync + 'static,
          S::Response: axum::response::IntoResponse, S::Future: Send + 'static {
        let router = tonic::service::Routes::new(service).into_axum_router();
        async move { let _ = axum::serve(self.inner, router).with_graceful_shutdown(stop).await; Ok(()) }
    }
}
