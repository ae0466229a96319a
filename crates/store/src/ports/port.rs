//! A port: sockets that are bound, and who serves the clients that they take.

use std::{net::SocketAddr, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::task::JoinSet;

use super::{ClientTaker, Listener};

/// A port, bound and not served yet.
pub(crate) struct Port {
    tcp_addresses: Vec<SocketAddr>,
    serves: BoxFuture<'static, ()>,
}

impl Port {
    /// Whose clients come by these sockets, and are served by this one.
    pub fn new(listeners: Vec<Listener>, taker: impl ClientTaker) -> Port {
        let tcp_addresses = listeners.iter().filter_map(Listener::tcp_address).collect();
        let taker = Arc::new(taker);
        let serves = async move {
            let mut accepting = JoinSet::new();
            for listener in listeners {
                accepting.spawn(listener.serve(taker.clone()));
            }
            while accepting.join_next().await.is_some() {}
        };
        Port { tcp_addresses, serves: serves.boxed() }
    }

    /// The TCP addresses that it listens on.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.tcp_addresses
    }

    /// Serves clients until it is dropped.
    pub async fn serve(self) {
        self.serves.await;
    }
}
