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

use std::{str::FromStr, sync::Arc};

use tls::ServerFiles;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    backend::memcached::Upstream,
    ports::{AddressForm, ClientTaker, Holder, Port, PortAddress},
};
use connection::Connection;

const FORM: AddressForm = AddressForm {
    name: "memcached port",
    secure: "memcacheds://",
    reached: "the memcached behind it, in the clear and without a password",
    options: "--tls-cert, --tls-key and --tls-client-ca",
};

/// Where a memcached port is, for clients that show a certificate where it is by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedAddress(pub PortAddress);

impl FromStr for MemcachedAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MemcachedAddress, String> {
        PortAddress::parse(text, &FORM).map(MemcachedAddress)
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
    let state = PortState { upstream, holder };
    Port::bind(addresses.iter().map(|address| &address.0), tls, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_this_machine_alone() {
        let tcp = |text: &str| MemcachedAddress(PortAddress::Tcp(text.parse().unwrap()));
        assert_eq!("127.0.0.1:11211".parse(), Ok(tcp("127.0.0.1:11211")));
        assert_eq!("[::1]:0".parse(), Ok(tcp("[::1]:0")));
        assert_eq!("unix:/run/s".parse(), Ok(MemcachedAddress(PortAddress::Unix("/run/s".into()))));
        let by_tls = "memcacheds://10.0.0.1:11211".parse();
        assert_eq!(
            by_tls,
            Ok(MemcachedAddress(PortAddress::Tls("10.0.0.1:11211".parse().unwrap())))
        );
        let beyond = "10.0.0.1:11211".parse::<MemcachedAddress>().unwrap_err();
        assert!(beyond.contains("memcacheds://10.0.0.1:11211 with --tls-cert"), "{beyond}");
        for wrong in ["0.0.0.0:11211", "memcached://127.0.0.1:11211", "11211", "unix:", ""] {
            assert!(wrong.parse::<MemcachedAddress>().is_err(), "{wrong}");
        }
    }
}
