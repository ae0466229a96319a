//! Keys over shortstop's protocol; keys that no packet carries go to the backends.
//!
//! A key either fits a packet or does not, so it goes one way always: its writes and reads meet in
//! the store, or in the backend, and nothing has to keep the two apart. Past the store goes, of the
//! keys that it has, only what changes no value: a read of one that is longer than the cluster's
//! values may be, and the rest of a life that is longer than its field in the packet.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{Condition, Error, Value};

use super::{
    data::{
        DataResult, ErrorLine, KeyInfo, Life, OUTCOME_UNKNOWN, OnlyIf, Put, STRING, SetOutcome,
    },
    direct::{Direct, anothers_name},
    errands::Errands,
};
use crate::counters::{Counter, Counters};

/// Times that a read followed by a conditional write is done again because another write
/// came between.
const RETRIES: u32 = 32;
/// The longest time to live that its field in the packet can state.
const LONGEST_LIFE: Duration = Duration::from_millis(u32::MAX as u64);
/// A time to live that may be longer than that.
const LONG_LIFE: Duration = Duration::from_millis(u32::MAX as u64 - 10_000);

/// The data of a cluster, for one tenant.
pub(crate) struct Network {
    /// Whether keys reach the backend under the names that they have here.
    pub keeps_names: bool,
    pub errands: Errands,
    pub direct: Option<Direct>,
    pub counters: Arc<Counters>,
}

impl Network {
    /// The value of a key.
    pub async fn get(&self, key: &Bytes) -> DataResult<Option<Bytes>> {
        if let Some(direct) = self.past_the_store(key, &self.counters.direct_reads)? {
            return self.counted(direct.get(key).await);
        }
        match self.errands.get(key).await {
            Ok(found) => {
                self.count_read(&found);
                Ok(found.map(|value| value.bytes))
            }
            Err(error) => self.counted(self.direct_read(error)?.get(key).await),
        }
    }

    /// What a key has, without its value.
    pub async fn about(&self, key: &Bytes) -> DataResult<Option<KeyInfo>> {
        if let Some(direct) = self.past_the_store(key, &self.counters.direct_reads)? {
            return self.counted(direct.about(key).await);
        }
        match self.errands.about(key).await {
            Ok(found) => {
                self.count_found(found.is_some(), 1);
                if found.is_some_and(|about| about.from_switch) {
                    self.counters.answered_by_switch.add_one();
                }
                match (&self.direct, found) {
                    (Some(direct), Some(about)) if is_long(about.expires_in) => {
                        direct.about(key).await
                    }
                    (_, found) => Ok(found.map(|about| KeyInfo {
                        kind: STRING,
                        len: about.len as u64,
                        expires_in: about.expires_in,
                    })),
                }
            }
            Err(error) => self.counted(self.direct_read(error)?.about(key).await),
        }
    }

    /// Writes a value as Redis's SET does.
    pub async fn set(&self, key: &Bytes, value: &Bytes, put: Put) -> DataResult<SetOutcome> {
        if let Some(direct) = self.past_the_store(key, &self.counters.direct_writes)? {
            return direct.set(key, value, put).await;
        }
        if put.old || put.life == Life::Kept {
            return self.replace(key, value, put).await;
        }
        let condition = match put.only_if {
            OnlyIf::Always => Condition::Always,
            OnlyIf::Absent => Condition::Absent,
            OnlyIf::Present => Condition::Present,
        };
        let done = match put.life {
            Life::Over => self.remove(key, condition).await,
            Life::For(life) => self.write(key, value, Some(life), condition).await,
            Life::Forever | Life::Kept => self.write(key, value, None, condition).await,
        };
        let written = match done {
            Ok(()) => true,
            Err(WriteFailure::Mismatch) => false,
            Err(WriteFailure::Refused(why)) => return Err(why),
        };
        Ok(SetOutcome { written, old: None })
    }

    /// Removes a key; whether there was one.
    pub async fn delete(&self, key: &Bytes) -> DataResult<bool> {
        if let Some(direct) = self.past_the_store(key, &self.counters.direct_writes)? {
            return direct.delete(key).await;
        }
        self.errands.delete_if(key, Condition::Always).await.map_err(|error| self.refused(error))
    }

    /// Removes a key and gives the value that it had.
    pub async fn take(&self, key: &Bytes) -> DataResult<Option<Bytes>> {
        if let Some(direct) = self.past_the_store(key, &self.counters.direct_writes)? {
            return direct.take(key).await;
        }
        for attempt in 0..RETRIES {
            self.pause(attempt).await;
            let Some(value) = self.read(key).await? else { return Ok(None) };
            match self.errands.delete_if(key, Condition::Version(value.version)).await {
                Ok(true) => return Ok(Some(value.bytes)),
                Ok(false) | Err(Error::Mismatch { .. }) => self.counters.write_retries.add_one(),
                Err(error) => return Err(self.refused(error)),
            }
        }
        Err(contended())
    }
}

/// What becomes of a read that has no value.
pub(crate) enum FailedRead {
    /// The Redis behind the store knows better.
    PastTheStore,
    Refused(ErrorLine),
}

/// Why a write was not carried out.
enum WriteFailure {
    /// Its condition did not hold.
    Mismatch,
    Refused(ErrorLine),
}

impl Network {
    /// A write that depends on the value before: read, then write if it is still that version.
    async fn replace(&self, key: &Bytes, value: &Bytes, put: Put) -> DataResult<SetOutcome> {
        for attempt in 0..RETRIES {
            self.pause(attempt).await;
            let asked = Instant::now();
            let found = self.read(key).await?;
            let old = |found: Option<Value>| found.filter(|_| put.old).map(|value| value.bytes);
            let wanted = match put.only_if {
                OnlyIf::Always => true,
                OnlyIf::Absent => found.is_none(),
                OnlyIf::Present => found.is_some(),
            };
            if !wanted {
                return Ok(SetOutcome { written: false, old: old(found) });
            }
            let condition = match &found {
                Some(value) => Condition::Version(value.version),
                None => Condition::Absent,
            };
            let life = match put.life {
                Life::Forever | Life::Over => None,
                Life::For(life) => Some(life),
                // It has gone on meanwhile; a kept life must not become longer.
                Life::Kept => {
                    let left = found.as_ref().and_then(|value| value.expires_in);
                    let left = match &self.direct {
                        Some(direct) if is_long(left) => {
                            direct.about(key).await?.and_then(|about| about.expires_in)
                        }
                        _ => left,
                    };
                    left.map(|left| {
                        left.saturating_sub(asked.elapsed()).max(Duration::from_millis(1))
                    })
                }
            };
            let written = match put.life {
                Life::Over => self.remove(key, condition).await,
                _ => self.write(key, value, life, condition).await,
            };
            match written {
                Ok(()) => {
                    return Ok(SetOutcome { written: true, old: old(found) });
                }
                Err(WriteFailure::Mismatch) => self.counters.write_retries.add_one(),
                Err(WriteFailure::Refused(why)) => return Err(why),
            }
        }
        Err(contended())
    }

    /// What a write depends on that goes through the store.
    async fn read(&self, key: &Bytes) -> DataResult<Option<Value>> {
        match self.errands.get(key).await {
            Ok(found) => {
                self.count_read(&found);
                Ok(found)
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// What a write is whose life was over before it began: whatever is there goes.
    async fn remove(&self, key: &Bytes, condition: Condition) -> Result<(), WriteFailure> {
        match self.errands.delete_if(key, condition).await {
            Ok(true) => Ok(()),
            // There was nothing to remove, and there need not be.
            Ok(false) if matches!(condition, Condition::Always | Condition::Absent) => Ok(()),
            Ok(false) | Err(Error::Mismatch { .. }) => Err(WriteFailure::Mismatch),
            Err(error) => Err(WriteFailure::Refused(self.refused(error))),
        }
    }

    /// A write through the store.
    async fn write(
        &self,
        key: &Bytes,
        value: &Bytes,
        life: Option<Duration>,
        condition: Condition,
    ) -> Result<(), WriteFailure> {
        let longer = life.filter(|life| *life > LONGEST_LIFE);
        if longer.is_some() && self.direct.is_none() {
            return Err(WriteFailure::Refused(self.refused(Error::TimeToLive)));
        }
        let life = life.map(|life| life.min(LONGEST_LIFE));
        match self.errands.set_if(key, value, life, condition).await {
            Ok(_) => {}
            Err(Error::Mismatch { .. }) => return Err(WriteFailure::Mismatch),
            Err(error) => return Err(WriteFailure::Refused(self.refused(error))),
        }
        if let (Some(life), Some(direct)) = (longer, &self.direct) {
            self.counters.direct_writes.add_one();
            let left = LONG_LIFE.as_millis() as u64;
            direct.prolong(key, left, life).await.map_err(|ErrorLine(why)| {
                let written = format!("ERR written, but for 49 days and no longer: {why}");
                WriteFailure::Refused(ErrorLine(written))
            })?;
        }
        Ok(())
    }

    /// Before an attempt: longer each time, because what came between may be a large value on its
    /// way.
    async fn pause(&self, attempt: u32) {
        if attempt > 0 {
            self.errands.pause(Duration::from_millis(attempt.into())).await;
        }
    }

    /// Whether a key bears the name that another tenant's has in the backend.
    fn is_another_s(&self, key: &[u8]) -> bool {
        self.keeps_names && wire::backend_name(wire::TENANT_OPEN, key).is_none()
    }

    /// The backends, for a key that no packet carries; what goes to them is counted there.
    fn past_the_store(&self, key: &[u8], counter: &Counter) -> DataResult<Option<&Direct>> {
        if self.is_another_s(key) {
            return Err(anothers_name());
        }
        if (1..=wire::MAX_KEY).contains(&key.len()) {
            return Ok(None);
        }
        let direct = self.direct.as_ref();
        let direct = direct.ok_or_else(|| self.refused(Error::KeyLength(key.len())))?;
        counter.add_one();
        Ok(Some(direct))
    }

    /// The backends, if the store says in this error of a read that they know better: the value is
    /// longer than it hands out, or no string.
    fn direct_read(&self, error: Error) -> DataResult<&Direct> {
        match (&self.direct, &error) {
            (Some(direct), error) if is_past_the_store(error) => {
                self.counters.direct_reads.add_one();
                Ok(direct)
            }
            _ => Err(self.refused(error)),
        }
    }

    fn counted<T>(&self, found: DataResult<Option<T>>) -> DataResult<Option<T>> {
        if let Ok(found) = &found {
            self.count_found(found.is_some(), 1);
        }
        found
    }

    fn count_read(&self, found: &Option<Value>) {
        self.count_found(found.is_some(), 1);
        if found.as_ref().is_some_and(|value| value.from_switch) {
            self.counters.answered_by_switch.add_one();
        }
    }

    /// So many reads found a key, or that there is none.
    pub fn count_found(&self, found: bool, reads: usize) {
        let Counters { keyspace_hits, keyspace_misses, .. } = &*self.counters;
        let counter = if found { keyspace_hits } else { keyspace_misses };
        counter.add(reads as u64);
    }

    /// Whether a packet can ask for this key.
    pub fn goes_by_packet(&self, key: &[u8]) -> bool {
        (1..=wire::MAX_KEY).contains(&key.len()) && !self.is_another_s(key)
    }

    /// What becomes of a read by a packet that has no value.
    pub fn failed_read(&self, error: Error) -> FailedRead {
        if self.direct.is_some() && is_past_the_store(&error) {
            return FailedRead::PastTheStore;
        }
        FailedRead::Refused(self.refused(error))
    }

    /// The client's error as a Redis client should see it.
    fn refused(&self, error: Error) -> ErrorLine {
        ErrorLine(match &error {
            Error::KeyLength(_) | Error::TimeToLive => {
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
            Error::Timeout { .. }
            | Error::Backend { write: false, .. }
            | Error::NotWhole { .. }
            | Error::TooManyInFlight { .. }
            | Error::Socket { .. } => {
                format!("TRYAGAIN {error}")
            }
            Error::NoMemory { .. } => {
                self.counters.memory_refusals.add_one();
                format!("OOM {error} (--max-memory)")
            }
            Error::Denied { .. } => format!("NOPERM {error}"),
            Error::Refused { words, .. } => passed_on(words),
            _ => format!("ERR {error}"),
        })
    }
}

fn is_past_the_store(error: &Error) -> bool {
    match error {
        Error::TooLarge { .. } => true,
        Error::Refused { words, .. } => words.starts_with("WRONGTYPE "),
        _ => false,
    }
}

/// Codes of a backend that mean the store's connection, and that a client would take for its own:
/// it would give a password again, or follow to another server.
const OF_THE_STORE: [&str; 6] = ["ASK", "DENIED", "MOVED", "NOAUTH", "NOPERM", "WRONGPASS"];

/// What the backend said, as a client may hear it.
fn passed_on(words: &str) -> String {
    let code = words.split(' ').next().unwrap_or_default();
    match OF_THE_STORE.contains(&code) {
        true => format!("ERR the backend refuses the store: {words}"),
        false => words.into(),
    }
}

fn is_long(expires_in: Option<Duration>) -> bool {
    expires_in.is_some_and(|left| left >= LONG_LIFE)
}

fn contended() -> ErrorLine {
    ErrorLine(format!(
        "TRYAGAIN nothing was written: {RETRIES} times another write of the key came between"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_backend_says_is_passed_on_unless_it_is_meant_for_the_store() {
        let oom = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(passed_on(oom), oom);
        let moved = passed_on("MOVED 866 10.0.0.1:7001");
        assert_eq!(moved, "ERR the backend refuses the store: MOVED 866 10.0.0.1:7001");
        assert_eq!(passed_on(""), "");
    }

    #[test]
    fn past_the_store_goes_only_what_the_store_says() {
        let store = "127.0.0.1:7117".parse().unwrap();
        let refused = |words: &str| Error::Refused { store, words: words.into(), write: false };
        assert!(is_past_the_store(&Error::TooLarge { store, len: 0, write: false }));
        assert!(is_past_the_store(&refused("WRONGTYPE Operation against a key")));
        assert!(!is_past_the_store(&refused("LOADING Redis is loading")));
        assert!(!is_past_the_store(&Error::Backend { store, write: false }), "it may be lent");
    }

    #[test]
    fn what_was_carried_out_is_not_refused() {
        let why = ErrorLine("OOM no room".into()).after("removed");
        assert_eq!(why.0, "ERR removed, but the value before cannot be given: OOM no room");
    }
}
