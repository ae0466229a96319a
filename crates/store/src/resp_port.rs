//! The RESP port: Redis's own protocol, every command, for clients and gateways that write past our
//! packets, and no copy is old because of it.
//!
//! The store only reads what comes as far as it has to: which keys a command may change. Redis
//! carries it out, on a connection that is the client's alone, so that whatever state Redis keeps
//! of a connection is right; and answers as it always does. `connection` moves bytes, `session`
//! knows what they mean, `holding` is the way to the store's loop, which has the keys held.

mod answers;
mod connection;
mod detour;
mod greeting;
mod handshakes;
mod holding;
mod known_commands;
pub mod session;

use std::{io, net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use anyhow::Context;
use socket2::{SockRef, TcpKeepalive};
use tls::{Acceptor, ServerFiles};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
    task::JoinSet,
};

use crate::backend::redis::Upstream;
use connection::Connection;
use handshakes::Handshakes;
pub(crate) use holding::{Hold, HoldMessage, Holder};
use known_commands::KnownCommands;

/// Clients at the same time; more are told so and closed.
const CLIENTS: usize = 10_000;
/// What Redis says then.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// A client that says nothing for so long is asked whether it is there, as by a Redis.
const ABSENT_AFTER: Duration = Duration::from_secs(300);
/// Pause after a failure to accept: out of descriptors, most likely.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where a RESP port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespAddress {
    /// A TCP port of this machine's loopback; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A TCP port by TLS, of any address.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for RespAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<RespAddress, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(RespAddress::Unix(path.into()));
        }
        let wrong =
            |_| format!("RESP port {text:?}: expected ADDR:PORT, rediss://ADDR:PORT or unix:PATH");
        if let Some(address) = text.strip_prefix("rediss://") {
            return Ok(RespAddress::Tls(address.parse().map_err(wrong)?));
        }
        let address: SocketAddr = text.parse().map_err(wrong)?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "RESP port {text}: whoever reaches it reaches the Redis behind it, in the clear: expected an address \
                 of the loopback, unix:PATH, or rediss://{address} with --tls-cert and --tls-key"
            ));
        }
        Ok(RespAddress::Tcp(address))
    }
}

/// What the connections of a port share.
struct PortState {
    upstream: Upstream,
    holder: Holder,
    commands: KnownCommands,
}

/// A socket that takes clients.
enum Listener {
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

/// The port, bound and not served yet.
pub(crate) struct RespPort {
    listeners: Vec<Listener>,
    state: Arc<PortState>,
}

impl RespPort {
    /// Listens at these addresses, in front of the Redis that is `upstream`.
    ///
    /// # Errors
    /// What the system refused, with the address.
    pub fn bind(
        addresses: &[RespAddress],
        tls: Option<&ServerFiles>,
        upstream: Upstream,
        holder: Holder,
    ) -> anyhow::Result<RespPort> {
        let acceptor = tls.cloned().map(Acceptor::new).transpose()?;
        let bind = |address| Listener::bind(address, acceptor.as_ref());
        let listeners = addresses.iter().map(bind).collect::<Result<_, _>>()?;
        let state = PortState { upstream, holder, commands: KnownCommands::default() };
        Ok(RespPort { listeners, state: Arc::new(state) })
    }

    /// The TCP addresses that it listens on.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        let address = |listener: &Listener| match listener {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        };
        self.listeners.iter().filter_map(address).collect()
    }

    /// Serves clients until it is dropped.
    pub async fn serve(self) {
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            accepting.spawn(listener.serve(self.state.clone()));
        }
        while accepting.join_next().await.is_some() {}
    }
}

/// Has a client's connection end, too, if its host has vanished: it may wait for what is others',
/// as a blocking command does.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let asks = TcpKeepalive::new().with_time(ABSENT_AFTER).with_interval(ABSENT_AFTER / 3);
    SockRef::from(stream).set_tcp_keepalive(&asks)
}

impl Listener {
    fn bind(address: &RespAddress, acceptor: Option<&Acceptor>) -> anyhow::Result<Listener> {
        let tcp = |address: &SocketAddr| {
            let bound = std::net::TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)
            });
            bound.with_context(|| format!("RESP port {address}"))
        };
        match address {
            RespAddress::Tcp(address) => Ok(Listener::Tcp(tcp(address)?)),
            RespAddress::Tls(address) => {
                let acceptor = acceptor.context("RESP port: no certificate")?;
                Ok(Listener::Tls(tcp(address)?, acceptor.clone()))
            }
            RespAddress::Unix(path) => {
                let bound = crate::unix_socket::bind(path, "RESP port")?;
                Ok(Listener::Unix(bound, path.clone()))
            }
        }
    }

    async fn serve(self, state: Arc<PortState>) {
        let mut clients = JoinSet::new();
        let mut handshakes = Handshakes::default();
        loop {
            while clients.try_join_next().is_some() {}
            let is_full = clients.len() >= CLIENTS;
            let accepted: io::Result<()> = async {
                match &self {
                    Listener::Tcp(listener) => {
                        let (stream, _) = listener.accept().await?;
                        prepare(&stream)?;
                        if is_full {
                            let _ = stream.try_write(TOO_MANY);
                            return Ok(());
                        }
                        let (reads, writes) = stream.into_split();
                        clients.spawn(Connection::new(state.clone(), false).serve(reads, writes));
                    }
                    Listener::Tls(listener, acceptor) => {
                        let (stream, peer) = listener.accept().await?;
                        prepare(&stream)?;
                        if is_full {
                            return Ok(());
                        }
                        let believed = handshakes.accept(acceptor, stream, peer);
                        let state = state.clone();
                        clients.spawn(async move {
                            let Some(stream) = believed.await else { return };
                            let (reads, writes) = tokio::io::split(stream);
                            Connection::new(state, true).serve(reads, writes).await;
                        });
                    }
                    Listener::Unix(listener, _) => {
                        let (stream, _) = listener.accept().await?;
                        if is_full {
                            let _ = stream.try_write(TOO_MANY);
                            return Ok(());
                        }
                        let (reads, writes) = stream.into_split();
                        clients.spawn(Connection::new(state.clone(), false).serve(reads, writes));
                    }
                }
                Ok(())
            }
            .await;
            if let Err(error) = accepted {
                tracing::debug!("RESP port: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_this_machine_alone() {
        let tcp = |text: &str| RespAddress::Tcp(text.parse().unwrap());
        assert_eq!("127.0.0.1:6380".parse(), Ok(tcp("127.0.0.1:6380")));
        assert_eq!("[::1]:0".parse(), Ok(tcp("[::1]:0")));
        assert_eq!("unix:/run/s".parse(), Ok(RespAddress::Unix("/run/s".into())));
        let beyond = "rediss://10.0.0.1:6380".parse();
        assert_eq!(beyond, Ok(RespAddress::Tls("10.0.0.1:6380".parse().unwrap())));
        for wrong in [
            "rediss://",
            "rediss://host:6380",
            "0.0.0.0:6380",
            "10.0.0.1:6380",
            "6380",
            "unix:",
            "",
        ] {
            assert!(wrong.parse::<RespAddress>().is_err(), "{wrong}");
        }
    }
}
