//! How long a datagram to a store may be, on a usual path and on a short one.
//!
//! Calls cut their requests and leave room for answers by it ([`crate::call`], [`crate::fit`]), and
//! a discipline's own client does ([`crate::kit`]).

use std::net::SocketAddr;

use wire::MAX_PAYLOAD;

/// Longest UDP payload in bytes to this store that fits an Ethernet frame of 1500 bytes.
pub const fn max_payload(store: SocketAddr) -> usize {
    const IPV6_HEADER_EXCESS: usize = 20;
    if store.is_ipv6() { MAX_PAYLOAD - IPV6_HEADER_EXCESS } else { MAX_PAYLOAD }
}

/// Longest UDP payload in bytes that a path carries which is short: in an IP packet of 1280 bytes,
/// which IPv6 demands of all links, and all usual tunnels carry.
pub const fn short_payload(store: SocketAddr) -> usize {
    const LONG: usize = 1500;
    const SHORT: usize = 1280;
    max_payload(store) - (LONG - SHORT)
}
