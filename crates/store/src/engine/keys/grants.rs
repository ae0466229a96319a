//! Grants (rule 5): a reply that a switch, or a store that holds copies, may keep.

use wire::{NODE_ALL, NODE_HOLDER, is_holder, is_store};

use super::{Keys, put_ask};
use crate::{
    backend::Key,
    coherence::NoGrant,
    directory::Place,
    engine::{context::Context, replies::Origin},
};

impl Keys {
    /// For a read or fetch: whether the reply may be a grant.
    pub fn grant(&mut self, cx: &mut Context, origin: &Origin, key: Key<'_>) -> bool {
        if !cx.outside.may_grant_reads() {
            self.counters.grants_unwatched += 1;
            return false;
        }
        if cx.leases.term(origin.epoch.switch(), cx.now_ns).is_none() {
            self.counters.grants_no_lease += 1;
            return false;
        }
        let at = cx.directory.enter(key);
        let granted = self.grant_known(cx, at, origin);
        if !granted {
            cx.directory.forget_if_idle(at);
        }
        granted
    }

    /// For a key that is in the directory.
    pub(super) fn grant_known(&mut self, cx: &mut Context, at: Place, origin: &Origin) -> bool {
        let switch = origin.epoch.switch();
        // Every copy is called back, once.
        if cx.leaves || cx.all_held {
            return false;
        }
        // Its key may have moved to another store since it was asked for: what is called back for
        // that is not granted again.
        if !cx.is_home_of(origin.tenant, origin.key_hash) {
            self.counters.grants_moved += 1;
            return false;
        }
        let is_placed = match switch {
            store if is_store(store) => cx.may_hold(store, origin.tenant),
            holder if is_holder(holder) => may_be_held(cx, at, holder),
            switch => cx.placements.allows(switch, origin.tenant),
        };
        if !is_placed {
            self.counters.grants_not_placed += 1;
            return false;
        }
        let room = cx.directory.has_room(origin.tenant);
        let granted =
            cx.directory.update(at, |e| e.state.grant(origin.epoch, &cx.leases, room, cx.now_ns));
        match granted {
            Some(Ok(())) => {
                self.counters.grants += 1;
                if let Some(entry) = cx.directory.get(at) {
                    cx.backend.pin(entry.named(), true);
                }
                return true;
            }
            Some(Err(NoGrant::WritePending)) => {
                self.counters.grants_write_pending += 1;
                if is_store(switch) {
                    put_ask(cx, at, origin.epoch);
                }
            }
            Some(Err(NoGrant::NoLease)) => self.counters.grants_no_lease += 1,
            Some(Err(NoGrant::DirectoryFull)) => {
                self.counters.grants_directory_full += 1;
                self.recall_oldest(cx, origin.tenant, at);
            }
            None => {}
        }
        false
    }

    /// The directory has no more room for a tenant: calls the copies of its oldest key back, or of
    /// whoever has the places that it lacks. `not` is being worked on.
    fn recall_oldest(&mut self, cx: &mut Context, tenant: u32, not: Place) {
        let oldest = cx.directory.oldest(cx.directory.who_gives(tenant));
        let Some(at) = oldest.filter(|at| *at != not) else { return };
        let recalled = cx.directory.update(at, |e| {
            let recalled = e.state.recall(cx.now_ns);
            let mut copies = e.state.copies().iter();
            if recalled && copies.any(|copy| is_store(copy.switch)) {
                e.asks.refuse();
            }
            recalled
        });
        if recalled == Some(true) {
            self.counters.directory_evictions += 1;
            self.drive(cx, at);
        }
    }
}

/// Whether a key is such that a holder may have a copy of it.
fn may_be_held(cx: &mut Context, at: Place, holder: wire::NodeId) -> bool {
    let Some(entry) = cx.directory.get(at) else { return false };
    let holding = entry.state.copies_among(NODE_HOLDER..NODE_ALL);
    let others = holding - usize::from(entry.state.copy_of(holder).is_some());
    cx.holders.may_be_granted(&entry.id, others, cx.now_ns)
}
