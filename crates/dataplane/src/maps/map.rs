//! One table whose rows are read and written by key, in the kernel or in this process. A call is a
//! system call where it is the kernel's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::local::LocalMap;
use crate::writes::about_to_write;

type Result<T> = libbpf_rs::Result<T>;

/// A table that is reached row by row, in the kernel or in this process.
pub(crate) enum Map {
    Kernel(MapHandle),
    Native(LocalMap),
}

impl Map {
    pub fn map_type(&self) -> MapType {
        match self {
            Map::Kernel(map) => map.map_type(),
            Map::Native(table) => MapType::from(table.kind()),
        }
    }

    pub fn key_size(&self) -> u32 {
        match self {
            Map::Kernel(map) => map.key_size(),
            Map::Native(table) => table.key_size(),
        }
    }

    pub fn value_size(&self) -> u32 {
        match self {
            Map::Kernel(map) => map.value_size(),
            Map::Native(table) => table.value_size(),
        }
    }

    pub fn max_entries(&self) -> u32 {
        match self {
            Map::Kernel(map) => map.max_entries(),
            Map::Native(table) => table.max_entries(),
        }
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        match self {
            Map::Kernel(map) => map.keys().collect(),
            Map::Native(table) => table.keys(),
        }
    }

    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Map::Kernel(map) => map.lookup(key, MapFlags::ANY),
            Map::Native(table) => Ok(table.lookup(key)),
        }
    }

    pub fn lookup_percpu(&self, key: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        match self {
            Map::Kernel(map) => map.lookup_percpu(key, MapFlags::ANY),
            Map::Native(table) => Ok(table.lookup_percpu(key)),
        }
    }

    /// Of an array that each CPU has its own of: the first u64 of each of the first so many
    /// elements, over all CPUs. One system call reads all of them.
    pub fn sums(&self, elements: u32) -> Result<Vec<u64>> {
        match self {
            Map::Kernel(map) => {
                let words = (map.value_size() as usize).div_ceil(8);
                let of_cpus = libbpf_rs::num_possible_cpus()? * words;
                let values = lookup_first(map, elements, of_cpus)?;
                let elements = values.chunks_exact(of_cpus);
                Ok(elements.map(|values| values.iter().step_by(words).sum()).collect())
            }
            Map::Native(table) => Ok(table.sums(elements)),
        }
    }

    pub fn lookup_and_delete(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        about_to_write();
        match self {
            Map::Kernel(map) => map.lookup_and_delete(key),
            Map::Native(table) => table.lookup_and_delete(key),
        }
    }

    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<()> {
        about_to_write();
        match self {
            Map::Kernel(map) => map.update(key, value, MapFlags::ANY),
            Map::Native(table) => table.update(key, value),
        }
    }

    pub fn delete(&self, key: &[u8]) -> Result<()> {
        about_to_write();
        match self {
            Map::Kernel(map) => map.delete(key),
            Map::Native(table) => table.delete(key),
        }
    }
}

/// The values of the first so many elements of an array, in their order, each of so many words.
fn lookup_first(map: &MapHandle, elements: u32, words: usize) -> Result<Vec<u64>> {
    let mut count = elements.min(map.max_entries());
    let mut keys = vec![0u32; count as usize];
    let mut values = vec![0u64; count as usize * words];
    let mut end = 0u32;
    let opts = libbpf_sys::bpf_map_batch_opts {
        sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: a valid descriptor; there is room for `count` keys of 4 bytes and their values.
    let code = unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            ptr::null_mut(),
            (&raw mut end).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut count,
            &opts,
        )
    };
    let error = io::Error::last_os_error();
    // ENOENT: there are no more elements, and those are read.
    if code != 0 && error.raw_os_error() != Some(libc::ENOENT) {
        return Err(error.into());
    }
    values.truncate(count as usize * words);
    Ok(values)
}
