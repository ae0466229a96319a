//! An address as the system has it.

use std::{
    mem::offset_of,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use crate::datagram::Destination;

/// Bytes of the longest of them.
const ROOM: usize = 28;
const V4: usize = size_of::<libc::sockaddr_in>();
const V6: usize = size_of::<libc::sockaddr_in6>();
const LINK: usize = size_of::<libc::sockaddr_ll>();

/// Room for a `sockaddr_in`, a `sockaddr_in6` or a `sockaddr_ll`. Each begins with its family, in
/// the machine's byte order.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub struct Name(pub(crate) [u8; ROOM]);

// Where this file writes and reads what.
const _: () = {
    assert!(V4 <= ROOM && V6 <= ROOM && LINK <= ROOM);
    assert!(offset_of!(libc::sockaddr_in, sin_port) == 2);
    assert!(offset_of!(libc::sockaddr_in, sin_addr) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_port) == 2);
    assert!(offset_of!(libc::sockaddr_in6, sin6_flowinfo) == 4);
    assert!(offset_of!(libc::sockaddr_in6, sin6_addr) == 8);
    assert!(offset_of!(libc::sockaddr_in6, sin6_scope_id) == 24);
    assert!(offset_of!(libc::sockaddr_ll, sll_protocol) == 2);
    assert!(offset_of!(libc::sockaddr_ll, sll_ifindex) == 4);
};

impl Name {
    /// Bytes that the system may write.
    pub const ROOM: libc::socklen_t = ROOM as libc::socklen_t;
    /// Nobody's address.
    pub const EMPTY: Name = Name([0; ROOM]);

    /// Writes where a datagram goes; returns how many bytes that takes, none for where the socket
    /// is connected to.
    #[inline]
    pub fn set(&mut self, to: Destination) -> libc::socklen_t {
        let len = match to {
            Destination::Peer => 0,
            Destination::Address(SocketAddr::V4(to)) => {
                self.begin(libc::AF_INET, to.port());
                self.0[4..8].copy_from_slice(&to.ip().octets());
                self.0[8..V4].fill(0);
                V4
            }
            Destination::Address(SocketAddr::V6(to)) => {
                self.begin(libc::AF_INET6, to.port());
                self.0[4..8].copy_from_slice(&to.flowinfo().to_ne_bytes());
                self.0[8..24].copy_from_slice(&to.ip().octets());
                self.0[24..V6].copy_from_slice(&to.scope_id().to_ne_bytes());
                V6
            }
            Destination::Interface(index) => {
                // No protocol: that is for what is received.
                self.begin(libc::AF_PACKET, 0);
                self.0[4..8].copy_from_slice(&index.to_ne_bytes());
                self.0[8..LINK].fill(0);
                LINK
            }
        };
        len as libc::socklen_t
    }

    fn begin(&mut self, family: libc::c_int, port: u16) {
        self.0[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        self.0[2..4].copy_from_slice(&port.to_be_bytes());
    }

    /// The address of IP that the first `len` bytes are, if they are one.
    #[inline]
    pub fn address(&self, len: libc::socklen_t) -> Option<SocketAddr> {
        let bytes = &self.0;
        let family = libc::sa_family_t::from_ne_bytes([bytes[0], bytes[1]]);
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match (libc::c_int::from(family), len as usize) {
            (libc::AF_INET, V4..) => {
                let ip = Ipv4Addr::from(part(bytes, 4));
                Some(SocketAddrV4::new(ip, port).into())
            }
            (libc::AF_INET6, V6..) => {
                let flow = u32::from_ne_bytes(part(bytes, 4));
                let ip = Ipv6Addr::from(part(bytes, 8));
                let scope = u32::from_ne_bytes(part(bytes, 24));
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

/// The `N` bytes from `at` on.
#[inline]
fn part<const N: usize>(bytes: &[u8; ROOM], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
