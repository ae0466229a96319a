//! What the controller remembers over a restart, in one redb file: the switches it knows and what each
//! was last known to hold. Written in batches, each of them whole or not at all.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use super::convert;
use crate::{ItemKey, SwitchId};

const FORMAT: u64 = 1;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Switch id to [`Known`] as JSON.
const SWITCHES: TableDefinition<u16, &[u8]> = TableDefinition::new("switches");
/// Switch id (2 bytes), tenant (4 bytes), both big endian, and the key.
const ITEMS: TableDefinition<&[u8], ()> = TableDefinition::new("items");

/// What is remembered of a switch beside its items.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// As the switch called itself.
    pub name: String,
    /// Pages of cache memory.
    pub pages: u32,
    /// Its last threshold.
    pub threshold: u32,
}

/// Everything that is remembered.
#[derive(Debug, Default, PartialEq)]
pub struct Memory {
    /// The switches.
    pub switches: BTreeMap<SwitchId, Known>,
    /// What each of them holds.
    pub items: BTreeMap<SwitchId, HashSet<ItemKey>>,
}

/// What changed since the last write.
#[derive(Debug, Default)]
pub struct Batch {
    /// Switches that are new or changed.
    pub switches: Vec<(SwitchId, Known)>,
    /// Keys that are now held (true) or no longer.
    pub items: Vec<(SwitchId, ItemKey, bool)>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty() && self.items.is_empty()
    }
}

/// Why the state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it open.
    #[error(
        "{0}: another controller uses this state file; stop it, or give this one another --state directory"
    )]
    Locked(PathBuf),
    /// Written by a version of this program that is not compatible.
    #[error("{path}: the state file has format {found}, this version reads format {FORMAT}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The directory or the file cannot be made, read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// The open state file.
pub struct State {
    database: Database,
    path: PathBuf,
}

impl State {
    /// Opens `control.redb` in `directory`; both are made if they are not there.
    ///
    /// # Errors
    /// If it is locked, of another format, or not accessible.
    pub fn open(directory: &Path) -> Result<State, StateError> {
        let path = directory.join("control.redb");
        std::fs::create_dir_all(directory).map_err(|e| StateError::Io {
            path: directory.into(),
            reason: e.to_string(),
        })?;
        let database = Database::create(&path).map_err(|e| match e {
            DatabaseError::DatabaseAlreadyOpen => StateError::Locked(path.clone()),
            other => StateError::Io {
                path: path.clone(),
                reason: other.to_string(),
            },
        })?;
        let state = State { database, path };
        let found = state.prepare().map_err(|e| state.io(e))?;
        if found != FORMAT {
            return Err(StateError::Format {
                path: state.path,
                found,
            });
        }
        Ok(state)
    }

    /// Makes the tables; the format of the file.
    fn prepare(&self) -> Result<u64, redb::Error> {
        let write = self.database.begin_write()?;
        let found = {
            let mut meta = write.open_table(META)?;
            let found = meta.get("format")?.map(|v| v.value());
            if found.is_none() {
                meta.insert("format", FORMAT)?;
            }
            write.open_table(SWITCHES)?;
            write.open_table(ITEMS)?;
            found.unwrap_or(FORMAT)
        };
        write.commit()?;
        Ok(found)
    }

    /// Reads everything. Entries that make no sense are left out.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn load(&self) -> Result<Memory, StateError> {
        self.read().map_err(|e| self.io(e))
    }

    fn read(&self) -> Result<Memory, redb::Error> {
        let read = self.database.begin_read()?;
        let mut memory = Memory::default();
        for row in read.open_table(SWITCHES)?.iter()? {
            let (id, known) = row?;
            if let Ok(known) = serde_json::from_slice(known.value()) {
                memory.switches.insert(id.value(), known);
            }
        }
        for row in read.open_table(ITEMS)?.iter()? {
            let (bytes, _) = row?;
            if let Some((switch, key)) = parse_item(bytes.value()) {
                memory.items.entry(switch).or_default().insert(key);
            }
        }
        Ok(memory)
    }

    /// Writes a batch and waits until it is on the disk.
    ///
    /// # Errors
    /// If it could not be written; then nothing of it was.
    pub fn write(&self, batch: &Batch) -> Result<(), StateError> {
        self.commit(batch).map_err(|e| self.io(e))
    }

    fn commit(&self, batch: &Batch) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut switches = write.open_table(SWITCHES)?;
            for (id, known) in &batch.switches {
                let json = serde_json::to_vec(known).expect("plain data is always valid JSON");
                switches.insert(id, json.as_slice())?;
            }
            let mut items = write.open_table(ITEMS)?;
            for (switch, key, held) in &batch.items {
                let bytes = item_bytes(*switch, key);
                if *held {
                    items.insert(bytes.as_slice(), ())?;
                } else {
                    items.remove(bytes.as_slice())?;
                }
            }
        }
        write.commit()?;
        Ok(())
    }

    fn io(&self, error: redb::Error) -> StateError {
        StateError::Io {
            path: self.path.clone(),
            reason: error.to_string(),
        }
    }
}

fn item_bytes(switch: SwitchId, key: &ItemKey) -> Vec<u8> {
    [
        &switch.to_be_bytes()[..],
        &key.tenant.to_be_bytes(),
        &key.key,
    ]
    .concat()
}

fn parse_item(bytes: &[u8]) -> Option<(SwitchId, ItemKey)> {
    let (switch, rest) = bytes.split_first_chunk()?;
    let (tenant, key) = rest.split_first_chunk()?;
    Some((
        u16::from_be_bytes(*switch),
        convert::item_key(u32::from_be_bytes(*tenant), key)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let key = |n: u8| ItemKey {
            tenant: 7,
            key: vec![n; usize::from(n) + 1].into(),
        };
        let known = Known {
            name: "rack 1".into(),
            pages: 4,
            threshold: 9,
        };
        {
            let state = State::open(directory.path()).unwrap();
            let items = (0..10).map(|n| (3, key(n), true)).collect();
            state
                .write(&Batch {
                    switches: vec![(3, known.clone())],
                    items,
                })
                .unwrap();
            let items = vec![(3, key(0), false), (4, key(1), true)];
            state
                .write(&Batch {
                    switches: vec![],
                    items,
                })
                .unwrap();
            assert!(matches!(
                State::open(directory.path()),
                Err(StateError::Locked(_))
            ));
        }
        let memory = State::open(directory.path()).unwrap().load().unwrap();
        assert_eq!(memory.switches, BTreeMap::from([(3, known)]));
        assert_eq!(memory.items[&3], (1..10).map(key).collect());
        assert_eq!(memory.items[&4], HashSet::from([key(1)]));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.redb");
        std::fs::write(&path, b"precious").unwrap();
        let error = State::open(directory.path()).err().unwrap().to_string();
        assert!(error.contains("control.redb"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
