//! A lock with a lease, and a token that rises with each holder.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use client::{Condition, Error, Operation};

use super::{Asks, read, write};
use crate::KeyState;

/// How a lock is taken and kept.
#[derive(Clone, Debug)]
pub struct LockOptions {
    /// How long it stays with a holder that says nothing more, in whole milliseconds, 2^32 - 1 of
    /// them at the most: what is more is left out. Default 10 s.
    pub lease: Duration,
    /// How long to try. Default 30 s.
    pub patience: Duration,
    /// Who it is, for people who look at the key.
    pub name: String,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            lease: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            name: String::new(),
        }
    }
}

/// A lock under a key. The key is absent while nobody has it; else its value says whose it is and
/// for how long, and its version is the fencing token.
///
/// Nobody can know that he has a lock: a holder may stand still for longer than its lease. So
/// whatever the lock guards has to be shown the token, and must refuse one that is lower than one
/// that it has seen. Tokens of a key only rise, also when it was removed in between.
pub struct Lock<A> {
    asks: A,
    key: Bytes,
    options: LockOptions,
}

/// A lock that is held, until it is released, or nobody renews it.
pub struct HeldLock<A> {
    asks: A,
    key: Bytes,
    options: LockOptions,
    owner: Owner,
    version: u64,
    token: u64,
    /// Until when it is surely held, by the clock of [`Asks::now_ns`].
    until_ns: u64,
}

/// What came of trying to take a lock.
enum Attempt<A> {
    Took(HeldLock<A>),
    /// It is another one's.
    Refused,
    /// It was as before when this was looked at, and the write may take place yet.
    Unknown(UnknownAttempt),
}

/// A write of which nobody said what became of it.
struct UnknownAttempt {
    owner: Owner,
    error: Error,
}

impl UnknownAttempt {
    /// Whether this value is what it wrote.
    fn wrote(&self, value: Option<&[u8]>) -> bool {
        value.is_some_and(|value| self.owner.wrote(value))
    }
}

impl<A: Asks> Lock<A> {
    /// The lock of this key.
    pub fn new(asks: A, key: impl AsRef<[u8]>, options: LockOptions) -> Lock<A> {
        // Others go by what the key's value says, so the holder must not go by more.
        let lease = Duration::from_millis(lease_ms(options.lease).into());
        let options = LockOptions { lease, ..options };
        Lock { asks, key: Bytes::copy_from_slice(key.as_ref()), options }
    }

    /// Takes the lock; none: others had it until the patience was over.
    ///
    /// # Errors
    /// Reads or writes that fail, and not only because their outcome is unknown: then nothing was
    /// written. [`Error::OutcomeUnknown`] if that of the last write was unknown when the patience
    /// was over or something else failed, and nobody else had written since: then it was not others
    /// that were in the way. Also if there is no room for the key.
    pub async fn acquire(&self) -> Result<Option<HeldLock<A>>, Error> {
        let mut unknown = None;
        let acquired = self.acquire_unless_unknown(&mut unknown).await;
        // It may be this one's, whatever failed later.
        acquired.map_err(|error| match unknown {
            Some(attempt) if !is_unknown(&error) => attempt.error,
            _ => error,
        })
    }

    /// Takes the lock; `unknown` is an attempt that may have taken it for all that is known, if
    /// there was one.
    async fn acquire_unless_unknown(
        &self,
        unknown: &mut Option<UnknownAttempt>,
    ) -> Result<Option<HeldLock<A>>, Error> {
        let deadline_ns = self.asks.now_ns().saturating_add(ns(self.options.patience));
        let (mut version, mut value) = read(&self.asks, &self.key).await?;
        // Since when this version stood there by this clock: its holder's lease began before.
        let mut since_ns = self.asks.now_ns();
        loop {
            let now_ns = self.asks.now_ns();
            // What this one wrote without knowing it keeps nobody but others out.
            let is_own = unknown.as_ref().is_some_and(|attempt| attempt.wrote(value.as_deref()));
            let lease_ns = value.as_deref().filter(|_| !is_own).map_or(0, Owner::lease_ns);
            // A sixteenth more: clocks differ in rate, by far less than that.
            let free_ns = since_ns + lease_ns + lease_ns / 16;
            if now_ns >= free_ns {
                let condition = match value {
                    None => Condition::Absent,
                    Some(_) => Condition::Version(version),
                };
                match self.take(condition).await? {
                    Attempt::Took(held) => return Ok(Some(held)),
                    Attempt::Refused => {} // by whom is read below
                    Attempt::Unknown(attempt) => *unknown = Some(attempt),
                }
            }
            if self.asks.now_ns() >= deadline_ns {
                return unknown.take().map_or(Ok(None), |attempt| Err(attempt.error));
            }
            let new = match now_ns >= free_ns {
                true => read(&self.asks, &self.key).await?,
                false => {
                    let until_ns = free_ns.min(deadline_ns);
                    self.other_than(version, value, until_ns).await?
                }
            };
            if new.0 != version {
                since_ns = self.asks.now_ns();
                // Others have it after all, unless it is free or this one's.
                let is_others =
                    |attempt: &UnknownAttempt| new.1.is_some() && !attempt.wrote(new.1.as_deref());
                if unknown.as_ref().is_some_and(is_others) {
                    *unknown = None;
                }
            }
            (version, value) = new;
        }
    }

    /// Waits until the key is another one than this, or the time has come; what it is then.
    async fn other_than(
        &self,
        version: u64,
        value: Option<Bytes>,
        until_ns: u64,
    ) -> Result<(u64, Option<Bytes>), Error> {
        let mut now = (version, value);
        let same = |watched: KeyState| {
            let is_same = watched.value.is_some() && watched.version == version;
            if !is_same {
                now = (watched.version, watched.value);
            }
            is_same
        };
        self.asks.watch(&self.key, same, until_ns).await?;
        Ok(now)
    }

    /// Tries to write that the lock is this caller's.
    async fn take(&self, condition: Condition) -> Result<Attempt<A>, Error> {
        let owner = Owner { nonce: self.asks.nonce(), lease_ms: lease_ms(self.options.lease) };
        let since_ns = self.asks.now_ns();
        let value = owner.value(&self.options.name);
        let version = match write(&self.asks, &self.key, &value, condition).await {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(Attempt::Refused),
            Err(error) if is_unknown(&error) => {
                let Ok((version, value)) = read(&self.asks, &self.key).await else {
                    return Err(error);
                };
                let is_as_before = value.is_none() || condition == Condition::Version(version);
                match value {
                    Some(value) if owner.wrote(&value) => version,
                    _ if !is_as_before => return Ok(Attempt::Refused),
                    _ if is_for_want_of_room(&error) => return Err(error),
                    _ => return Ok(Attempt::Unknown(UnknownAttempt { owner, error })),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(Attempt::Took(HeldLock {
            asks: self.asks.clone(),
            key: self.key.clone(),
            options: self.options.clone(),
            owner,
            version,
            token: version,
            until_ns: since_ns + ns(self.options.lease),
        }))
    }
}

impl<A: Asks> HeldLock<A> {
    /// The fencing token: higher than that of everybody who had the lock before.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lease runs, by this machine's clock. Who acts on it has to show the token all
    /// the same.
    pub fn is_held(&self) -> bool {
        self.asks.now_ns() < self.until_ns
    }

    /// Until when that is, in nanoseconds of [`Asks::now_ns`].
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// When to renew: a third of the lease is over, or the lock was lost.
    pub fn renew_ns(&self) -> u64 {
        self.until_ns.saturating_sub(ns(self.options.lease) / 3 * 2)
    }

    /// Takes the lock for another lease; false: it is somebody else's, or free. The token stays.
    ///
    /// # Errors
    /// As for [`Lock::acquire`]; whether it is still held the clock says.
    pub async fn renew(&mut self) -> Result<bool, Error> {
        let value = self.owner.value(&self.options.name);
        for _ in 0..2 {
            let since_ns = self.asks.now_ns();
            let condition = Condition::Version(self.version);
            let unknown = match write(&self.asks, &self.key, &value, condition).await {
                Ok(Some(version)) => {
                    self.version = version;
                    self.until_ns = since_ns + ns(self.options.lease);
                    return Ok(true);
                }
                Ok(None) => None,
                Err(error) if is_unknown(&error) => Some(error),
                Err(error) => return Err(error),
            };
            // An earlier renewal of unknown outcome may have taken place since: then there is
            // another version to go by.
            if !self.is_mine().await.map_err(|error| unknown.unwrap_or(error))? {
                self.until_ns = 0;
                return Ok(false);
            }
        }
        Ok(true) // as long as the lease of before says
    }

    /// Whether this holder's value stands there; takes its version.
    async fn is_mine(&mut self) -> Result<bool, Error> {
        let (version, value) = read(&self.asks, &self.key).await?;
        let mine = value.is_some_and(|value| self.owner.wrote(&value));
        if mine {
            self.version = version;
        }
        Ok(mine)
    }

    /// Renews until then; whether the lock was held all the time, as far as this machine's clock
    /// says. If it was lost this ends when its lease does, whatever is still waited for.
    ///
    /// # Errors
    /// As for [`HeldLock::renew`], once the lease is over.
    pub async fn keep_until(&mut self, end_ns: u64) -> Result<bool, Error> {
        while self.is_held() && self.asks.now_ns() < end_ns {
            let renew_ns = self.renew_ns().max(self.asks.now_ns());
            self.asks.until(renew_ns.min(end_ns)).await;
            if self.asks.now_ns() < self.renew_ns() {
                continue;
            }
            let (asks, until_ns) = (self.asks.clone(), self.until_ns);
            match before(&asks, until_ns, self.renew()).await {
                Some(Ok(true)) => {}
                Some(Ok(false)) | None => return Ok(false),
                Some(Err(_)) if self.is_held() => {}
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(self.is_held())
    }

    /// Gives the lock back; false: it was somebody else's already.
    ///
    /// # Errors
    /// As for [`Lock::acquire`]; then it is free when its lease is over, at the latest.
    pub async fn release(mut self) -> Result<bool, Error> {
        loop {
            let version = self.version;
            let delete =
                Operation::Delete { key: &self.key, condition: Condition::Version(version) };
            match self.asks.call(delete).await?.removed() {
                // A renewal of unknown outcome took place after all.
                Err(Error::Mismatch { .. }) if self.is_mine().await? && self.version != version => {
                }
                Err(Error::Mismatch { .. }) => return Ok(false),
                other => return other,
            }
        }
    }
}

/// What stands in a lock's key: a nonce (8 bytes), the lease in milliseconds (4), a name.
struct Owner {
    nonce: u64,
    lease_ms: u32,
}

impl Owner {
    fn value(&self, name: &str) -> Vec<u8> {
        let mut value = self.nonce.to_be_bytes().to_vec();
        value.extend(self.lease_ms.to_be_bytes());
        value.extend(name.as_bytes());
        value
    }

    /// Whether this value was written by this owner.
    fn wrote(&self, value: &[u8]) -> bool {
        value.starts_with(&self.nonce.to_be_bytes())
    }

    /// The lease that a value states; a value that is none of a lock's is never free.
    fn lease_ns(value: &[u8]) -> u64 {
        let bytes = value.get(8..12).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(u64::MAX >> 8, |bytes| u64::from(u32::from_be_bytes(*bytes)) * 1_000_000)
    }
}

/// What comes of some work, unless the time comes before that.
async fn before<T>(asks: &impl Asks, until_ns: u64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut time = pin!(asks.until(until_ns));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => time.as_mut().poll(context).map(|()| None),
    })
    .await
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn lease_ms(lease: Duration) -> u32 {
    u32::try_from(lease.as_millis()).unwrap_or(u32::MAX)
}

/// Whether a write may have taken place for all that is known.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::OutcomeUnknown { .. })
}

fn is_for_want_of_room(error: &Error) -> bool {
    matches!(error, Error::OutcomeUnknown { no_room: true, .. })
}
