//! One table whose rows are read and written by key, in the kernel or in this process. A call is a
//! system call where it is the kernel's.

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

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
