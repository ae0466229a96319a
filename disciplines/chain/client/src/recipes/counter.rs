//! A number to which many may add.

use bytes::Bytes;
use client::{Condition, Error};

use super::{Asks, read, write};
use crate::call::unsupported;

/// A number under a key, to which many may add: each addition takes place once. An absent key
/// counts as 0.
///
/// The key's value is text: the number, and after a space who added last.
pub struct Counter<A> {
    asks: A,
    key: Bytes,
}

impl<A: Asks> Counter<A> {
    /// The counter under this key.
    pub fn new(asks: A, key: impl AsRef<[u8]>) -> Counter<A> {
        Counter { asks, key: Bytes::copy_from_slice(key.as_ref()) }
    }

    /// The number.
    ///
    /// # Errors
    /// The read's; [`Error::Unsupported`] if the value is no counter's.
    pub async fn get(&self) -> Result<i64, Error> {
        let (_, value) = read(&self.asks, &self.key).await?;
        Ok(Number::parse(value.as_deref())?.count)
    }

    /// Adds; the number after it. It tries again until the time comes, by the clock of
    /// [`Asks::now_ns`], and once at least; what is asked by then it waits for, as long as any
    /// operation may take.
    ///
    /// # Errors
    /// As [`Counter::get`], and then nothing was added; nor for [`Error::Mismatch`], which says
    /// that others added each time until the time came. [`Error::OutcomeUnknown`] if somebody else
    /// added, something failed, or the time came, before it was known whether this addition had
    /// taken place.
    pub async fn add(&self, delta: i64, until_ns: u64) -> Result<i64, Error> {
        let mut unknown = None;
        let added = self.add_unless_unknown(delta, until_ns, &mut unknown).await;
        // It may have taken place, whatever failed later.
        added.map_err(|error| unknown.map_or(error, |unknown| unknown.error))
    }

    /// Adds; `unknown` is an attempt that may have taken place for all that is known, if there was
    /// one.
    async fn add_unless_unknown(
        &self,
        delta: i64,
        until_ns: u64,
        unknown: &mut Option<UnknownAttempt>,
    ) -> Result<i64, Error> {
        // One for all attempts: those that name the same version are one write, whichever of them
        // takes place.
        let by = self.asks.nonce();
        let mut tried = false;
        loop {
            let (version, value) = read(&self.asks, &self.key).await?;
            let now = Number::parse(value.as_deref())?;
            if value.is_some() && now.by == by {
                return Ok(now.count);
            }
            // It may have taken place, and another one after it.
            if let Some(attempt) = unknown.take_if(|attempt| attempt.version != version) {
                return Err(attempt.error);
            }
            if tried && self.asks.now_ns() >= until_ns {
                let refused = Error::Mismatch { current: version };
                return Err(unknown.take().map_or(refused, |attempt| attempt.error));
            }
            tried = true;
            let count = now.count.wrapping_add(delta);
            let condition = match value {
                None => Condition::Absent,
                Some(_) => Condition::Version(version),
            };
            let text = Number { count, by }.to_string();
            match write(&self.asks, &self.key, text.as_bytes(), condition).await {
                Ok(Some(_)) => return Ok(count),
                Ok(None) => {}
                Err(error @ Error::OutcomeUnknown { .. }) => {
                    *unknown = Some(UnknownAttempt { version, error });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// An addition of which nobody said what became of it.
struct UnknownAttempt {
    /// The version on which it would be the next.
    version: u64,
    error: Error,
}

/// What stands in a counter's key.
pub(super) struct Number {
    pub count: i64,
    by: u64,
}

impl Number {
    pub fn parse(value: Option<&[u8]>) -> Result<Number, Error> {
        let Some(value) = value else {
            return Ok(Number { count: 0, by: 0 });
        };
        let parse = || {
            let (count, by) = std::str::from_utf8(value).ok()?.split_once(' ')?;
            Some(Number { count: count.parse().ok()?, by: u64::from_str_radix(by, 16).ok()? })
        };
        parse().ok_or(unsupported("a counter of this key: its value is another's"))
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:016x}", self.count, self.by)
    }
}
