//! Data in a table, for tests: it does what is asked after a few turns of other tasks, so that
//! answers become ready in another order than their commands came.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::task::yield_now;

use super::data::{Data, DataResult, ErrorLine, KeyInfo, Life, OnlyIf, Put, STRING, SetOutcome};

#[derive(Default)]
pub(crate) struct Fake {
    table: Mutex<HashMap<Bytes, (Bytes, Option<Duration>)>>,
    calls: AtomicU32,
}

/// A key that nothing can be done with.
pub(crate) const BROKEN: &[u8] = b"broken";

impl Fake {
    async fn turn(
        &self,
        key: &Bytes,
    ) -> DataResult<MutexGuard<'_, HashMap<Bytes, (Bytes, Option<Duration>)>>> {
        // 0 to 4 turns, differently for calls that follow one another.
        let turns = self.calls.fetch_add(1, Relaxed).wrapping_mul(7) % 5;
        for _ in 0..turns {
            yield_now().await;
        }
        if key == BROKEN {
            return Err(ErrorLine("ERR outcome unknown:\r\nbroken".into()));
        }
        Ok(self.table.lock().unwrap())
    }
}

impl Data for Fake {
    async fn get(&self, key: &Bytes) -> DataResult<Option<Bytes>> {
        Ok(self.turn(key).await?.get(key).map(|(value, _)| value.clone()))
    }

    async fn about(&self, key: &Bytes) -> DataResult<Option<KeyInfo>> {
        let table = self.turn(key).await?;
        Ok(table.get(key).map(|(value, life)| KeyInfo {
            kind: STRING,
            len: value.len() as u64,
            expires_in: *life,
        }))
    }

    async fn set(&self, key: &Bytes, value: &Bytes, put: Put) -> DataResult<SetOutcome> {
        let mut table = self.turn(key).await?;
        let before = table.get(key).cloned();
        let old = before.clone().map(|(value, _)| value).filter(|_| put.old);
        let written = match put.only_if {
            OnlyIf::Always => true,
            OnlyIf::Absent => before.is_none(),
            OnlyIf::Present => before.is_some(),
        };
        if written && put.life == Life::Over {
            table.remove(key);
        } else if written {
            let life = match put.life {
                Life::Forever | Life::Over => None,
                Life::For(life) => Some(life),
                Life::Kept => before.and_then(|(_, life)| life),
            };
            table.insert(key.clone(), (value.clone(), life));
        }
        Ok(SetOutcome { written, old })
    }

    async fn delete(&self, key: &Bytes) -> DataResult<bool> {
        Ok(self.turn(key).await?.remove(key).is_some())
    }

    async fn take(&self, key: &Bytes) -> DataResult<Option<Bytes>> {
        Ok(self.turn(key).await?.remove(key).map(|(value, _)| value))
    }
}
