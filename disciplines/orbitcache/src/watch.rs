//! Lets stores know, again and again, that their reports about a tenant are wanted. They forget it
//! by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use bytes::Bytes;
use decide::Action;

use crate::store::FORGOTTEN_AFTER;

/// The time from one notice to the next.
const EVERY: Duration = Duration::from_secs(FORGOTTEN_AFTER.as_secs() / 3);

/// The last message to a store about one tenant.
struct Notice {
    /// When it was sent.
    at: Duration,
    /// The store does not have it yet. There is no need of another.
    waits: bool,
}

/// What each store was told.
pub struct Watch {
    message: Bytes,
    stores: BTreeMap<SocketAddr, BTreeMap<u32, Notice>>,
    tenants: BTreeSet<u32>,
}

impl Watch {
    /// This is what stores are told.
    pub fn new(message: Bytes) -> Watch {
        Watch { message, stores: BTreeMap::new(), tenants: BTreeSet::new() }
    }

    /// A store is there, and may know nothing.
    pub fn attached(&mut self, store: SocketAddr) {
        let said = self.stores.entry(store).or_default();
        said.clear();
    }

    /// A tenant's reports are wanted, or no longer.
    pub fn want(&mut self, tenant: u32, wanted: bool) {
        if wanted {
            self.tenants.insert(tenant);
        } else {
            self.tenants.remove(&tenant);
            self.stores.values_mut().for_each(|said| {
                said.remove(&tenant);
            });
        }
    }

    /// A store has what it was told.
    pub fn told(&mut self, store: SocketAddr, tenant: u32) {
        let said = self.stores.get_mut(&store);
        if let Some(said) = said.and_then(|said| said.get_mut(&tenant)) {
            said.waits = false;
        }
    }

    /// What a store was told of a tenant was refused: it is told again.
    pub fn not_told(&mut self, store: SocketAddr, tenant: u32) {
        if let Some(said) = self.stores.get_mut(&store) {
            said.remove(&tenant);
        }
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        for (store, said) in &mut self.stores {
            for tenant in &self.tenants {
                let enough = |said: &Notice| said.waits || now.saturating_sub(said.at) < EVERY;
                if said.get(tenant).is_some_and(enough) {
                    continue;
                }
                said.insert(*tenant, Notice { at: now, waits: true });
                out.push(Action::Tell {
                    store: *store,
                    tenant: *tenant,
                    message: self.message.clone(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_told_when_they_come_and_from_time_to_time_but_never_twice_at_once() {
        let (mut watch, store) = (Watch::new("m".into()), "10.0.0.1:7117".parse().unwrap());
        let told = |watch: &mut Watch, now: Duration| {
            let mut out = vec![];
            watch.tick(now, &mut out);
            let tenant = |action: &Action| match action {
                Action::Tell { tenant, .. } => *tenant,
                other => panic!("{other:?}"),
            };
            out.iter().map(tenant).collect::<Vec<_>>()
        };
        watch.want(7, true);
        assert_eq!(told(&mut watch, EVERY), [0; 0]);
        watch.attached(store);
        assert_eq!(told(&mut watch, EVERY), [7]);
        assert_eq!(told(&mut watch, EVERY * 3), [0; 0], "the first waits still");
        watch.told(store, 7);
        assert_eq!(told(&mut watch, EVERY * 3), [7]);
        watch.told(store, 7);
        watch.want(8, true);
        assert_eq!(told(&mut watch, EVERY * 3), [8]);
        watch.attached(store);
        assert_eq!(told(&mut watch, EVERY * 3), [7, 8], "it may have forgotten");
        watch.not_told(store, 7);
        assert_eq!(told(&mut watch, EVERY * 3), [7], "it does not know");
        watch.want(7, false);
        watch.told(store, 8);
        assert_eq!(told(&mut watch, EVERY * 5), [8]);
    }
}
