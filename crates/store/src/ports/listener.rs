//! Sockets that take clients.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tls::Acceptor;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    task::JoinSet,
};

use super::handshakes::Handshakes;
use crate::tcp;

/// Clients of a socket at the same time; more are told so and closed.
const CLIENTS: usize = 10_000;
/// Pause after a failure to accept: out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Who serves the clients of a port.
pub(crate) trait ClientTaker: Send + Sync + 'static {
    /// What the port is called in errors and in the log.
    const NAME: &'static str;
    /// What clients are told when there are as many as there may be.
    const TOO_MANY: &'static [u8];

    /// Serves a client, who comes by TLS or not, until it has gone.
    fn serve(
        self: Arc<Self>,
        is_secure: bool,
        reads: impl AsyncRead + Unpin + Send + 'static,
        writes: impl AsyncWrite + Unpin + Send + 'static,
    ) -> impl Future<Output = ()> + Send;
}

/// A socket that takes clients.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Acceptor),
    Unix(UnixListener, PathBuf),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bound<T: ClientTaker>(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    bound.with_context(|| format!("{} {address}", T::NAME))
}

impl Listener {
    /// A TCP port, in the clear.
    ///
    /// # Errors
    /// What the system refused, with the address.
    pub fn tcp<T: ClientTaker>(address: SocketAddr) -> anyhow::Result<Listener> {
        Ok(Listener::Tcp(bound::<T>(address)?))
    }

    /// A TCP port by TLS.
    ///
    /// # Errors
    /// As [`Listener::tcp`].
    pub fn tls<T: ClientTaker>(address: SocketAddr, by: Acceptor) -> anyhow::Result<Listener> {
        Ok(Listener::Tls(bound::<T>(address)?, by))
    }

    /// A Unix socket.
    ///
    /// # Errors
    /// What the system refused, or what is there, with the path.
    pub fn unix<T: ClientTaker>(path: &Path) -> anyhow::Result<Listener> {
        Ok(Listener::Unix(crate::unix_socket::bind(path, T::NAME)?, path.into()))
    }

    /// The TCP address that it listens on.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }

    /// Takes clients until it is dropped.
    pub async fn serve<T: ClientTaker>(self, taker: Arc<T>) {
        let mut clients = JoinSet::new();
        let mut handshakes = Handshakes::new(T::NAME);
        loop {
            while clients.try_join_next().is_some() {}
            let is_full = clients.len() >= CLIENTS;
            let taker = taker.clone();
            let accepted: io::Result<()> = async {
                match &self {
                    Listener::Tcp(listener) => {
                        let (stream, _) = listener.accept().await?;
                        tcp::from_client(&stream)?;
                        if is_full {
                            let _ = stream.try_write(T::TOO_MANY);
                            return Ok(());
                        }
                        let (reads, writes) = stream.into_split();
                        clients.spawn(taker.serve(false, reads, writes));
                    }
                    Listener::Tls(listener, acceptor) => {
                        let (stream, peer) = listener.accept().await?;
                        tcp::from_client(&stream)?;
                        if is_full {
                            return Ok(());
                        }
                        let believed = handshakes.accept(acceptor, stream, peer);
                        clients.spawn(async move {
                            let Some(stream) = believed.await else { return };
                            let (reads, writes) = tokio::io::split(stream);
                            taker.serve(true, reads, writes).await;
                        });
                    }
                    Listener::Unix(listener, _) => {
                        let (stream, _) = listener.accept().await?;
                        if is_full {
                            let _ = stream.try_write(T::TOO_MANY);
                            return Ok(());
                        }
                        let (reads, writes) = stream.into_split();
                        clients.spawn(taker.serve(false, reads, writes));
                    }
                }
                Ok(())
            }
            .await;
            if let Err(error) = accepted {
                tracing::debug!("{}: {error}", T::NAME);
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}
