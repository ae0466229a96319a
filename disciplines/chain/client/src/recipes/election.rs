//! Who leads, as its key says.

use bytes::Bytes;
use client::Error;

use super::{Asks, HeldLock, Lock, LockOptions};
use crate::KeyState;

/// Bytes before the name in a lock's value: a nonce and the length of its lease.
const NAME_AT: usize = 12;

/// Who leads, as its key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The name that it stood with.
    pub name: Bytes,
    /// The key's version: rises when another one leads, and when the same says that it still does.
    pub version: u64,
}

/// One who would lead: an election is a lock whose holder everybody may know.
pub struct Candidate<A> {
    lock: Lock<A>,
}

impl<A: Asks> Candidate<A> {
    /// A candidate of the election under this key; `options.name` is what others read.
    pub fn new(asks: A, key: impl AsRef<[u8]>, options: LockOptions) -> Candidate<A> {
        Candidate { lock: Lock::new(asks, key, options) }
    }

    /// Waits until it leads; none: others did until the patience was over. [`HeldLock::token`] is
    /// the term: higher than each before.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    pub async fn campaign(&self) -> Result<Option<HeldLock<A>>, Error> {
        self.lock.acquire().await
    }
}

/// Tells who leads, now and after each change, until `tell` has heard enough or the time has come.
/// None: nobody.
///
/// # Errors
/// As for reads.
pub async fn leader(
    asks: &impl Asks,
    key: &[u8],
    mut tell: impl FnMut(Option<Leader>) -> bool,
    until_ns: u64,
) -> Result<(), Error> {
    let mut last: Option<Option<Bytes>> = None;
    let heard = |watched: KeyState| {
        let name = |value: Bytes| value.slice(NAME_AT.min(value.len())..);
        // Renewals tell nothing new; the nonce tells whether the same one leads.
        let who = watched.value.clone().map(|value| value.slice(..NAME_AT.min(value.len())));
        if last.as_ref() == Some(&who) {
            return true;
        }
        last = Some(who);
        let version = watched.version;
        tell(watched.value.map(|value| Leader { name: name(value), version }))
    };
    asks.watch(key, heard, until_ns).await
}
