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

use std::{str::FromStr, sync::Arc};

use tls::ServerFiles;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    backend::redis::Upstream,
    ports::{AddressForm, ClientTaker, Holder, Port, PortAddress},
};
use connection::Connection;
use known_commands::KnownCommands;

const FORM: AddressForm = AddressForm {
    name: "RESP port",
    secure: "rediss://",
    reached: "the Redis behind it, in the clear",
    options: "--tls-cert and --tls-key",
};

/// Where a RESP port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespAddress(pub PortAddress);

impl FromStr for RespAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<RespAddress, String> {
        PortAddress::parse(text, &FORM).map(RespAddress)
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
    let state = PortState { upstream, holder, commands: KnownCommands::default() };
    Port::bind(addresses.iter().map(|address| &address.0), tls, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_this_machine_alone() {
        let tcp = |text: &str| RespAddress(PortAddress::Tcp(text.parse().unwrap()));
        assert_eq!("127.0.0.1:6380".parse(), Ok(tcp("127.0.0.1:6380")));
        assert_eq!("[::1]:0".parse(), Ok(tcp("[::1]:0")));
        assert_eq!("unix:/run/s".parse(), Ok(RespAddress(PortAddress::Unix("/run/s".into()))));
        let beyond = "rediss://10.0.0.1:6380".parse();
        assert_eq!(beyond, Ok(RespAddress(PortAddress::Tls("10.0.0.1:6380".parse().unwrap()))));
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
