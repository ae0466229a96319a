//! The RESP port: Redis's own protocol, every command, for clients and gateways that write past our
//! packets, and no copy is old because of it.
//!
//! The store only reads what comes as far as it has to: which keys a command may change. Redis
//! carries it out, on a connection that is the client's alone, so that whatever state Redis keeps
//! of a connection is right; and answers as it always does. `connection` moves bytes, `session`
//! knows what they mean; `ports` has the way to the store's loop, which has the keys held.

mod answers;
mod connection;
mod detour;
mod greeting;
mod known_commands;
pub mod session;

use std::{net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc};

use anyhow::Context;
use tls::{Acceptor, ServerFiles};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    backend::redis::Upstream,
    ports::{ClientTaker, Holder, Listener, Port},
};
use connection::Connection;
use known_commands::KnownCommands;

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

impl ClientTaker for PortState {
    const NAME: &'static str = "RESP port";
    const TOO_MANY: &'static [u8] = b"-ERR max number of clients reached\r\n";

    async fn serve(
        self: Arc<Self>,
        is_secure: bool,
        reads: impl AsyncRead + Unpin + Send + 'static,
        writes: impl AsyncWrite + Unpin + Send + 'static,
    ) {
        Connection::new(self, is_secure).serve(reads, writes).await;
    }
}

/// Listens at these addresses, in front of the Redis that is `upstream`.
///
/// # Errors
/// What the system refused, with the address.
pub(crate) fn bind(
    addresses: &[RespAddress],
    tls: Option<&ServerFiles>,
    upstream: Upstream,
    holder: Holder,
) -> anyhow::Result<Port> {
    let acceptor = tls.cloned().map(Acceptor::new).transpose()?;
    let bound = |address: &RespAddress| match address {
        RespAddress::Tcp(address) => Listener::tcp::<PortState>(*address),
        RespAddress::Tls(address) => {
            let by = acceptor.clone().context("RESP port: no certificate")?;
            Listener::tls::<PortState>(*address, by)
        }
        RespAddress::Unix(path) => Listener::unix::<PortState>(path),
    };
    let listeners = addresses.iter().map(bound).collect::<Result<_, _>>()?;
    Ok(Port::new(listeners, PortState { upstream, holder, commands: KnownCommands::default() }))
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
