//! What disciplines want held here, and what they want no longer.

use std::net::SocketAddr;

use wire::{Epoch, NodeId, Op, TENANT_SYSTEM};

use super::{CONFIRM_FIRST_NS, ForeignCopies, SPREAD_NS};
use crate::{directory::KeyId, engine::context::Context};

impl ForeignCopies {
    /// A half wants a copy of a key of another store held. False if it cannot be.
    pub fn hold(&mut self, cx: &mut Context, tenant: u32, key: &[u8]) -> bool {
        let Some((id, home)) = self.abroad(cx, tenant, key) else { return false };
        // The home refuses it, too; a controller that knows other stores would have us ask
        // for ever.
        if !self.me.is_some_and(|me| cx.may_hold(me, tenant)) {
            return false;
        }
        let is_held = self.held.get(&id).is_some_and(|held| held.wanted);
        if !is_held {
            if !self.places.has_room(tenant) {
                return false;
            }
            self.enter(id, key, home, cx.now_ns);
            self.places.take(tenant, 1);
            let first_ns = self.first_ask_ns(cx.now_ns);
            let held = self.held.get_mut(&id);
            if let Some(held) = held.filter(|held| held.reads.is_empty()) {
                held.next_ask_ns = first_ns;
            }
            if let Some(lender) = self.lenders.get_mut(&home.0) {
                lender.keys += 1;
                self.lease_due_ns = self.lease_due_ns.min(lender.next_ask_ns);
            }
        }
        if let Some(held) = self.held.get_mut(&id) {
            held.wanted = true;
            // Whoever wants it again may ask for a switch that has forgotten it.
            held.confirm_ns = cx.now_ns;
        }
        self.borrow_leases(cx);
        self.drive(cx, id);
        true
    }

    /// A half wants it held no longer. False if it is no key that could be.
    pub fn release(&mut self, cx: &mut Context, tenant: u32, key: &[u8]) -> bool {
        let Some((id, _)) = self.abroad(cx, tenant, key) else { return false };
        let Some(me) = self.me else { return false };
        // It may have gone with the tenant's room.
        if !self.held.get(&id).is_some_and(|held| held.wanted) {
            return true;
        }
        self.say_of(cx, id, Op::ReplicaDrop, Epoch::new(me, 0), 0);
        self.drop_copy(cx, id);
        true
    }

    /// A key is held no longer: reads of it that wait are answered by its home.
    pub(super) fn drop_copy(&mut self, cx: &mut Context, id: KeyId) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let reads = std::mem::take(&mut held.reads);
        let key = held.key.clone();
        self.reads.give_back(id.0, reads.len());
        self.forget(&id);
        for read in reads.into_values() {
            self.pass_on(cx, read.origin, &key);
        }
    }

    /// A half wants switches told again which copies of a tenant are valid.
    pub fn confirm_all(&mut self, cx: &mut Context, tenant: u32) {
        let mut all = vec![];
        for (id, held) in &mut self.held {
            if id.0 == tenant && held.wanted && held.replica.is_valid() {
                held.confirm_ns = cx.now_ns;
                held.confirm_backoff_ns = CONFIRM_FIRST_NS;
                all.push(*id);
            }
        }
        self.set_timers(all, SPREAD_NS, cx.now_ns);
    }

    /// A tenant's key by its hash, with its home, if that is another store.
    pub(super) fn abroad(
        &self,
        cx: &Context,
        tenant: u32,
        key: &[u8],
    ) -> Option<(KeyId, (NodeId, SocketAddr))> {
        let me = self.me?;
        let known = cx.tenants.get(tenant);
        let known = known.filter(|_| tenant != TENANT_SYSTEM)?;
        if key.is_empty() || key.len() > wire::MAX_KEY {
            return None;
        }
        let hash = known.secrets.hash.key_hash(tenant, key);
        let cluster = &cx.config.cluster;
        let address = cluster.store_of(tenant, hash).address;
        let home = cluster.node_of(address).filter(|home| *home != me)?;
        Some(((tenant, hash), (home, address)))
    }

    /// Tenants have changed: a key whose home is another store now is held as a new one, a key
    /// whose home we are not at all.
    pub fn tenants_changed(&mut self, cx: &mut Context) {
        let held = self.held.iter();
        let all: Vec<_> =
            held.map(|(id, held)| (*id, held.key.clone(), held.home, held.wanted)).collect();
        for (id, key, home, wanted) in all {
            let now = self.abroad(cx, id.0, &key);
            let may = self.me.is_some_and(|me| cx.may_hold(me, id.0));
            if now.is_some_and(|(_, (now, _))| now == home) && (may || !wanted) {
                continue;
            }
            self.forget(&id);
            if wanted && now.is_some() {
                self.hold(cx, id.0, &key);
            }
        }
    }
}
