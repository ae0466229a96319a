//! Parties that wait for one another.

use bytes::Bytes;
use client::Error;

use super::{Asks, Counter, counter::Number};
use crate::KeyState;

/// A place where so many parties wait for one another, again and again.
pub struct Barrier<A> {
    asks: A,
    key: Bytes,
    parties: i64,
}

impl<A: Asks> Barrier<A> {
    /// The barrier under this key. All parties must agree on their number, at least 1.
    pub fn new(asks: A, key: impl AsRef<[u8]>, parties: u32) -> Barrier<A> {
        Barrier {
            asks,
            key: Bytes::copy_from_slice(key.as_ref()),
            parties: i64::from(parties.max(1)),
        }
    }

    /// Waits until all parties are here; false: they were not until the time came. This one counts
    /// as come all the same.
    ///
    /// # Errors
    /// As for [`Counter::add`], which has as much time; or the others could not be waited for, and
    /// then this one counts as come.
    pub async fn enter(&self, until_ns: u64) -> Result<bool, Error> {
        let counter = Counter::new(self.asks.clone(), &self.key);
        let place = counter.add(1, until_ns).await?;
        let full = (place - 1).div_euclid(self.parties) * self.parties + self.parties;
        let mut count = place;
        while count < full && self.asks.now_ns() < until_ns {
            let mut seen = Ok(count);
            let tell = |watched: KeyState| {
                seen = Number::parse(watched.value.as_deref()).map(|number| number.count);
                matches!(seen, Ok(count) if count < full)
            };
            self.asks.watch(&self.key, tell, until_ns).await?;
            count = seen?;
        }
        Ok(count >= full)
    }
}
