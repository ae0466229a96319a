//! The store half: which keys most of a tenant's reads are for that reach this store (paper, 3.8).
//!
//! Each tenant has a sketch and a list of its own, so one that reads a million keys hides nobody's.
//! Cost of a read: five cells, and for a hot key one look-up.

use std::{collections::BTreeMap, time::Duration};

use decide::{StoreAction, StoreHalf};
use wire::KeyHash;

use crate::{
    report::{Report, ReportRequest},
    settings::TOP_K_MOST,
    sketch::Sketch,
    top::Top,
};

/// Tenants that are counted at once: their sketches are 80 KiB each.
const TENANTS_MOST: usize = 256;
/// The control half says so often what it wants that this long without a word it wants nothing any
/// more.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
const WINDOW_LEAST: Duration = Duration::from_millis(100);

/// Counts the reads of the tenants that the control half wants to know of.
#[derive(Default)]
pub struct Store {
    tenants: BTreeMap<u32, Tenant>,
}

struct Tenant {
    wanted: ReportRequest,
    told: Duration,
    /// When the window began.
    began: Duration,
    sketch: Sketch,
    top: Top,
}

impl StoreHalf for Store {
    fn read(
        &mut self,
        _now: Duration,
        tenant: u32,
        key: &[u8],
        hash: KeyHash,
        _out: &mut Vec<StoreAction>,
    ) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            let count = tenant.sketch.add(hash);
            let most = usize::from(tenant.wanted.keys);
            tenant.top.offer(key, hash, count, most);
        }
    }

    fn told(&mut self, now: Duration, tenant: u32, message: &[u8], out: &mut Vec<StoreAction>) {
        if let Some(wanted) = ReportRequest::decode(message) {
            self.count(now, tenant, wanted, out);
        }
    }

    fn left(&mut self, _now: Duration, tenant: u32, _out: &mut Vec<StoreAction>) {
        self.tenants.remove(&tenant);
    }

    /// Reports of the windows that ended; what nobody wants any longer is given up.
    fn tick(&mut self, now: Duration, out: &mut Vec<StoreAction>) {
        self.tenants.retain(|id, tenant| {
            let counted = now.saturating_sub(tenant.began);
            if counted >= tenant.wanted.window {
                tenant.began = now;
                tenant.sketch.clear();
                let keys = tenant.top.take();
                out.push(StoreAction::Report {
                    tenant: *id,
                    report: Report { counted, keys }.encode(),
                });
            }
            let stays = now.saturating_sub(tenant.told) < FORGOTTEN_AFTER;
            if !stays {
                out.push(StoreAction::Watch { tenant: *id, on: false });
            }
            stays
        });
    }
}

impl Store {
    /// Counts a tenant's reads from now on, or goes on with it, as the control half wants them.
    fn count(
        &mut self,
        now: Duration,
        tenant: u32,
        wanted: ReportRequest,
        out: &mut Vec<StoreAction>,
    ) {
        if self.tenants.len() >= TENANTS_MOST && !self.tenants.contains_key(&tenant) {
            return;
        }
        let new = || Tenant {
            wanted,
            told: now,
            began: now,
            sketch: Sketch::new(tenant.into()),
            top: Top::default(),
        };
        let at = self.tenants.entry(tenant).or_insert_with(new);
        at.told = now;
        at.wanted = ReportRequest {
            keys: wanted.keys.clamp(1, TOP_K_MOST as u16),
            window: wanted.window.max(WINDOW_LEAST),
        };
        out.push(StoreAction::Watch { tenant, on: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const WINDOW: Duration = Duration::from_millis(500);

    fn tell(store: &mut Store, now: Duration, tenant: u32, keys: u16) -> Vec<StoreAction> {
        let window = WINDOW;
        let message = &ReportRequest { keys, window }.encode()[..];
        let mut out = vec![];
        store.told(now, tenant, message, &mut out);
        out
    }

    fn read(store: &mut Store, tenant: u32, key: u32, times: u32) {
        let key = key.to_be_bytes();
        let hash = wire::Secret([9; 16]).key_hash(tenant, &key);
        for _ in 0..times {
            store.read(Duration::ZERO, tenant, &key, hash, &mut vec![]);
        }
    }

    fn reports(store: &mut Store, now: Duration) -> Vec<(u32, Vec<(u32, u32)>)> {
        let mut out = vec![];
        store.tick(now, &mut out);
        let report = |action| match action {
            StoreAction::Report { tenant, report } => {
                let report = Report::decode(&report).unwrap();
                let number = |key: &Bytes| u32::from_be_bytes(key[..].try_into().unwrap());
                let keys = report.keys.iter().map(|(key, n)| (number(key), *n));
                let mut keys: Vec<_> = keys.collect();
                keys.sort_unstable();
                Some((tenant, keys))
            }
            _ => None,
        };
        out.into_iter().filter_map(report).collect()
    }

    #[test]
    fn each_window_the_hottest_keys_of_each_tenant_are_reported_and_forgotten() {
        let mut store = Store::default();
        read(&mut store, 1, 5, 9);
        assert_eq!(
            tell(&mut store, Duration::ZERO, 1, 2),
            [StoreAction::Watch { tenant: 1, on: true }]
        );
        tell(&mut store, Duration::ZERO, 2, 1);
        for (key, times) in [(1, 3), (2, 30), (3, 20)] {
            read(&mut store, 1, key, times);
        }
        // Another tenant's million keys push none of them out.
        (0..1_000_000).for_each(|key| read(&mut store, 2, key, 1));
        assert_eq!(reports(&mut store, WINDOW / 2), []);
        let first = reports(&mut store, WINDOW);
        assert_eq!(first[0], (1, vec![(2, 30), (3, 20)]));
        assert_eq!((first[1].0, first[1].1.len()), (2, 1));
        read(&mut store, 1, 1, 2);
        let second = reports(&mut store, WINDOW * 2);
        assert_eq!(second, [(1, vec![(1, 2)]), (2, vec![])]);
    }

    #[test]
    fn what_nobody_asks_for_any_longer_is_not_counted() {
        let mut store = Store::default();
        tell(&mut store, Duration::ZERO, 1, 2);
        let mut out = vec![];
        store.tick(FORGOTTEN_AFTER, &mut out);
        assert!(out.contains(&StoreAction::Watch { tenant: 1, on: false }));
        assert!(store.tenants.is_empty());
        tell(&mut store, Duration::ZERO, 1, 2);
        store.left(WINDOW, 1, &mut out);
        assert!(store.tenants.is_empty());
    }
}
