//! The memory that large values share.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that one unit of the budget stands for.
const UNIT: usize = 1 << 10;

/// A number of bytes to be reserved from, and given back to. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    free: Arc<Semaphore>,
    total: usize,
}

/// Bytes reserved; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    _permit: OwnedSemaphorePermit,
}

impl Memory {
    /// So many bytes, in steps of 1 KiB.
    pub fn new(bytes: usize) -> Memory {
        let total = bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Memory { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Reserves this many bytes, or `None` when they are not free: nobody waits for memory, because
    /// those who hold it may be waiting too.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        let _permit = self.free.clone().try_acquire_many_owned(units).ok()?;
        Some(Reservation { _permit })
    }

    /// Bytes reserved now, and in all.
    pub fn used_and_total(&self) -> (usize, usize) {
        ((self.total - self.free.available_permits()) * UNIT, self.total * UNIT)
    }
}

impl Reservation {
    /// Gives this memory back when the bytes are.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ValueOwner(bytes, self))
    }
}

/// A value with the memory that is reserved for it.
struct ValueOwner(Bytes, #[expect(dead_code, reason = "given back when dropped")] Reservation);

impl AsRef<[u8]> for ValueOwner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_comes_back() {
        let memory = Memory::new(10 * UNIT);
        let most = memory.reserve(9 * UNIT + 1).unwrap();
        assert_eq!(memory.used_and_total(), (10 * UNIT, 10 * UNIT));
        assert!(memory.reserve(1).is_none());
        assert!(memory.reserve(0).is_some());
        drop(most);
        assert!(memory.reserve(10 * UNIT).is_some());
        assert!(memory.reserve(usize::MAX).is_none());
    }
}
