//! What disciplines keep of their tenants' keys, over changes of the controller and the end of
//! the tenant.

use std::{collections::BTreeMap, str::FromStr};

use bytes::Bytes;
use decide::{KEPT_MAX, KEPT_MOST, Key};
use serde::{Deserialize, Serialize};
use wire::Secret;

use super::{journal::Journal, memories::MemoryOwner};

/// Where a row is: keys may be longer than rows' names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptPlace {
    whose: MemoryOwner,
    hash: String,
}

impl KeptPlace {
    fn new(whose: &MemoryOwner, key: &[u8]) -> KeptPlace {
        let hash = Secret::NONE.key_hash(whose.tenant, key);
        KeptPlace { whose: whose.clone(), hash: hex::encode(hash.0) }
    }

    fn row(&self) -> String {
        format!("kept/{}/{}/{}", self.whose.tenant, self.whose.family, self.hash)
    }
}

impl FromStr for KeptPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<KeptPlace, String> {
        let (whose, hash) = text.rsplit_once('/').ok_or("expected TENANT/DISCIPLINE/KEY")?;
        Ok(KeptPlace { whose: whose.parse()?, hash: hash.into() })
    }
}

/// A key and what is kept of it, as hex digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptRow {
    #[serde(with = "hex")]
    key: Vec<u8>,
    #[serde(with = "hex")]
    bytes: Vec<u8>,
}

/// All that is kept.
#[derive(Debug, Default)]
pub struct KeptValues {
    by_whose: BTreeMap<MemoryOwner, BTreeMap<Key, Bytes>>,
    /// The journal's position behind the last row that went.
    safe_after: u64,
}

impl KeptValues {
    /// As remembered.
    pub fn new(rows: Vec<(KeptPlace, KeptRow)>) -> KeptValues {
        let mut kept = KeptValues::default();
        for (at, KeptRow { key, bytes }) in rows {
            let of = kept.by_whose.entry(at.whose).or_default();
            of.insert(key.into(), bytes.into());
        }
        kept
    }

    /// All of a tenant, by key.
    pub fn of(&self, whose: &MemoryOwner) -> Vec<(Key, Bytes)> {
        let all = self.by_whose.get(whose).into_iter().flatten();
        all.map(|(key, bytes)| (key.clone(), bytes.clone())).collect()
    }

    /// Keeps this of a key, or nothing any longer.
    ///
    /// # Errors
    /// One line: it is too long, or of too many keys.
    pub fn keep(
        &mut self,
        whose: MemoryOwner,
        key: Key,
        bytes: Option<Bytes>,
        journal: &mut Journal,
    ) -> Result<(), String> {
        let at = KeptPlace::new(&whose, &key);
        let of = self.by_whose.entry(whose).or_default();
        let Some(bytes) = bytes else {
            if of.remove(&key).is_some() {
                journal.delete(at.row());
                self.safe_after = journal.position();
            }
            return Ok(());
        };
        let length = bytes.len();
        if length > KEPT_MAX {
            return Err(format!("{length} bytes of a key to keep, at most {KEPT_MAX} are taken"));
        }
        if of.get(&key) == Some(&bytes) {
            return Ok(());
        }
        if of.len() >= KEPT_MOST && !of.contains_key(&key) {
            return Err(format!("something is kept of {KEPT_MOST} keys already"));
        }
        let row = KeptRow { key: key.to_vec(), bytes: bytes.to_vec() };
        journal.put(at.row(), &row);
        of.insert(key, bytes);
        Ok(())
    }

    /// From which position of the journal on everything may be sent that was asked for after
    /// something of a key was no longer to be kept: whoever removes the key then has nobody who
    /// would say so again.
    pub fn safe_after(&self) -> u64 {
        self.safe_after
    }
}
