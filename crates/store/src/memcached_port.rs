//! The memcached port: memcached's own protocol for clients that know nothing of copies, and no
//! copy is old because of what they write.
//!
//! The store only reads what comes as far as it has to: where a command ends, and which keys it may
//! change. memcached carries it out, on a connection that is the client's alone, and answers as it
//! always does. `input` finds the commands that go there together, `connection` is a client's whole
//! life.

mod batch;
mod connection;
mod input;
mod output;

use std::{net::SocketAddr, path::PathBuf, str::FromStr, sync::Arc};

use anyhow::Context;
use tls::{Acceptor, ServerFiles};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    backend::memcached::Upstream,
    ports::{ClientTaker, Holder, Listener, Port},
};
use connection::Connection;

/// Where a memcached port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemcachedAddress {
    /// A TCP port of this machine's loopback; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A TCP port by TLS, of any address, to clients that show a certificate.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for MemcachedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MemcachedAddress, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(MemcachedAddress::Unix(path.into()));
        }
        let wrong = |_| {
            format!(
                "memcached port {text:?}: expected ADDR:PORT, memcacheds://ADDR:PORT or unix:PATH"
            )
        };
        if let Some(address) = text.strip_prefix("memcacheds://") {
            return Ok(MemcachedAddress::Tls(address.parse().map_err(wrong)?));
        }
        let address: SocketAddr = text.parse().map_err(wrong)?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "memcached port {text}: whoever reaches it reaches the memcached behind it, in the clear and without a \
                 password: expected an address of the loopback, unix:PATH, or memcacheds://{address} with --tls-cert, \
                 --tls-key and --tls-client-ca"
            ));
        }
        Ok(MemcachedAddress::Tcp(address))
    }
}

/// What the connections of a port share.
struct PortState {
    upstream: Upstream,
    holder: Holder,
}

impl ClientTaker for PortState {
    const NAME: &'static str = "memcached port";
    const TOO_MANY: &'static [u8] = b"ERROR Too many open connections\r\n";

    async fn serve(
        self: Arc<Self>,
        is_secure: bool,
        reads: impl AsyncRead + Unpin + Send + 'static,
        writes: impl AsyncWrite + Unpin + Send + 'static,
    ) {
        Connection::new(self, is_secure).serve(reads, writes).await;
    }
}

/// Listens at these addresses, in front of the memcached that is `upstream`.
///
/// # Errors
/// What the system refused, with the address.
pub(crate) fn bind(
    addresses: &[MemcachedAddress],
    tls: Option<&ServerFiles>,
    upstream: Upstream,
    holder: Holder,
) -> anyhow::Result<Port> {
    let acceptor = tls.cloned().map(Acceptor::new).transpose()?;
    let bound = |address: &MemcachedAddress| match address {
        MemcachedAddress::Tcp(address) => Listener::tcp::<PortState>(*address),
        MemcachedAddress::Tls(address) => {
            let by = acceptor.clone().context("memcached port: no certificate")?;
            Listener::tls::<PortState>(*address, by)
        }
        MemcachedAddress::Unix(path) => Listener::unix::<PortState>(path),
    };
    let listeners = addresses.iter().map(bound).collect::<Result<_, _>>()?;
    Ok(Port::new(listeners, PortState { upstream, holder }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_this_machine_alone() {
        let tcp = |text: &str| MemcachedAddress::Tcp(text.parse().unwrap());
        assert_eq!("127.0.0.1:11211".parse(), Ok(tcp("127.0.0.1:11211")));
        assert_eq!("[::1]:0".parse(), Ok(tcp("[::1]:0")));
        assert_eq!("unix:/run/s".parse(), Ok(MemcachedAddress::Unix("/run/s".into())));
        let by_tls = "memcacheds://10.0.0.1:11211".parse();
        assert_eq!(by_tls, Ok(MemcachedAddress::Tls("10.0.0.1:11211".parse().unwrap())));
        let beyond = "10.0.0.1:11211".parse::<MemcachedAddress>().unwrap_err();
        assert!(beyond.contains("memcacheds://10.0.0.1:11211 with --tls-cert"), "{beyond}");
        for wrong in ["0.0.0.0:11211", "memcached://127.0.0.1:11211", "11211", "unix:", ""] {
            assert!(wrong.parse::<MemcachedAddress>().is_err(), "{wrong}");
        }
    }
}
