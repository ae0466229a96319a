//! The state in one redb file of this machine.
//!
//! redb takes nothing more after one error of the disk. So the file is closed after any error, and
//! opened anew for whatever comes next: it is as the last transaction left it that was carried out.

use std::{
    fs::{DirBuilder, OpenOptions, Permissions},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ::redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use bytes::Bytes;
use decide::{ItemKey, SwitchId};

use super::{Batch, FORMAT, LoadedState, StateError};

/// `format` and `term`.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const ROWS: TableDefinition<&str, &[u8]> = TableDefinition::new("rows");
/// Switch id (2 bytes), tenant (4 bytes), both big endian, and the key.
const ITEMS: TableDefinition<&[u8], ()> = TableDefinition::new("items");

/// Opens the database in a file.
pub(super) type Opener = Box<dyn Fn(&Path) -> Result<Database, DatabaseError> + Send + Sync>;

/// The state file.
pub(super) struct File {
    /// None after an error.
    database: Mutex<Option<Database>>,
    open: Opener,
    path: PathBuf,
}

impl File {
    /// Opens `control.redb` in `directory`; both are made if they are not there. Only their owner
    /// can read what is made: it holds the tenants' secrets.
    pub(super) fn open(directory: &Path) -> Result<File, StateError> {
        File::open_by(directory, Box::new(|path| Database::create(path)))
    }

    /// Likewise, by another way to the disk.
    pub(super) fn open_by(directory: &Path, open: Opener) -> Result<File, StateError> {
        let path = directory.join("control.redb");
        let io = |path: &Path, e: &dyn std::fmt::Display| StateError::Io {
            path: path.into(),
            reason: format!("{e}; name a directory that this user may write to with --state"),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|e| io(directory, &e))?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(io(&path, &e)),
            _ => {}
        }
        let file = File { database: Mutex::default(), open, path };
        let found = file.with(prepare)?;
        if found != FORMAT {
            return Err(StateError::Format {
                place: file.path.display().to_string(),
                found: found.to_string(),
            });
        }
        file.close_to_others()?;
        Ok(file)
    }

    /// Does something with the database; after an error, of it or of what was done before, it is
    /// opened anew.
    fn with<R>(
        &self,
        work: impl FnOnce(&Database) -> Result<R, ::redb::Error>,
    ) -> Result<R, StateError> {
        let mut open = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match open.take() {
            Some(database) => database,
            None => self.open_anew()?,
        };
        match work(&database) {
            Ok(done) => {
                *open = Some(database);
                Ok(done)
            }
            Err(error) => {
                drop(database);
                self.forget_pages();
                Err(self.io(&error))
            }
        }
    }

    fn open_anew(&self) -> Result<Database, StateError> {
        // Made once only: one that is gone is not to be followed by one that knows nothing.
        std::fs::metadata(&self.path).map_err(|e| self.io(&e))?;
        (self.open)(&self.path).map_err(|e| match e {
            DatabaseError::DatabaseAlreadyOpen => StateError::Locked(self.path.clone()),
            other => self.io(&other),
        })
    }

    /// A kernel that could not write pages takes them for written. What is opened next is what lies
    /// on the disk, not what should have.
    fn forget_pages(&self) {
        use rustix::fs::{Advice, fadvise};
        let forget = |file| fadvise(&file, 0, None, Advice::DontNeed).map_err(Into::into);
        if let Err(error) = std::fs::File::open(&self.path).and_then(forget) {
            tracing::debug!("{}: its pages stay in memory: {error}", self.path.display());
        }
    }

    /// A file that was copied here may be readable by all.
    fn close_to_others(&self) -> Result<(), StateError> {
        let change = || {
            let mode = std::fs::metadata(&self.path)?.permissions().mode();
            if mode & 0o077 != 0 {
                std::fs::set_permissions(&self.path, Permissions::from_mode(0o600))?;
            }
            Ok::<_, std::io::Error>(())
        };
        change().map_err(|e| StateError::Io {
            path: self.path.clone(),
            reason: format!("others can read this file, and that cannot be changed: {e}"),
        })
    }

    /// Begins a term: one more than the last, durably.
    pub(super) fn next_term(&self) -> Result<u64, StateError> {
        self.with(|database| {
            let write = database.begin_write()?;
            let term = {
                let mut meta = write.open_table(META)?;
                let term = meta.get("term")?.map_or(0, |term| term.value()) + 1;
                meta.insert("term", term)?;
                term
            };
            write.commit()?;
            Ok(term)
        })
    }

    /// The leader of `term` has the next one begin above `floor`.
    pub(super) fn begin_above(&self, term: u64, floor: u64) -> Result<(), StateError> {
        let began = self.with(|database| {
            let write = database.begin_write()?;
            let newest = write.open_table(META)?.get("term")?.map(|t| t.value());
            if newest != Some(term) {
                return Ok(false);
            }
            write.open_table(META)?.insert("term", floor.max(term))?;
            write.commit()?;
            Ok(true)
        })?;
        began.then_some(()).ok_or(StateError::Deposed)
    }

    /// Reads everything. Items that make no sense are left out.
    pub(super) fn load(&self) -> Result<LoadedState, StateError> {
        self.with(read)
    }

    /// Writes a batch of the leader of `term`, and waits until it is on the disk.
    pub(super) fn write(&self, term: u64, batch: &Batch) -> Result<(), StateError> {
        batch.check()?;
        let written = self.with(|database| commit(database, term, batch))?;
        written.then_some(()).ok_or(StateError::Deposed)
    }

    fn io(&self, error: &dyn std::fmt::Display) -> StateError {
        StateError::Io { path: self.path.clone(), reason: error.to_string() }
    }
}

/// Makes the tables, unless the file is of another format; the format that it has.
fn prepare(database: &Database) -> Result<u64, ::redb::Error> {
    let write = database.begin_write()?;
    let found = write.open_table(META)?.get("format")?.map(|format| format.value());
    if let Some(other) = found.filter(|found| *found != FORMAT) {
        // The transaction is given up: nothing of the file changes.
        return Ok(other);
    }
    write.open_table(META)?.insert("format", FORMAT)?;
    write.open_table(ROWS)?;
    write.open_table(ITEMS)?;
    write.commit()?;
    Ok(FORMAT)
}

fn read(database: &Database) -> Result<LoadedState, ::redb::Error> {
    let read = database.begin_read()?;
    let mut memory = LoadedState::default();
    for row in read.open_table(ROWS)?.iter()? {
        let (key, value) = row?;
        memory.rows.insert(key.value().into(), value.value().to_vec());
    }
    for row in read.open_table(ITEMS)?.iter()? {
        let (bytes, _) = row?;
        if let Some((switch, key)) = parse_item(bytes.value()) {
            memory.items.entry(switch).or_default().insert(key);
        }
    }
    Ok(memory)
}

/// False if a later term has begun.
fn commit(database: &Database, term: u64, batch: &Batch) -> Result<bool, ::redb::Error> {
    let write = database.begin_write()?;
    let newest = write.open_table(META)?.get("term")?.map(|t| t.value());
    if newest != Some(term) {
        return Ok(false);
    }
    {
        let mut rows = write.open_table(ROWS)?;
        for (key, value) in batch.rows() {
            match value {
                Some(value) => rows.insert(key.as_str(), value.as_slice())?,
                None => rows.remove(key.as_str())?,
            };
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
    Ok(true)
}

fn item_bytes(switch: SwitchId, key: &ItemKey) -> Vec<u8> {
    [&switch.to_be_bytes()[..], &key.tenant.to_be_bytes(), &key.key].concat()
}

fn parse_item(bytes: &[u8]) -> Option<(SwitchId, ItemKey)> {
    let (switch, rest) = bytes.split_first_chunk()?;
    let (tenant, key) = rest.split_first_chunk()?;
    let fits = (1..=wire::MAX_KEY).contains(&key.len());
    fits.then(|| {
        let key = ItemKey { tenant: u32::from_be_bytes(*tenant), key: Bytes::copy_from_slice(key) };
        (u16::from_be_bytes(*switch), key)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::{
            InMemory,
            faulty::{Fault, FaultyDisk},
        },
        *,
    };

    fn key(n: u8) -> ItemKey {
        ItemKey { tenant: 7, key: vec![n; usize::from(n) + 1].into() }
    }

    fn rows(rows: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let owned = |(key, value): &(&str, &str)| (key.to_string(), value.as_bytes().to_vec());
        rows.iter().map(owned).collect()
    }

    #[test]
    fn remembers_what_was_written_and_counts_terms() {
        let directory = tempfile::tempdir().unwrap();
        // What a simulation has in its place remembers the same.
        let mut in_memory = InMemory::default();
        {
            let file = File::open(directory.path()).unwrap();
            let term = file.next_term().unwrap();
            assert_eq!((term, in_memory.next_term()), (1, 1));
            let mut batch = Batch::default();
            batch.put("switch/3", &"three");
            batch.put("topology", &1);
            batch.put("tenant/7", &7);
            batch.items = (0..10).map(|n| (3, key(n), true)).collect();
            file.write(term, &batch).unwrap();
            in_memory.write(term, &batch).unwrap();
            let mut batch = Batch::default();
            batch.delete("topology");
            batch.put("tenant/7", &8);
            batch.items = vec![(3, key(0), false), (4, key(1), true)];
            file.write(term, &batch).unwrap();
            in_memory.write(term, &batch).unwrap();
        }
        let file = File::open(directory.path()).unwrap();
        let memory = file.load().unwrap();
        assert_eq!(memory, in_memory.load());
        let expected = [("switch/3", "\"three\""), ("tenant/7", "8")];
        assert_eq!(memory.rows, rows(&expected));
        assert_eq!(memory.items[&3], (1..10).map(key).collect());
        assert_eq!(memory.items[&4], [key(1)].into_iter().collect());
        assert_eq!(file.next_term().unwrap(), 2);
        assert_eq!(in_memory.next_term(), 2);
        let nothing = Batch::default();
        for late in [file.write(1, &nothing), in_memory.write(1, &nothing)] {
            assert!(matches!(late, Err(StateError::Deposed)), "{late:?}");
        }
    }

    #[test]
    fn a_lead_can_have_the_next_begin_above_any_term() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open(directory.path()).unwrap();
        assert_eq!(file.next_term().unwrap(), 1);
        file.begin_above(1, 41).unwrap();
        let late = file.write(1, &Batch::default());
        assert!(matches!(late, Err(StateError::Deposed)), "{late:?}");
        assert!(matches!(file.begin_above(1, 50), Err(StateError::Deposed)));
        assert_eq!(file.next_term().unwrap(), 42);
        file.begin_above(42, 3).unwrap();
        assert_eq!(file.next_term().unwrap(), 43);
    }

    #[test]
    fn a_disk_that_was_full_is_written_again_once_it_has_room() {
        let (directory, disk) = (tempfile::tempdir().unwrap(), FaultyDisk::default());
        let file = File::open_by(directory.path(), disk.opener()).unwrap();
        let term = file.next_term().unwrap();
        let rows_of = |n: u32| {
            let mut batch = Batch::default();
            batch.put(format!("tenant/{n}"), &n);
            batch
        };
        file.write(term, &rows_of(1)).unwrap();
        for fault in [Fault::Full, Fault::NotSynced] {
            disk.fails_by(Some(fault));
            for _ in 0..3 {
                let error = file.write(term, &rows_of(2)).unwrap_err();
                assert!(matches!(error, StateError::Io { .. }), "{error}");
                assert!(error.to_string().contains("control.redb"), "{error}");
            }
            disk.fails_by(None);
            assert_eq!(file.load().unwrap().rows["tenant/1"], b"1");
            file.write(term, &rows_of(3)).unwrap();
        }
        let remembered = file.load().unwrap().rows;
        assert_eq!(remembered["tenant/3"], b"3");
        drop(file);
        let file = File::open(directory.path()).unwrap();
        assert_eq!(file.load().unwrap().rows, remembered);
        assert_eq!(file.next_term().unwrap(), term + 1);
    }

    #[test]
    fn a_file_in_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _file = File::open(directory.path()).unwrap();
        let second = File::open(directory.path());
        assert!(matches!(second.err(), Some(StateError::Locked(_))));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.redb");
        std::fs::write(&path, b"precious").unwrap();
        let error = File::open(directory.path()).err().unwrap().to_string();
        assert!(error.contains("control.redb"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn only_the_owner_can_read_it() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let path = directory.join("control.redb");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        drop(File::open(&directory).unwrap());
        assert_eq!((mode(&directory), mode(&path)), (0o700, 0o600));
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(File::open(&directory).unwrap());
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn another_format_is_refused() {
        for format in [1, 2, 4] {
            let directory = tempfile::tempdir().unwrap();
            let database = Database::create(directory.path().join("control.redb")).unwrap();
            let write = database.begin_write().unwrap();
            write.open_table(META).unwrap().insert("format", format).unwrap();
            write.commit().unwrap();
            drop(database);
            let error = File::open(directory.path()).err().unwrap().to_string();
            assert!(
                error.contains(&format!("format {format}")) && error.contains("reads format 3"),
                "{error}"
            );
        }
    }
}
