//! Places of connections whose peers have shown a token. Tenants have their share of them and no
//! more, each a part of that: whoever has tokens of tenants, of however many, keeps neither
//! switches and stores out, nor operators, nor the tenants that have fewer places.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::AbortHandle;

/// One tenant's share of all places.
const TENANT_SHARE: usize = 16;
/// The share of all tenants together.
const TENANTS_SHARE: usize = 2;

/// All of them.
#[derive(Clone)]
pub struct Places(Arc<Mutex<PlaceCounts>>);

struct PlaceCounts {
    max: usize,
    /// Of those who are no tenants.
    others: usize,
    /// Of each tenant that has any, by the order in which they were taken.
    tenants: BTreeMap<u32, BTreeMap<u64, AbortHandle>>,
    newest: u64,
}

/// A place, until it is dropped.
pub struct Place {
    places: Places,
    /// Of which tenant, and its number there.
    of_tenant: Option<(u32, u64)>,
}

impl Places {
    /// So many, at least one.
    pub fn new(max: usize) -> Places {
        let (others, newest, tenants) = (0, 0, BTreeMap::new());
        Places(Arc::new(Mutex::new(PlaceCounts { max: max.max(1), others, tenants, newest })))
    }

    /// One for a connection that ends by `abort`, of somebody who showed a token, of this tenant or
    /// of none; `None`: there are too many. Where tenants have all that is theirs, the oldest of
    /// the one that has most makes room for one that has fewer.
    pub fn take(&self, tenant: Option<u32>, abort: AbortHandle) -> Option<Place> {
        let mut taken = self.lock();
        if let Some(id) = tenant {
            taken.make_room(id)?;
        }
        if taken.others + taken.of_tenants() >= taken.max {
            return None;
        }
        let of_tenant = tenant.map(|id| (id, taken.add(id, abort)));
        taken.others += usize::from(of_tenant.is_none());
        Some(Place { places: self.clone(), of_tenant })
    }

    fn lock(&self) -> MutexGuard<'_, PlaceCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlaceCounts {
    fn of_tenants(&self) -> usize {
        self.tenants.values().map(BTreeMap::len).sum()
    }

    /// Whether this tenant may have one more; another's oldest goes if it must.
    fn make_room(&mut self, id: u32) -> Option<()> {
        let own = self.tenants.get(&id).map_or(0, BTreeMap::len);
        if own >= (self.max / TENANT_SHARE).max(1) {
            return None;
        }
        if self.of_tenants() < (self.max / TENANTS_SHARE).max(1) {
            return Some(());
        }
        // With one more than that, neither pushes the other out.
        let most = self.tenants.values_mut().max_by_key(|places| places.len());
        let most = most.filter(|places| places.len() > own + 1)?;
        let (_, oldest) = most.pop_first()?;
        oldest.abort();
        Some(())
    }

    fn add(&mut self, id: u32, abort: AbortHandle) -> u64 {
        self.newest += 1;
        self.tenants.entry(id).or_default().insert(self.newest, abort);
        self.newest
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let Some((id, number)) = self.of_tenant else {
            taken.others -= 1;
            return;
        };
        if let Some(own) = taken.tenants.get_mut(&id) {
            own.remove(&number);
        }
        taken.tenants.retain(|_, places| !places.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    /// Connections of tests, and their places.
    struct Taker {
        places: Places,
        taken: Vec<(JoinHandle<()>, Place)>,
    }

    impl Taker {
        fn new(max: usize) -> Taker {
            Taker { places: Places::new(max), taken: vec![] }
        }

        fn take(&mut self, tenant: Option<u32>) -> bool {
            let task = tokio::spawn(std::future::pending());
            let place = self.places.take(tenant, task.abort_handle());
            let is_taken = place.is_some();
            self.taken.extend(place.map(|place| (task, place)));
            is_taken
        }

        /// Takes this tenant's until there is none more; how many those were.
        fn take_all(&mut self, tenant: Option<u32>) -> usize {
            (0..10_000).take_while(|_| self.take(tenant)).count()
        }
    }

    #[tokio::test]
    async fn a_tenant_has_its_share_and_keeps_nobody_out() {
        let mut taker = Taker::new(3 * TENANT_SHARE);
        assert_eq!(taker.take_all(Some(7)), 3);
        assert!(taker.take(Some(8)));
        assert_eq!(taker.take_all(None), 3 * TENANT_SHARE - 4);
        taker.taken.remove(0);
        assert!(taker.take(Some(7)));
    }

    /// Sixteen tenants have a sixteenth each, which is all.
    #[tokio::test]
    async fn many_tenants_leave_half_to_others_and_something_to_each_other() {
        let mut taker = Taker::new(64 * TENANT_SHARE);
        let all: usize = (1..=16).map(|id| taker.take_all(Some(id))).sum();
        assert!(all >= 32 * TENANT_SHARE);
        assert_eq!(taker.places.lock().of_tenants(), 32 * TENANT_SHARE);
        // One that comes late has as many as the others, nearly.
        assert!(taker.take_all(Some(17)) >= 29);
        assert_eq!(taker.places.lock().of_tenants(), 32 * TENANT_SHARE);
        assert_eq!(taker.take_all(None), 32 * TENANT_SHARE);
        // Those that made room have ended, and give nothing back twice.
        let mut left = 0;
        for (task, place) in taker.taken.drain(..) {
            let has = |(id, number): (u32, u64)| {
                let taken = taker.places.lock();
                taken.tenants.get(&id).is_some_and(|own| own.contains_key(&number))
            };
            match place.of_tenant.is_none_or(has) {
                true => left += 1,
                false => assert!(task.await.unwrap_err().is_cancelled()),
            }
            drop(place);
        }
        assert_eq!(left, 64 * TENANT_SHARE);
        let taken = taker.places.lock();
        assert_eq!((taken.others, taken.of_tenants()), (0, 0));
    }
}
