//! Copies that are called back because others changed what they are of, or because a key has moved:
//! some at a time.

use std::collections::{BTreeSet, VecDeque};

use super::Keys;
use crate::{
    backend::OutsideEvent, coherence::Nanos, counters::OutsideCounters, directory::KeyId,
    engine::context::Context,
};

/// Keys called back at once when everything has changed, and the time between.
const RECALLS_AT_ONCE: usize = 1024;
const RECALLS_EVERY_NS: Nanos = 1_000_000;

/// Keys that are still to be called back.
#[derive(Default)]
pub(in crate::engine) struct Recalls {
    keys: VecDeque<KeyId>,
    next_ns: Nanos,
    pub counters: OutsideCounters,
}

impl Recalls {
    /// Calls these back as well.
    fn also(&mut self, keys: impl IntoIterator<Item = KeyId>, now_ns: Nanos) {
        self.keys.extend(keys);
        self.next_ns = self.next_ns.max(now_ns);
    }

    /// Calls back the copies of these tenants' keys that this store holds no longer.
    pub fn moved(&mut self, cx: &Context, tenants: &BTreeSet<u32>) {
        if tenants.is_empty() {
            return;
        }
        let moved =
            |(tenant, hash): &KeyId| tenants.contains(tenant) && !cx.is_home_of(*tenant, *hash);
        self.also(cx.directory.with_copies().filter(moved), cx.now_ns);
    }

    /// Calls back the copies of these tenants' keys: a switch that has not heard yet that a tenant
    /// is gone serves them, also when the tenant is there again. Holders at the clients' side speak
    /// in the tenant's name, and are not asked: their leases are not renewed, and lapse.
    pub fn gone(&mut self, cx: &Context, tenants: &BTreeSet<u32>) {
        let is_held = |id: &KeyId| {
            let entry = cx.directory.find(id).and_then(|at| cx.directory.get(at));
            let copies = entry.map(|entry| entry.state.copies()).unwrap_or_default();
            copies.iter().any(|copy| !wire::is_holder(copy.switch))
        };
        let gone = cx.directory.with_copies().filter(|id| tenants.contains(&id.0) && is_held(id));
        self.also(gone, cx.now_ns);
    }

    /// Calls back every copy that there is.
    pub fn everything(&mut self, cx: &Context) {
        self.also(cx.directory.with_copies(), cx.now_ns);
    }

    /// When the next are to be called back.
    pub fn next_ns(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.next_ns)
    }

    /// The backend tells what others did, or that it would have.
    pub fn happened(&mut self, keys: &mut Keys, cx: &mut Context, event: OutsideEvent) {
        match event {
            OutsideEvent::Watch(watch) => cx.outside.watches(watch),
            OutsideEvent::Seen(asked_ns) => cx.outside.seen(asked_ns),
            OutsideEvent::Changed { tenant, key } => {
                self.counters.outside_changes += 1;
                for id in cx.tenants.ids_of(tenant, &key).collect::<Vec<_>>() {
                    cx.changes(id);
                    self.recall_changed(keys, cx, id);
                }
            }
            OutsideEvent::Everything => {
                self.counters.outside_losses += 1;
                cx.outside.all_changed();
                cx.all_change();
                let version = cx.versions.next();
                cx.backend.forget_versions(version);
                self.keys = cx.directory.with_copies().collect();
                self.next_ns = cx.now_ns;
                self.tick(keys, cx);
            }
        }
    }

    /// Calls back what is still to be called back, as much as may be at once.
    pub fn tick(&mut self, keys: &mut Keys, cx: &mut Context) {
        let nothing = self.keys.is_empty() && cx.outside.may_grant_reads();
        if nothing || self.next_ns > cx.now_ns {
            return;
        }
        for _ in 0..RECALLS_AT_ONCE {
            match self.keys.pop_front() {
                Some(id) => self.recall_changed(keys, cx, id),
                None => return cx.outside.all_opened(),
            }
        }
        self.next_ns = cx.now_ns + RECALLS_EVERY_NS;
    }

    /// Calls the copies of a key back that another has changed. A reply with a grant that is on its
    /// way, or that waits for the backend, counts as a copy: granted(X) was raised before the
    /// backend was asked, so X's acknowledgement proves that it will not install it. If a write of
    /// ours or a recall goes on, the copies are going already.
    fn recall_changed(&mut self, keys: &mut Keys, cx: &mut Context, id: KeyId) {
        let Some(at) = cx.directory.find(&id) else { return };
        let had_copies = cx.directory.update(at, |entry| {
            let had = !entry.state.copies().is_empty();
            if had {
                entry.state.recall(cx.now_ns);
            }
            had
        });
        if had_copies == Some(true) {
            self.counters.outside_recalls += 1;
            cx.outside.opened(id);
            keys.drive(cx, at);
        }
    }
}
