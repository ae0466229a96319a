//! Data that outlives its store: it is another process's, which is never killed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::backend::{Answer, Backend, Change, Condition, Item, Key, Put, Ticket};

/// The data, wherever it is asked from.
#[derive(Clone)]
pub struct KeptData(Arc<Mutex<Box<dyn Backend>>>);

impl KeptData {
    /// What lies in a backend now.
    pub fn new(backend: Box<dyn Backend>) -> KeptData {
        KeptData(Arc::new(Mutex::new(backend)))
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Backend>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One store's way to it.
pub struct Kept {
    data: KeptData,
    /// The data's clock when this store's was at 0.
    began_ns: u64,
    /// The value that was read last.
    value: Vec<u8>,
}

impl Kept {
    /// For a store whose clock is at 0 when the data's is at `began_ns`.
    pub fn new(data: KeptData, began_ns: u64) -> Kept {
        Kept {
            data,
            began_ns,
            value: vec![],
        }
    }
}

impl Backend for Kept {
    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        let mut data = self.data.lock();
        let Answer::Now(found) = data.get(key, now_ns + self.began_ns, ticket) else {
            return Answer::Later;
        };
        Answer::Now(found.map(|item| {
            self.value.clear();
            self.value.extend_from_slice(item.value);
            Item {
                value: &self.value[..],
                version: item.version,
                expiry_ms: item.expiry_ms,
            }
        }))
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        let mut data = self.data.lock();
        data.put(key, put, now_ns + self.began_ns, ticket)
    }

    fn delete(
        &mut self,
        key: Key<'_>,
        condition: Condition,
        version: u64,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Change> {
        let mut data = self.data.lock();
        data.delete(key, condition, version, now_ns + self.began_ns, ticket)
    }

    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        self.data.lock().pin(key, pinned);
    }

    fn items(&self) -> Option<u64> {
        self.data.lock().items()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.data.lock().memory_bytes()
    }

    fn evicted(&self) -> u64 {
        self.data.lock().evicted()
    }
}
