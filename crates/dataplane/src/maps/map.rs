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
                let values = first_elements(map, elements)?;
                let value_len = (map.value_size() as usize).next_multiple_of(8);
                let of_cpus = values.chunks_exact(value_len * libbpf_rs::num_possible_cpus()?);
                let first = |value: &[u8]| u64::from_ne_bytes(value[..8].try_into().expect("8"));
                Ok(of_cpus.map(|cpus| cpus.chunks_exact(value_len).map(first).sum()).collect())
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

/// The bytes of the first so many elements of an array, in their order, read by one system call. Of
/// an array that each CPU has its own of an element is its values of all CPUs, each on 8 bytes.
///
/// # Errors
/// If the kernel refuses.
pub fn first_elements(map: &MapHandle, elements: u32) -> Result<Vec<u8>> {
    let of_each = match map.map_type() {
        MapType::PercpuArray => {
            (map.value_size() as usize).next_multiple_of(8) * libbpf_rs::num_possible_cpus()?
        }
        _ => map.value_size() as usize,
    };
    let elements = elements.min(map.max_entries());
    let mut keys = vec![0u32; elements as usize];
    let mut values = vec![0; of_each * elements as usize];
    let (mut count, mut end) = (elements, 0u32);
    let opts = libbpf_sys::bpf_map_batch_opts {
        sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as u64,
        ..Default::default()
    };
    // SAFETY: a valid descriptor; there is room for `count` keys of 4 bytes and for as many values,
    // each of the length that the kernel gives it.
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
    if count != elements {
        // An array has all of its elements.
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(values)
}
