//! Keys over shortstop's protocol; what no packet carries goes to the backends, coherently.
//!
//! A write that bypasses the store must leave no copy of what was there before, and must not be lost to a write on the condition of a
//! version that was read before it. The store takes conditional deletes whose condition never holds: they invalidate all copies of a key
//! and change nothing. One of them announces the direct write ([`Network::begin`]; it also shows that the store can be reached),
//! another one says that it has ended: both raise the key's version, and in between the store takes no write on the condition of a
//! version. Then [`Network::settle`] reads through the store and invalidates once more. The read shows that every earlier read in the store,
//! which may have fetched the old value and been granted as a copy, is done; the last invalidation removes such copies.
//! Grants after that hold the new value, or nothing where it is too large for a packet.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{Client, Condition, Error, Value};

use crate::{
    counters::Counters,
    data::{About, Data, Done, Life, OUTCOME_UNKNOWN, OnlyIf, Put, Refused, Written},
    direct::Direct,
};

/// Times that a read followed by a conditional write is done again because another write came between.
const RETRIES: u32 = 32;
/// Times that a key is read until the store answers and not a copy.
const SETTLE_READS: u32 = 8;
/// How long a direct write may take once it is announced: the store forgets it after twice that.
const DIRECT: Duration = Duration::from_millis(wire::DIRECT_WRITE_MS as u64 / 2);
/// A time to live that may be longer than its field in the packet can state.
const LONG_LIFE: Duration = Duration::from_millis(u32::MAX as u64 - 10_000);

/// The data of a cluster, for one tenant.
pub(crate) struct Network {
    pub client: Client,
    pub direct: Option<Direct>,
    pub counters: Arc<Counters>,
}

impl Data for Network {
    async fn get(&self, key: &Bytes) -> Done<Option<Bytes>> {
        match self.client.get(key).await {
            Ok(found) => {
                self.count_read(&found);
                Ok(found.map(|value| value.bytes))
            }
            Err(error) => {
                let found = self.direct_read(error)?.get(key).await?;
                self.count_found(found.is_some());
                Ok(found)
            }
        }
    }

    async fn about(&self, key: &Bytes) -> Done<Option<About>> {
        match self.client.get(key).await {
            Ok(found) => {
                self.count_read(&found);
                let long = |value: &Value| value.expires_in.is_some_and(|left| left >= LONG_LIFE);
                match (&self.direct, found) {
                    (Some(direct), Some(value)) if long(&value) => direct.about(key).await,
                    (_, found) => Ok(found.map(|value| About {
                        len: value.bytes.len() as u64,
                        expires_in: value.expires_in,
                    })),
                }
            }
            Err(error) => {
                let found = self.direct_read(error)?.about(key).await?;
                self.count_found(found.is_some());
                Ok(found)
            }
        }
    }

    async fn set(&self, key: &Bytes, value: &Bytes, put: Put) -> Done<Written> {
        let life = match put.life {
            Life::Forever => None,
            Life::For(life) => Some(life),
            Life::Kept => return self.replace(key, value, put).await,
        };
        if put.old {
            return self.replace(key, value, put).await;
        }
        let condition = match put.only_if {
            OnlyIf::Always => Condition::Always,
            OnlyIf::Absent => Condition::Absent,
            OnlyIf::Present => Condition::Present,
        };
        let written = match self.client.set_if(key, value, life, condition).await {
            Ok(_) => true,
            Err(Error::Mismatch { .. }) => false,
            Err(error) => return self.set_directly(error, key, value, put).await,
        };
        Ok(Written { written, old: None })
    }

    async fn delete(&self, key: &Bytes) -> Done<bool> {
        match self.client.delete(key).await {
            Ok(was_there) => Ok(was_there),
            Err(error) => self.direct_write(error)?.delete(key).await,
        }
    }

    async fn take(&self, key: &Bytes) -> Done<Option<Bytes>> {
        for attempt in 0..RETRIES {
            pause(attempt).await;
            let found = match self.client.get(key).await {
                Ok(found) => found,
                Err(error) => return self.take_directly(error, key).await,
            };
            self.count_read(&found);
            let Some(value) = found else { return Ok(None) };
            match self
                .client
                .delete_if(key, Condition::Version(value.version))
                .await
            {
                Ok(true) => return Ok(Some(value.bytes)),
                Ok(false) | Err(Error::Mismatch { .. }) => self.counters.write_retries.add_one(),
                Err(error) => return Err(self.refused(error)),
            }
        }
        Err(contended())
    }
}

impl Network {
    /// A write that depends on the value before: read, then write if it is still that version.
    async fn replace(&self, key: &Bytes, value: &Bytes, put: Put) -> Done<Written> {
        for attempt in 0..RETRIES {
            pause(attempt).await;
            let asked = Instant::now();
            let found = match self.client.get(key).await {
                Ok(found) => found,
                Err(error) => return self.set_directly(error, key, value, put).await,
            };
            self.count_read(&found);
            let long = |value: &Value| value.expires_in.is_some_and(|left| left >= LONG_LIFE);
            if put.life == Life::Kept && self.direct.is_some() && found.as_ref().is_some_and(long) {
                return self.set_directly(Error::TimeToLive, key, value, put).await;
            }
            let old = |found: Option<Value>| found.filter(|_| put.old).map(|value| value.bytes);
            let wanted = match put.only_if {
                OnlyIf::Always => true,
                OnlyIf::Absent => found.is_none(),
                OnlyIf::Present => found.is_some(),
            };
            if !wanted {
                return Ok(Written {
                    written: false,
                    old: old(found),
                });
            }
            let condition = match &found {
                Some(value) => Condition::Version(value.version),
                None => Condition::Absent,
            };
            let life = match put.life {
                Life::Forever => None,
                Life::For(life) => Some(life),
                // It has gone on meanwhile; a kept life must not become longer.
                Life::Kept => found
                    .as_ref()
                    .and_then(|value| value.expires_in)
                    .map(|left| {
                        left.saturating_sub(asked.elapsed())
                            .max(Duration::from_millis(1))
                    }),
            };
            match self.client.set_if(key, value, life, condition).await {
                Ok(_) => {
                    return Ok(Written {
                        written: true,
                        old: old(found),
                    });
                }
                Err(Error::Mismatch { .. }) => self.counters.write_retries.add_one(),
                Err(error) => return self.set_directly(error, key, value, put).await,
            }
        }
        Err(contended())
    }

    async fn set_directly(
        &self,
        why: Error,
        key: &Bytes,
        value: &Bytes,
        put: Put,
    ) -> Done<Written> {
        let direct = self.direct_write(why)?;
        let until = self.begin(key).await?;
        let done = by(until, direct.set(key, value, put)).await;
        let nothing = matches!(&done, Ok(done) if !done.written);
        self.end(key, done, nothing).await
    }

    async fn take_directly(&self, why: Error, key: &Bytes) -> Done<Option<Bytes>> {
        let direct = self.direct_write(why)?;
        let until = self.begin(key).await?;
        let taken = by(until, direct.take(key)).await;
        let nothing = matches!(&taken, Ok(None));
        self.end(key, taken, nothing).await
    }

    /// Before a direct write: announces it, which shows that the store can be reached, and leaves few copies. By when the write
    /// must be over: counted from before, for the store counts from some moment before it answers.
    async fn begin(&self, key: &Bytes) -> Done<Instant> {
        let until = Instant::now() + DIRECT;
        let said = self.say(key, wire::VERSION_DIRECT_BEGINS).await;
        said.map_err(|error| {
            Refused(format!(
                "TRYAGAIN nothing was written: copies cannot be invalidated: {error}"
            ))
        })?;
        Ok(until)
    }

    /// After a direct write: unless it is known to have changed nothing, returns once no copy of an older value is left, and none can
    /// come.
    async fn end<T>(&self, key: &Bytes, done: Done<T>, nothing: bool) -> Done<T> {
        if done.as_ref().is_err_and(Refused::is_unknown) {
            // It may still be carried out, so it has not ended: the store forgets it in time.
            self.counters.outcome_unknown.add_one();
            return done;
        }
        let ended = self.say(key, wire::VERSION_DIRECT_ENDED).await;
        if nothing || done.as_ref().is_err_and(Refused::is_try_again) {
            return done;
        }
        let settled = match ended {
            Ok(()) => self.settle(key).await,
            Err(error) => Err(error),
        };
        settled.map_err(|error| {
            self.counters.outcome_unknown.add_one();
            Refused(format!(
                "{OUTCOME_UNKNOWN}: perhaps written, and copies of the value before may be left: {error}"
            ))
        })?;
        done
    }

    async fn settle(&self, key: &Bytes) -> Result<(), Error> {
        if !may_have_copies(key) {
            return Ok(());
        }
        for _ in 0..SETTLE_READS {
            let by_switch = match self.client.get(key).await {
                Ok(found) => found.is_some_and(|value| value.from_switch),
                // An answer of the store all the same.
                Err(Error::TooLarge { .. } | Error::Backend { .. }) => false,
                // Somebody wrote it without the seal; who answered is all that matters here.
                Err(Error::NotOpened { from_switch, .. }) => from_switch,
                Err(error) => return Err(error),
            };
            self.say(key, wire::VERSION_NEVER).await?;
            if !by_switch {
                break;
            }
        }
        Ok(())
    }

    /// Invalidates all copies of a key and changes nothing; what else it tells the store is in the number, which is no key's version.
    async fn say(&self, key: &Bytes, version: u64) -> Result<(), Error> {
        if !may_have_copies(key) {
            return Ok(());
        }
        let condition = Condition::Version(version);
        match self.client.delete_if(key, condition).await {
            Ok(_) | Err(Error::Mismatch { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The backends, if this error says that only they can do it.
    fn direct_read(&self, error: Error) -> Done<&Direct> {
        match &self.direct {
            Some(direct) if is_beyond_packets(&error) || failed_to_read(&error) => {
                self.counters.direct_reads.add_one();
                Ok(direct)
            }
            _ => Err(self.refused(error)),
        }
    }

    fn direct_write(&self, error: Error) -> Done<&Direct> {
        match &self.direct {
            Some(direct) if is_beyond_packets(&error) || failed_to_read(&error) => {
                self.counters.direct_writes.add_one();
                Ok(direct)
            }
            _ => Err(self.refused(error)),
        }
    }

    fn count_read(&self, found: &Option<Value>) {
        self.count_found(found.is_some());
        if found.as_ref().is_some_and(|value| value.from_switch) {
            self.counters.answered_by_switch.add_one();
        }
    }

    fn count_found(&self, found: bool) {
        match found {
            true => self.counters.keyspace_hits.add_one(),
            false => self.counters.keyspace_misses.add_one(),
        }
    }

    /// The client's error as a Redis client should see it.
    fn refused(&self, error: Error) -> Refused {
        Refused(match &error {
            _ if is_beyond_packets(&error) => {
                format!("ERR {error}; the gateway has no --backend to go to with it")
            }
            Error::OutcomeUnknown { .. } => {
                self.counters.outcome_unknown.add_one();
                format!("ERR {error}")
            }
            Error::Backend { write: true, .. } => {
                self.counters.outcome_unknown.add_one();
                format!("{OUTCOME_UNKNOWN}: {error}")
            }
            Error::Timeout { .. } | Error::TooManyInFlight { .. } | Error::Socket { .. } => {
                format!("TRYAGAIN {error}")
            }
            Error::Denied { .. } => format!("NOPERM {error}"),
            _ => format!("ERR {error}"),
        })
    }
}

/// Keys that no packet carries have no copies.
fn may_have_copies(key: &[u8]) -> bool {
    (1..=wire::MAX_KEY).contains(&key.len())
}

fn is_beyond_packets(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyLength(_)
            | Error::ValueLength { .. }
            | Error::TooLarge { .. }
            | Error::TimeToLive
    )
}

/// The store's read of the backend failed: the key may hold no string. The backend itself says so best.
fn failed_to_read(error: &Error) -> bool {
    matches!(error, Error::Backend { write: false, .. })
}

/// A direct write that is over in the time that the store takes it to go on, or not begun: this process may have stood still.
async fn by<T>(until: Instant, writing: impl Future<Output = Done<T>>) -> Done<T> {
    if Instant::now() >= until {
        return Err(Refused(
            "TRYAGAIN nothing was written: the store was too slow to answer".into(),
        ));
    }
    let late = |_| {
        Err(Refused(format!(
            "{OUTCOME_UNKNOWN}: no answer from the backend within {DIRECT:?}"
        )))
    };
    tokio::time::timeout_at(until.into(), writing)
        .await
        .unwrap_or_else(late)
}

/// Before an attempt: longer each time, because what came between may be a large value on its way.
async fn pause(attempt: u32) {
    if attempt > 0 {
        tokio::time::sleep(Duration::from_millis(attempt.into())).await;
    }
}

fn contended() -> Refused {
    Refused(format!(
        "TRYAGAIN nothing was written: {RETRIES} times another write of the key came between"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_direct_write_that_comes_too_late_is_not_begun() {
        let begun = std::cell::Cell::new(false);
        let write = async || {
            begun.set(true);
            Ok(7)
        };
        let late = by(Instant::now(), write()).await.unwrap_err();
        assert!(late.is_try_again() && !begun.get(), "{late:?}");
        assert_eq!(by(Instant::now() + DIRECT, write()).await, Ok(7));
        let until = Instant::now() + Duration::from_millis(20);
        let unanswered = by::<()>(until, std::future::pending()).await;
        assert!(unanswered.unwrap_err().is_unknown());
    }

    #[test]
    fn what_was_carried_out_is_not_refused() {
        let why = Refused("OOM no room".into()).after("removed");
        assert!(why.0.starts_with("ERR removed, but"), "{why:?}");
        assert!(!why.is_try_again() && !why.is_unknown());
    }
}
