//! What is to be sent, and where to: [`crate::Sender`] takes it, from any socket.

use std::net::{IpAddr, SocketAddr};

/// A datagram to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its bytes: those of the first part, then those of the second, which may be empty.
    pub parts: [&'a [u8]; 2],
    /// Where it goes.
    pub to: Destination,
    /// The source address that it bears, one of this machine's; `None`: the one that the
    /// system chooses.
    pub source: Option<IpAddr>,
}

impl Datagram<'_> {
    /// Its bytes, of both parts.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.parts[0].len() + self.parts[1].len()
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Where the socket is connected to.
    Peer,
    /// An address and port of the socket's family.
    Address(SocketAddr),
    /// Out by the interface with this index, as a frame of a packet socket.
    Interface(u32),
}
