//! What disciplines want held here, and what they want no longer.

use std::net::SocketAddr;

use wire::{Epoch, NodeId, Op, TENANT_SYSTEM};

use super::{super::Engine, CONFIRM_FIRST_NS, SPREAD_NS};
use crate::{directory::KeyId, net::Outbox};

impl Engine {
    /// A half wants a copy of a key of another store held. False if it cannot be.
    pub(in crate::engine) fn hold_replica(
        &mut self,
        tenant: u32,
        key: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some((id, home)) = self.abroad(tenant, key) else {
            return false;
        };
        // The home refuses it, too; a controller that knows other stores would have us ask for ever.
        if !self.replicas.me.is_some_and(|me| self.may_hold(me, tenant)) {
            return false;
        }
        let replicas = &mut self.replicas;
        let is_held = replicas.held.get(&id).is_some_and(|held| held.wanted);
        if !is_held {
            if !replicas.places.has_room(tenant) {
                return false;
            }
            replicas.enter(id, key, home, now_ns);
            replicas.places.take(tenant, 1);
            let first_ns = replicas.first_ask_ns(now_ns);
            if let Some(held) = replicas
                .held
                .get_mut(&id)
                .filter(|held| held.reads.is_empty())
            {
                held.next_ask_ns = first_ns;
            }
            if let Some(lender) = replicas.lenders.get_mut(&home.0) {
                lender.keys += 1;
                replicas.lease_due_ns = replicas.lease_due_ns.min(lender.next_ask_ns);
            }
        }
        if let Some(held) = replicas.held.get_mut(&id) {
            held.wanted = true;
            // Whoever wants it again may ask for a switch that has forgotten it.
            held.confirm_ns = now_ns;
        }
        self.borrow_leases(now_ns, out);
        self.drive_replica(id, now_ns, out);
        true
    }

    /// A half wants it held no longer. False if it is no key that could be.
    pub(in crate::engine) fn release_replica(
        &mut self,
        tenant: u32,
        key: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some((id, _)) = self.abroad(tenant, key) else {
            return false;
        };
        let Some(me) = self.replicas.me else {
            return false;
        };
        // It may have gone with the tenant's room.
        if !self.replicas.held.get(&id).is_some_and(|held| held.wanted) {
            return true;
        }
        self.say_of(id, Op::ReplicaDrop, Epoch::new(me, 0), 0, out);
        self.drop_copy(id, now_ns, out);
        true
    }

    /// A key is held no longer: reads of it that wait are answered by its home.
    pub(super) fn drop_copy(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let replicas = &mut self.replicas;
        let Some(held) = replicas.held.get_mut(&id) else {
            return;
        };
        let reads = std::mem::take(&mut held.reads);
        let key = held.key.clone();
        replicas.reads.give_back(id.0, reads.len());
        replicas.forget(&id);
        for read in reads.into_values() {
            self.pass_on(read.origin, &key, now_ns, out);
        }
    }

    /// A half wants switches told again which copies of a tenant are valid.
    pub(in crate::engine) fn confirm_replicas(&mut self, tenant: u32, now_ns: u64) -> bool {
        let mut all = vec![];
        for (id, held) in &mut self.replicas.held {
            if id.0 == tenant && held.wanted && held.replica.is_valid() {
                held.confirm_ns = now_ns;
                held.confirm_backoff_ns = CONFIRM_FIRST_NS;
                all.push(*id);
            }
        }
        self.replicas.set_timers(all, SPREAD_NS, now_ns);
        true
    }

    /// A tenant's key by its hash, with its home, if that is another store.
    pub(super) fn abroad(&self, tenant: u32, key: &[u8]) -> Option<(KeyId, (NodeId, SocketAddr))> {
        let me = self.replicas.me?;
        let known = self.tenants.get(tenant);
        let known = known.filter(|_| tenant != TENANT_SYSTEM)?;
        if key.is_empty() || key.len() > wire::MAX_KEY {
            return None;
        }
        let hash = known.secrets.hash.key_hash(tenant, key);
        let cluster = &self.config.cluster;
        let address = cluster.store_of(tenant, hash).address;
        let home = cluster.node_of(address).filter(|home| *home != me)?;
        Some(((tenant, hash), (home, address)))
    }

    /// Tenants have changed: a key whose home is another store now is held as a new one, a key whose home we are not at all.
    pub(in crate::engine) fn move_replicas(&mut self, now_ns: u64, out: &mut Outbox) {
        let held = self.replicas.held.iter();
        let all: Vec<_> = held
            .map(|(id, held)| (*id, held.key.clone(), held.home, held.wanted))
            .collect();
        for (id, key, home, wanted) in all {
            let now = self.abroad(id.0, &key);
            let may = self.replicas.me.is_some_and(|me| self.may_hold(me, id.0));
            if now.is_some_and(|(_, (now, _))| now == home) && (may || !wanted) {
                continue;
            }
            self.replicas.forget(&id);
            if wanted && now.is_some() {
                self.hold_replica(id.0, &key, now_ns, out);
            }
        }
    }
}
