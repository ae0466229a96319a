//! A disk that takes nothing for a while, for tests.

use std::{
    io::{Error, ErrorKind},
    path::Path,
    sync::{Arc, Mutex},
};

use ::redb::{Builder, Database, DatabaseError, StorageBackend, backends::FileBackend};

use super::redb::Opener;

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It has no room.
    Full,
    /// It takes what is written, and cannot say that it is safe.
    NotSynced,
}

/// A disk with a fault, or with none.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyDisk(Arc<Mutex<Option<Fault>>>);

impl FaultyDisk {
    /// From now on.
    pub(crate) fn fails_by(&self, fault: Option<Fault>) {
        *self.0.lock().unwrap() = fault;
    }

    /// Opens files on it.
    pub(super) fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move |path| disk.open(path))
    }

    fn open(&self, path: &Path) -> Result<Database, DatabaseError> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
        let file = FileBackend::new(file.map_err(DatabaseError::from)?)?;
        Builder::new().create_with_backend(OnFaultyDisk { file, disk: self.clone() })
    }

    fn check(&self, faults: &[Fault]) -> Result<(), Error> {
        let fault = *self.0.lock().unwrap();
        match fault.is_some_and(|fault| faults.contains(&fault)) {
            true => Err(Error::from(ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }
}

/// A file there.
#[derive(Debug)]
struct OnFaultyDisk {
    file: FileBackend,
    disk: FaultyDisk,
}

impl StorageBackend for OnFaultyDisk {
    fn len(&self) -> Result<u64, Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.disk.check(&[Fault::Full])?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.disk.check(&[Fault::Full, Fault::NotSynced])?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.disk.check(&[Fault::Full])?;
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), Error> {
        self.file.close()
    }
}
