//! Which switches lie behind a path that carries less than an Ethernet frame of 1500 bytes, as far
//! as it shows: long datagrams are not answered while short ones are.

use std::{collections::BTreeMap, net::SocketAddr};

/// When a switch was heard of last, in nanoseconds; 0: never.
#[derive(Default)]
struct Path {
    /// After a short datagram.
    short_ns: u64,
    /// After a long one, or by one.
    long_ns: u64,
}

/// What is known of the paths to switches.
#[derive(Default)]
pub(super) struct Paths(BTreeMap<SocketAddr, Path>);

impl Paths {
    /// A datagram was answered; `long`: it or its answer is longer than
    /// [`short_payload`](client::kit::short_payload).
    pub fn heard(&mut self, from: SocketAddr, long: bool, now_ns: u64) {
        let path = self.0.entry(from).or_default();
        match long {
            true => path.long_ns = now_ns,
            false => path.short_ns = now_ns,
        }
    }

    /// Whether, of what was sent there since then, short datagrams were answered and no long
    /// one was.
    pub fn loses_long(&self, to: SocketAddr, since_ns: u64) -> bool {
        let path = self.0.get(&to);
        path.is_some_and(|path| path.short_ns > since_ns && path.long_ns <= since_ns)
    }
}
