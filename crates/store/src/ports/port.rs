//! A port: sockets that are bound, and who serves the clients that they take.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use futures_util::{FutureExt, future::BoxFuture};
use tls::{Acceptor, ServerFiles};
use tokio::task::JoinSet;

use super::{ClientTaker, PortAddress, listener::Listener};

/// A port, bound and not served yet.
pub(crate) struct Port {
    tcp_addresses: Vec<SocketAddr>,
    serves: BoxFuture<'static, ()>,
}

impl Port {
    /// Listens at these addresses; by TLS as these files say. Clients are served by `taker`.
    ///
    /// # Errors
    /// What the system refused, with the address.
    pub fn bind<'a, T: ClientTaker>(
        addresses: impl Iterator<Item = &'a PortAddress>,
        tls: Option<&ServerFiles>,
        taker: T,
    ) -> anyhow::Result<Port> {
        let acceptor = tls.cloned().map(Acceptor::new).transpose()?;
        let bound = |address: &PortAddress| match address {
            PortAddress::Tcp(address) => Listener::tcp::<T>(*address),
            PortAddress::Tls(address) => {
                let by =
                    acceptor.clone().with_context(|| format!("{}: no certificate", T::NAME))?;
                Listener::tls::<T>(*address, by)
            }
            PortAddress::Unix(path) => Listener::unix::<T>(path),
        };
        Ok(Port::new(addresses.map(bound).collect::<Result<_, _>>()?, taker))
    }

    /// Whose clients come by these sockets, and are served by this one.
    fn new(listeners: Vec<Listener>, taker: impl ClientTaker) -> Port {
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
