//! Places of connections whose peers have shown a token. A tenant has its share of them and no
//! more: whoever has its token keeps neither switches and stores out, nor operators, nor
//! other tenants.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One tenant's share of all places.
const TENANT_SHARE: usize = 16;

/// All of them.
pub struct Places {
    all: Arc<Semaphore>,
    /// By tenant: as many as have tokens.
    tenants: Mutex<BTreeMap<u32, Arc<Semaphore>>>,
    each: usize,
}

/// A place, until it is dropped.
pub struct Place {
    _one: OwnedSemaphorePermit,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// So many, at least one.
    pub fn new(max: usize) -> Places {
        Places {
            all: Arc::new(Semaphore::new(max.max(1))),
            tenants: Mutex::default(),
            each: (max / TENANT_SHARE).max(1),
        }
    }

    /// One for somebody who showed a token, of this tenant or of none; `None`: there are too many.
    pub fn take(&self, tenant: Option<u32>) -> Option<Place> {
        let _of_tenant = match tenant {
            Some(id) => {
                let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
                let own = tenants.entry(id).or_insert_with(|| Arc::new(Semaphore::new(self.each)));
                Some(own.clone().try_acquire_owned().ok()?)
            }
            None => None,
        };
        let _one = self.all.clone().try_acquire_owned().ok()?;
        Some(Place { _one, _of_tenant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_share_and_keeps_nobody_out() {
        let places = Places::new(3 * TENANT_SHARE);
        let mut taken: Vec<_> = (0..3).map(|_| places.take(Some(7)).unwrap()).collect();
        assert!(places.take(Some(7)).is_none());
        taken.push(places.take(Some(8)).unwrap());
        for _ in 0..3 * TENANT_SHARE - 4 {
            taken.push(places.take(None).unwrap());
        }
        assert!(places.take(None).is_none());
        taken.remove(0);
        assert!(places.take(Some(7)).is_some());
    }
}
