//! Which stores lie behind a path that carries less than an Ethernet frame of 1500 bytes, as far as
//! it shows.
//!
//! Tunnels (VXLAN, WireGuard) take bytes from each packet. Ours are never fragmented, so a datagram
//! that is too long for the path vanishes, and so does such an answer. Nobody tells in a way that
//! can be believed: what counts is that long datagrams are not answered while short ones are. A
//! path that is found short is taken for one for a minute; then long ones are tried again, for a
//! loss may have been taken for a short path, and paths change.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Losses of long datagrams in a row after which a path is short: a single one happens on any path.
const LOST: u8 = 2;
/// How long what was found out counts.
const MEMORY_NS: u64 = 60_000_000_000;

/// What is known of the paths to all stores. Times are in nanoseconds, 0: never.
pub(crate) struct Paths(Box<[Path]>);

#[derive(Default)]
struct Path {
    /// Long datagrams lost since one was answered.
    lost: AtomicU8,
    /// When the last of these was noticed.
    lost_ns: AtomicU64,
    short_until_ns: AtomicU64,
    /// When a short datagram was answered last, and when a long one was, or with one.
    heard_short_ns: AtomicU64,
    heard_long_ns: AtomicU64,
}

impl Paths {
    /// To so many stores, of which nothing is known. They go by their windows, here and below.
    pub fn new(stores: usize) -> Paths {
        Paths((0..stores).map(|_| Path::default()).collect())
    }

    /// Whether nothing longer than [`short_payload`](crate::payload::short_payload) is to be
    /// sent there.
    pub fn is_short(&self, window: usize, now_ns: u64) -> bool {
        now_ns < self.0[window].short_until_ns.load(Relaxed)
    }

    /// Whether it was found short and nothing long was answered since. Writes go by this: one that
    /// is lost has no known outcome, so it is reads that try again what the path carries.
    pub fn was_short(&self, window: usize) -> bool {
        self.0[window].lost.load(Relaxed) == LOST
    }

    /// Whether the path has carried a long datagram not long ago: then a silence has another cause.
    pub fn is_long(&self, window: usize, now_ns: u64) -> bool {
        let heard_ns = self.0[window].heard_long_ns.load(Relaxed);
        heard_ns > 0 && now_ns < heard_ns + MEMORY_NS
    }

    /// A datagram was answered; `long`: it or its answer is longer than
    /// [`short_payload`](crate::payload::short_payload).
    pub fn heard(&self, window: usize, long: bool, now_ns: u64) {
        let path = &self.0[window];
        if !long {
            path.heard_short_ns.store(now_ns, Relaxed);
            return;
        }
        path.heard_long_ns.store(now_ns, Relaxed);
        if path.lost.load(Relaxed) > 0 {
            path.lost.store(0, Relaxed);
            path.short_until_ns.store(0, Relaxed);
        }
    }

    /// A long datagram that was sent then had no answer, and a short one in its place had. What was
    /// sent before the last such loss was noticed is no further one: the store may have been away,
    /// and answers now.
    pub fn lost(&self, window: usize, sent_ns: u64, now_ns: u64) {
        let path = &self.0[window];
        if sent_ns < path.lost_ns.load(Relaxed) {
            return;
        }
        path.lost_ns.store(now_ns, Relaxed);
        let lost = path.lost.load(Relaxed).saturating_add(1).min(LOST);
        path.lost.store(lost, Relaxed);
        if lost == LOST {
            path.short_until_ns.store(now_ns + MEMORY_NS, Relaxed);
        }
    }

    /// The system did not send a long datagram because it is too long for the interface, which
    /// leaves no doubt.
    pub fn refused(&self, window: usize, now_ns: u64) {
        let path = &self.0[window];
        path.lost.store(LOST, Relaxed);
        path.short_until_ns.store(now_ns + MEMORY_NS, Relaxed);
    }

    /// Whether, of what was sent since then, short datagrams were answered and no long one was.
    pub fn loses_long(&self, window: usize, since_ns: u64) -> bool {
        let path = &self.0[window];
        path.heard_short_ns.load(Relaxed) > since_ns && path.heard_long_ns.load(Relaxed) <= since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_short_for_a_while_after_losses_in_a_row() {
        let paths = Paths::new(2);
        paths.lost(1, 4, 5);
        assert!(!paths.is_short(1, 6), "one loss happens");
        paths.heard(1, true, 7);
        paths.lost(1, 7, 8);
        assert!(!paths.is_short(1, 9), "not in a row");
        paths.lost(1, 7, 9);
        assert!(!paths.is_short(1, 10), "sent while the store was away");
        paths.lost(1, 9, 10);
        assert!(paths.is_short(1, 11) && !paths.is_short(0, 11));
        assert!(!paths.is_short(1, 10 + MEMORY_NS), "it is tried again");
        assert!(paths.was_short(1), "but not by writes");
        paths.lost(1, 19 + MEMORY_NS, 20 + MEMORY_NS);
        assert!(paths.is_short(1, 21 + MEMORY_NS), "once is enough then");
        paths.heard(1, true, 22 + MEMORY_NS);
        assert!(!paths.is_short(1, 23 + MEMORY_NS) && !paths.was_short(1));
    }

    #[test]
    fn long_ones_are_lost_if_only_short_ones_are_answered() {
        let paths = Paths::new(1);
        assert!(!paths.loses_long(0, 3), "nothing is answered");
        paths.heard(0, false, 5);
        assert!(paths.loses_long(0, 3));
        assert!(!paths.loses_long(0, 6), "that was before");
        paths.heard(0, true, 7);
        assert!(!paths.loses_long(0, 3));
        assert!(paths.is_long(0, 8) && !paths.is_long(0, 7 + MEMORY_NS));
    }
}
