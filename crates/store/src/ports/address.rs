//! Where a port is.

use std::{net::SocketAddr, path::PathBuf};

/// Where a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortAddress {
    /// A TCP port of this machine's loopback; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// A TCP port by TLS, of any address.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How the address of a kind of ports is written, and what is said of one that cannot be.
pub(crate) struct AddressForm {
    /// What the port is called.
    pub name: &'static str,
    /// What stands before an address by TLS.
    pub secure: &'static str,
    /// What whoever reaches it reaches, where it is in the clear.
    pub reached: &'static str,
    /// The options that a port by TLS needs.
    pub options: &'static str,
}

impl PortAddress {
    /// Reads an address of this form.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub(crate) fn parse(text: &str, form: &AddressForm) -> Result<PortAddress, String> {
        let AddressForm { name, secure, reached, options } = form;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(PortAddress::Unix(path.into()));
        }
        let wrong =
            |_| format!("{name} {text:?}: expected ADDR:PORT, {secure}ADDR:PORT or unix:PATH");
        if let Some(address) = text.strip_prefix(secure) {
            return Ok(PortAddress::Tls(address.parse().map_err(wrong)?));
        }
        let address: SocketAddr = text.parse().map_err(wrong)?;
        if !address.ip().is_loopback() {
            return Err(format!(
                "{name} {text}: whoever reaches it reaches {reached}: expected an address of the loopback, unix:PATH, or \
                 {secure}{address} with {options}"
            ));
        }
        Ok(PortAddress::Tcp(address))
    }

    /// The address, if it is by TLS.
    pub(crate) fn secure(&self) -> Option<SocketAddr> {
        match self {
            PortAddress::Tls(at) => Some(*at),
            _ => None,
        }
    }
}
