//! The tables of a switch in this process. Each behaves as the kernel's of its kind: array, table
//! with keys, or ring. Programs that run as native code have the same memory (`bpf/user`).

use std::{
    ffi::{CString, c_void},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::clock::Clock;
use crate::ffi;

type Result<T> = libbpf_rs::Result<T>;

/// All tables of a switch. They live as long as anybody has one of them.
pub struct LocalMaps {
    raw: NonNull<ffi::Switch>,
    name: String,
    /// Names of the tables.
    tables: Vec<String>,
    clock: Clock,
}

// SAFETY: tables are shared as they are between the kernel's CPUs and an agent: by atomics, and by
// locks within.
unsafe impl Send for LocalMaps {}
// SAFETY: as above.
unsafe impl Sync for LocalMaps {}

impl LocalMaps {
    /// The tables of these names that `raw` has, of a switch called `name`.
    ///
    /// # Safety
    /// `user_switch_new` made `raw`, and nobody else frees it.
    pub(crate) unsafe fn of(
        raw: NonNull<ffi::Switch>,
        name: &str,
        tables: Vec<String>,
        clock: Clock,
    ) -> LocalMaps {
        LocalMaps { raw, name: name.into(), tables, clock }
    }

    /// The switch's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What shows its programs the time.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// CPUs that the tables have room for.
    pub(crate) fn cpus(&self) -> u32 {
        // SAFETY: made once, never changed.
        unsafe { self.raw.as_ref() }.cpus
    }

    pub(crate) fn raw(&self) -> *mut ffi::Switch {
        self.raw.as_ptr()
    }

    /// Names of the tables that a discipline of that name has of its own.
    pub(crate) fn tables_of(&self, discipline: &str) -> Vec<String> {
        let prefix = format!("{discipline}_");
        let own = self.tables.iter().filter(|name| name.starts_with(&prefix));
        own.cloned().collect()
    }

    /// Names of all tables.
    pub(crate) fn names(&self) -> &[String] {
        &self.tables
    }

    /// A table by its name.
    pub(crate) fn table(self: &Arc<LocalMaps>, name: &str) -> Option<LocalMap> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name outlives the call.
        let found = unsafe { ffi::user_table_named(self.raw.as_ptr(), name.as_ptr()) };
        Some(LocalMap { maps: self.clone(), raw: NonNull::new(found)? })
    }

    /// Waits until no program can still see what was removed before.
    pub(crate) fn quiesce(&self) {
        // SAFETY: it lives.
        unsafe { ffi::user_quiesce(self.raw.as_ptr()) };
    }
}

impl Drop for LocalMaps {
    fn drop(&mut self) {
        // SAFETY: made by `user_switch_new`; whoever reads it holds an `Arc`.
        unsafe { ffi::user_switch_free(self.raw.as_ptr()) };
    }
}

/// One table, whatever its kind.
pub(crate) struct LocalMap {
    maps: Arc<LocalMaps>,
    raw: NonNull<ffi::Table>,
}

// SAFETY: as for all tables: elements are atomics to whoever shares them, and tables with keys
// lock.
unsafe impl Send for LocalMap {}
// SAFETY: as above.
unsafe impl Sync for LocalMap {}

/// Bytes of the longest record of a ring.
const RECORD: usize = 512;

impl LocalMap {
    fn table(&self) -> &ffi::Table {
        // SAFETY: a part of the switch; made once, never changed.
        unsafe { self.raw.as_ref() }
    }

    pub fn kind(&self) -> u32 {
        self.table().kind
    }

    pub fn key_size(&self) -> u32 {
        self.table().key_size
    }

    pub fn value_size(&self) -> u32 {
        self.table().value_size
    }

    pub fn max_entries(&self) -> u32 {
        self.table().max_entries
    }

    /// Bytes from one element of an array to the next.
    pub fn stride(&self) -> usize {
        self.table().stride as usize
    }

    /// An element of an array; those of the second CPU follow those of the first.
    pub fn at(&self, index: usize) -> *mut u8 {
        let table = self.table();
        // SAFETY: within the table, which is `max_entries` long for each CPU.
        unsafe { table.base.add(index * table.stride as usize) }
    }

    /// Bytes of all elements of an array, those of all CPUs; none: it has keys in the place of
    /// numbers.
    pub(crate) fn bytes_of_array(&self) -> Option<usize> {
        if self.hash().is_some() {
            return None;
        }
        let per_cpu = self.kind() == libbpf_rs::MapType::PercpuArray as u32;
        let cpus = if per_cpu { self.maps.cpus() } else { 1 };
        Some(self.stride() * self.max_entries() as usize * cpus as usize)
    }

    fn hash(&self) -> Option<*mut c_void> {
        let hash = self.table().hash;
        (!hash.is_null()).then_some(hash)
    }

    fn index(&self, key: &[u8]) -> Option<usize> {
        let index = u32::from_ne_bytes(*key.first_chunk()?);
        (index < self.max_entries()).then_some(index as usize)
    }

    fn copy(&self, from: *const u8) -> Vec<u8> {
        let mut value = vec![0; self.value_size() as usize];
        // SAFETY: values have that size. Programs may change one meanwhile, as they may while the
        // kernel copies it.
        unsafe { std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), value.len()) };
        value
    }

    pub fn lookup(&self, key: &[u8]) -> Option<Vec<u8>> {
        assert_eq!(key.len(), self.key_size() as usize, "a key of the table");
        let found = match self.hash() {
            // SAFETY: the key has the table's length.
            Some(hash) => unsafe { ffi::user_hash_lookup(hash, key.as_ptr().cast()) },
            None => self.at(self.index(key)?).cast(),
        };
        (!found.is_null()).then(|| self.copy(found.cast()))
    }

    /// The values of all CPUs.
    pub fn lookup_percpu(&self, key: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (index, each) = (self.index(key)?, self.max_entries() as usize);
        let cpus = 0..self.maps.cpus() as usize;
        Some(cpus.map(|cpu| self.copy(self.at(cpu * each + index))).collect())
    }

    /// Of an array that each CPU has its own of: the first u64 of each of the first so many
    /// elements, over all CPUs.
    pub fn sums(&self, elements: u32) -> Vec<u64> {
        let each = self.max_entries() as usize;
        let first = |cpu, index| {
            // SAFETY: an element begins on 8 bytes and has as many or more. Programs may change it
            // meanwhile, atomically or as they may while the kernel copies it.
            unsafe { AtomicU64::from_ptr(self.at(cpu * each + index).cast()) }.load(Relaxed)
        };
        let cpus = self.maps.cpus() as usize;
        let indices = 0..each.min(elements as usize);
        indices.map(|index| (0..cpus).map(|cpu| first(cpu, index)).sum()).collect()
    }

    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<()> {
        assert_eq!(key.len(), self.key_size() as usize, "a key of the table");
        assert_eq!(value.len(), self.value_size() as usize, "a value of it");
        let Some(hash) = self.hash() else {
            let index = self.index(key).ok_or_else(|| error(-libc::E2BIG))?;
            // SAFETY: an element has that size.
            unsafe {
                std::ptr::copy_nonoverlapping(value.as_ptr(), self.at(index), value.len());
            }
            return Ok(());
        };
        // SAFETY: both have the table's lengths.
        let code =
            unsafe { ffi::user_hash_update(hash, key.as_ptr().cast(), value.as_ptr().cast(), 0) };
        if code == 0 { Ok(()) } else { Err(error(code as i32)) }
    }

    pub fn delete(&self, key: &[u8]) -> Result<()> {
        assert_eq!(key.len(), self.key_size() as usize, "a key of the table");
        let hash = self.hash().ok_or_else(|| error(-libc::EINVAL))?;
        // SAFETY: the key has the table's length.
        match unsafe { ffi::user_hash_delete(hash, key.as_ptr().cast()) } {
            0 => Ok(()),
            code => Err(error(code as i32)),
        }
    }

    pub fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.lookup(key);
        if value.is_some() {
            self.delete(key)?;
        }
        Ok(value)
    }

    /// Every key, in the order of places.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let Some(hash) = self.hash() else {
            return (0..self.max_entries()).map(|index| index.to_ne_bytes().to_vec()).collect();
        };
        let mut keys = vec![];
        for place in 0.. {
            let (mut key, mut value, mut end) = (std::ptr::null_mut(), std::ptr::null_mut(), false);
            // SAFETY: the out parameters live through the call.
            let is_used = unsafe {
                ffi::user_hash_at(hash, place, &raw mut key, &raw mut value, &raw mut end)
            };
            if end {
                break;
            }
            if is_used {
                let mut bytes = vec![0; self.key_size() as usize];
                // SAFETY: keys have that size.
                unsafe {
                    std::ptr::copy_nonoverlapping(key.cast(), bytes.as_mut_ptr(), bytes.len());
                }
                keys.push(bytes);
            }
        }
        keys
    }

    /// Takes the oldest record of a ring.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; RECORD];
        // SAFETY: as much room as it says.
        let len = unsafe {
            ffi::user_ring_take(self.raw.as_ptr(), bytes.as_mut_ptr().cast(), RECORD as u32)
        };
        bytes.truncate(len as usize);
        (len > 0).then_some(bytes)
    }
}

fn error(code: i32) -> libbpf_rs::Error {
    libbpf_rs::Error::from_raw_os_error(-code)
}
