//! What disciplines have remembered of their tenants, over changes of the controller and the end of
//! the tenant.

use std::{collections::BTreeMap, str::FromStr};

use bytes::Bytes;
use decide::REMEMBERED_MAX;
use serde::{Deserialize, Serialize};

use super::journal::Journal;

/// A tenant, and the name of the first discipline that shares the programs of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryOwner {
    pub tenant: u32,
    pub family: String,
}

impl FromStr for MemoryOwner {
    type Err = String;

    fn from_str(text: &str) -> Result<MemoryOwner, String> {
        let (tenant, family) = text.split_once('/').ok_or("expected TENANT/DISCIPLINE")?;
        Ok(MemoryOwner {
            tenant: tenant.parse().map_err(|e| format!("{e}"))?,
            family: family.into(),
        })
    }
}

fn row(whose: &MemoryOwner) -> String {
    format!("remembered/{}/{}", whose.tenant, whose.family)
}

/// The bytes as hex digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryRow {
    #[serde(with = "hex")]
    bytes: Vec<u8>,
}

/// All that is remembered.
#[derive(Debug, Default)]
pub struct Memories {
    by_whose: BTreeMap<MemoryOwner, Bytes>,
    /// The journal's position behind the last of them.
    safe_after: u64,
}

impl Memories {
    /// As remembered.
    pub fn new(rows: Vec<(MemoryOwner, MemoryRow)>) -> Memories {
        let rows = rows.into_iter().map(|(whose, row)| (whose, row.bytes.into()));
        Memories { by_whose: rows.collect(), safe_after: 0 }
    }

    /// What is remembered last; nothing if nothing is.
    pub fn of(&self, whose: &MemoryOwner) -> Bytes {
        self.by_whose.get(whose).cloned().unwrap_or_default()
    }

    /// Remembers this in the place of what was.
    ///
    /// # Errors
    /// One line: it is too long.
    pub fn remember(
        &mut self,
        whose: MemoryOwner,
        bytes: Bytes,
        journal: &mut Journal,
    ) -> Result<(), String> {
        if bytes.len() > REMEMBERED_MAX {
            let length = bytes.len();
            return Err(format!("{length} bytes to remember, at most {REMEMBERED_MAX} are taken"));
        }
        if self.by_whose.get(&whose) == Some(&bytes) {
            return Ok(());
        }
        let remembered = MemoryRow { bytes: bytes.to_vec() };
        journal.put(row(&whose), &remembered);
        self.safe_after = journal.position();
        self.by_whose.insert(whose, bytes);
        Ok(())
    }

    /// From which position of the journal on everything that was asked for after something was
    /// remembered may be sent.
    pub fn safe_after(&self) -> u64 {
        self.safe_after
    }
}
