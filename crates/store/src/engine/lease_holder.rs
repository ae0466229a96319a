//! Where whoever has a lease of this store is.

use crate::net::Peer;

/// Where a switch is, and under which number it knows its lease of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseHolder {
    pub peer: Peer,
    pub slot: u64,
}
