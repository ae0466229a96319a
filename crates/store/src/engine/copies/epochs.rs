//! Epochs of copies, and whose they are. Time allows so many of them (docs/coherence.md,
//! "Replicas"). Half of those are shared out among the tenants, an equal share each; the other half
//! is whoever's comes first. So the updates of one tenant leave each other one its share.

use std::collections::{BTreeMap, BTreeSet};

use crate::coherence::{Epochs, Nanos};

/// The counter of epochs, and who took how many.
pub(super) struct SharedEpochs {
    epochs: Epochs,
    tenants: u64,
    /// What each tenant took of its share.
    own: BTreeMap<u32, u64>,
    /// What was taken of the half that is nobody's.
    common: u64,
}

impl SharedEpochs {
    /// Epochs that so many tenants share.
    pub fn new(epochs: Epochs, tenants: usize) -> SharedEpochs {
        let mut shared = SharedEpochs { epochs, tenants: 1, own: BTreeMap::new(), common: 0 };
        shared.share_among(tenants);
        shared
    }

    /// From now on so many tenants share them. What is taken stays.
    pub fn share_among(&mut self, tenants: usize) {
        self.tenants = tenants.max(1) as u64;
    }

    /// What these tenants took is no part of any share any more.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        self.own.retain(|tenant, _| !gone.contains(tenant));
    }

    /// Half of what time allows.
    fn half(&self, now_ns: Nanos) -> u64 {
        self.epochs.allowed(now_ns) / 2
    }

    fn is_owed(&self, tenant: u32, now_ns: Nanos) -> bool {
        let own = self.own.get(&tenant).copied().unwrap_or(0);
        own < self.half(now_ns) / self.tenants
    }

    /// Whether an update of a tenant may take one.
    pub fn has_room(&self, tenant: u32, now_ns: Nanos) -> bool {
        let is_free = self.is_owed(tenant, now_ns) || self.common < self.half(now_ns);
        is_free && !self.epochs.is_ahead(now_ns)
    }

    /// A tenant's key takes one: of its share, as long as that lasts.
    pub fn take(&mut self, tenant: u32, now_ns: Nanos) -> u64 {
        match self.is_owed(tenant, now_ns) {
            true => *self.own.entry(tenant).or_default() += 1,
            false => self.common += 1,
        }
        self.epochs.take()
    }

    /// The highest number taken so far.
    pub fn newest(&self) -> u64 {
        self.epochs.newest()
    }
}
