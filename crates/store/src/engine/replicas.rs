//! Copies of other stores' keys that disciplines want held here (docs/coherence.md, "Replicas").

use super::Engine;
use crate::net::Outbox;

impl Engine {
    /// A half wants a copy of a key of another store held. False if it cannot be.
    pub(super) fn hold_replica(
        &mut self,
        _tenant: u32,
        _key: &[u8],
        _now_ns: u64,
        _out: &mut Outbox,
    ) -> bool {
        true
    }

    /// A half wants it held no longer.
    pub(super) fn release_replica(
        &mut self,
        _tenant: u32,
        _key: &[u8],
        _now_ns: u64,
        _out: &mut Outbox,
    ) -> bool {
        true
    }

    /// A half wants switches told again which copies of a tenant are valid.
    pub(super) fn confirm_replicas(
        &mut self,
        _tenant: u32,
        _now_ns: u64,
        _out: &mut Outbox,
    ) -> bool {
        true
    }
}
