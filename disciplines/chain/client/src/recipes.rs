//! What programs build from keys with versions: locks, elections, counters, barriers, watches.
//!
//! Each recipe is written once, over whoever asks for it ([`Asks`]): [`Client`](crate::Client) on
//! sockets, [`Virtual`](crate::Virtual) in a simulator. They need no clocks that agree: a lease is
//! counted by its holder from before its write, and by everybody else from when they first saw that
//! write, by their own clock.
//!
//! A write whose outcome is unknown is settled by reading: what recipes write says who wrote it.
//! Where that fails, or the next writer's value hides it, the outcome stays unknown, and that is
//! what a recipe says: never that a read failed, as if nothing had been written.

mod barrier;
mod counter;
mod election;
mod lock;

use std::future::Future;

use bytes::Bytes;
use client::{Answer, Condition, Error, Operation};

use crate::KeyState;

pub use barrier::Barrier;
pub use counter::Counter;
pub use election::{Candidate, Leader, leader};
pub use lock::{HeldLock, Lock, LockOptions};

/// Whoever carries operations out for a recipe, and knows what time it is.
pub trait Asks: Clone {
    /// Carries out an operation.
    fn call(&self, operation: Operation<'_>) -> impl Future<Output = Result<Answer, Error>>;

    /// Tells each state of a key, the present one first, until `tell` says that it has heard enough
    /// or the time has come. Some states in between may never be told.
    fn watch(
        &self,
        key: &[u8],
        tell: impl FnMut(KeyState) -> bool,
        until_ns: u64,
    ) -> impl Future<Output = Result<(), Error>>;

    /// Now, in nanoseconds of a clock that never goes back and does not stop while the machine is
    /// suspended.
    fn now_ns(&self) -> u64;

    /// Waits until then.
    fn until(&self, at_ns: u64) -> impl Future<Output = ()>;

    /// A number that nobody else draws.
    fn nonce(&self) -> u64;
}

/// What a key is: its version and value, 0 and none if it is absent.
async fn read(asks: &impl Asks, key: &[u8]) -> Result<(u64, Option<Bytes>), Error> {
    let found = asks.call(Operation::Get { key }).await?.found()?;
    Ok(found.map_or((0, None), |value| (value.version, Some(value.bytes))))
}

/// Writes on a condition; its version, or none: the condition does not hold.
async fn write(
    asks: &impl Asks,
    key: &[u8],
    value: &[u8],
    condition: Condition,
) -> Result<Option<u64>, Error> {
    let set = Operation::Set { key, value, ttl: None, condition };
    match asks.call(set).await?.written() {
        Ok(version) => Ok(Some(version)),
        Err(Error::Mismatch { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
